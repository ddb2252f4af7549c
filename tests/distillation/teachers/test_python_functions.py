import importlib.metadata
import sys
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.distillation.teachers.vectors import BATCH
from xcompress.errors import InputError
from xcompress.recipe import EncoderSection, TeacherSection

NUMBERS = count()
CODE = """
import numpy as np
WIDTH = 3
def lengths(texts):
    assert isinstance(texts, list)
    return np.array([[len(text), 1, -1] for text in texts])
class Model:
    def encode(self, texts):
        return lengths(texts) * 2.0
class Callable:
    def __call__(self, texts):
        return lengths(texts) * 3.0
class Threaded:
    def __init__(self, threads=64):
        self.threads = threads
    def encode(self, texts):
        return lengths(texts)[:, :1] * 0 + self.threads
class Demanding:
    def __init__(self, path):
        pass
model = Model()
def flat(texts):
    return np.ones(len(texts))
def short(texts):
    return np.ones((len(texts) - 1, 3))
def words(texts):
    return [[text] for text in texts]
def undefined(texts):
    return [[float("nan") if "rain" in text else 1.0] for text in texts]
def large(texts):
    return np.full((len(texts), 2), 1e39)
def raising(texts):
    raise RuntimeError("no key\\nset API_KEY")
def uneven(texts):
    return np.ones((len(texts), 2 if len(texts) == 256 else 3))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, under a name that was not imported before."""
    monkeypatch.chdir(tmp_path)
    name = f"own_encoder_{next(NUMBERS)}"
    (tmp_path / f"{name}.py").write_text(CODE)
    return name


def vectors(source: str, texts: list[str], **options: object) -> list[list[float]]:
    return open_encoder(EncoderSection(source=source, **options), "assistant")(texts).tolist()


@pytest.mark.parametrize(("limit", "expected"), [("", 3), ("2", 2), ("8", 3), ("none", 3)])
def test_a_class_that_takes_threads_gets_as_many_as_there_are(
    module: str, monkeypatch: pytest.MonkeyPatch, limit: str, expected: int
) -> None:
    monkeypatch.setattr("xcompress.sources.python_code.available_threads", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert vectors(f"python:{module}:Threaded", ["one"]) == [[expected]]


@pytest.mark.parametrize(("name", "factor"), [("lengths", 1), ("Model", 2), ("model", 2), ("Callable", 3)])
def test_functions_classes_and_instances_are_encoders(module: str, name: str, factor: int) -> None:
    found = vectors(f"python:{module}:{name}", ["rain", "a boat", "I"])
    assert found == [[4 * factor, factor, -factor], [6 * factor, factor, -factor], [factor, factor, -factor]]


def test_the_current_folder_is_searched_for_the_import_alone(module: str) -> None:
    before = list(sys.path)
    vectors(f"python:{module}:lengths", ["rain"])
    assert sys.path == before


def test_prefix_and_unit_length_apply(module: str) -> None:
    source = f"python:{module}:lengths"
    assert vectors(source, ["rain"], prefix="query: ") == [[11, 1, -1]]
    found = open_encoder(TeacherSection(source=source, prefix="a "), "teacher")(["rain"])
    np.testing.assert_allclose(found, np.array([[6, 1, -1]]) / 38**0.5, rtol=1e-6)


def test_rows_keep_the_order_of_the_texts_over_many_batches(module: str) -> None:
    texts = ["x" * (1 + 7 * number % 50) for number in range(2 * BATCH + 3)]
    assert [row[0] for row in vectors(f"python:{module}:lengths", texts)] == [len(text) for text in texts]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("python:nosuchmodule_x:f", "no module 'nosuchmodule_x'"),
        ("python:f", "not of the form python:package.module:name"),
        ("python:{m}:lenghts", "module {m} has no 'lenghts'; near it: lengths"),
        ("python:{m}:WIDTH", "is of type int, which is neither callable nor has encode"),
        ("python:{m}:Demanding", r"could not be created without arguments \(TypeError: .*path"),
        ("python:{m}:flat", r"returned an array of shape \(2,\) and type float64 for 2 sentences; .* shape \(2, D\)"),
        ("python:{m}:short", r"returned an array of shape \(1, 3\) and type float64 for 2 sentences"),
        ("python:{m}:words", r"of shape \(2, 1\) and type <U\d+ for 2"),
        ("python:{m}:undefined", r"returned NaN or infinity \(in float32\) for 1 of 2 sentences, such as 'rain'"),
        ("python:{m}:large", r"returned NaN or infinity \(in float32\) for 2 of 2 sentences"),
        ("python:{m}:raising", r"failed on 2 sentences, .* 'sun' \(RuntimeError: no key set API_KEY\)"),
    ],
)
def test_unusable_functions_are_refused_in_one_line(source: str, message: str, module: str) -> None:
    with pytest.raises(InputError, match=message.format(m=module)) as refused:
        vectors(source.format(m=module), ["rain", "sun"])
    assert str(refused.value).startswith(f"assistant.source: {source.format(m=module)}: ")
    assert "\n" not in str(refused.value)


def test_widths_that_differ_between_batches_are_refused(module: str) -> None:
    with pytest.raises(InputError, match="width 2 for one batch and 3 for another"):
        vectors(f"python:{module}:uneven", ["rain"] * (BATCH + 1))


@pytest.mark.parametrize("code", ["def broken(:", "import sys; sys.exit('bye')", "raise ValueError('a\\nb')"])
def test_a_module_that_cannot_be_imported_is_refused(code: str, module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}_broken.py").write_text(code)
    with pytest.raises(InputError, match=f"importing {module}_broken failed") as refused:
        vectors(f"python:{module}_broken:f", ["rain"])
    assert "\n" not in str(refused.value)


def test_the_fingerprint_follows_the_source_file(module: str, tmp_path: Path) -> None:
    part = EncoderSection(source=f"python:{module}:lengths")
    before = encoder_fingerprint(part)
    assert before == encoder_fingerprint(part) != encoder_fingerprint(EncoderSection(source=f"python:{module}:flat"))
    (tmp_path / f"{module}.py").write_text(CODE + "\n# changed")
    assert encoder_fingerprint(part) != before
    assert module not in sys.modules


def test_the_fingerprint_follows_the_version_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    part = EncoderSection(source="python:numpy:array")
    before = encoder_fingerprint(part)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0")
    assert encoder_fingerprint(part) != before
