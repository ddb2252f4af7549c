"""The table of runtimes: everything that lists them for a type checker has the same ones."""

from typing import get_args

from xcompress.bench.results import Kind
from xcompress.bench.subjects import KIND_LABELS
from xcompress.bundle.engines import Engine
from xcompress.bundle.manifest import GRAPHS, TARGETS
from xcompress.export.config import SETTINGS, Target
from xcompress.runtimes import ENGINES, GRAPH_FOLDERS, RUNTIMES


def test_the_types_name_the_runtimes_of_the_table() -> None:
    assert get_args(Target) == TARGETS == tuple(SETTINGS)
    assert {target: settings.runtime for target, settings in SETTINGS.items() if settings.runtime} == {
        name: name for name in RUNTIMES
    }
    assert get_args(Engine) == ("auto", "onnxruntime", *ENGINES)
    assert get_args(Kind) == tuple(KIND_LABELS)


def test_every_file_is_in_the_folder_of_its_runtime() -> None:
    assert all(runtime.file.startswith(f"{name}/") for name, runtime in RUNTIMES.items())
    assert {file.partition("/")[0] for file in GRAPHS.values()} == set(GRAPH_FOLDERS) - set(RUNTIMES)
