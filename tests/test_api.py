"""The Python API: the functions that the commands call, and the examples of the documentation."""

import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import xcompress
from tests.helpers import ROOT
from tests.helpers.bench import measure_little
from tests.helpers.recipe import write_recipe
from tests.helpers.student import SENTENCES, bundle, save_student
from xcompress.api import BenchOptions, ExportOptions
from xcompress.bench.devices import DeviceOptions
from xcompress.bench.run import BenchConfig
from xcompress.bundle.manifest import read_manifest
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.recipe import Recipe, load_recipe


@pytest.fixture(autouse=True)
def little_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    measure_little(monkeypatch)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> xcompress.Run:
    folder = tmp_path_factory.mktemp("api")
    return xcompress.distill(write_recipe(folder, "contrast"), run=folder / "run", student={"bottleneck": 8})


@pytest.mark.usefixtures("little_text")
def test_the_documented_session_works(run: xcompress.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = run.export(tmp_path / "bundle", precision="fp32")  # 8 bits may be too few for a model of a few steps
    report = made.bench(reference=run.assistant, quick=True, grid="1x8", threads=[1])
    assert report.reference and any("ONNX fp32" in result.name for result in report.results)
    vectors = made.encoder().encode(SENTENCES)
    assert vectors.shape == (len(SENTENCES), made.manifest["dimension"])
    assert made.manifest["precision"] == "fp32"


def test_overrides_reach_the_recipe(run: xcompress.Run) -> None:
    assert json.loads((run.student / "config.json").read_text())["bottleneck"] == 8
    assert run.manifest["student_hash"]
    assert run.assistant == run.folder / "reference"


def test_a_finished_run_opens_and_anything_else_is_refused(run: xcompress.Run, tmp_path: Path) -> None:
    assert xcompress.Run.open(run.folder) == run
    with pytest.raises(InputError, match="no finished run"):
        xcompress.Run.open(tmp_path)
    with pytest.raises(InputError, match="no finished run"):
        xcompress.Run.open(bundle())
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(InputError, match="expected names and values, found list"):
        xcompress.Run.open(tmp_path).manifest  # noqa: B018


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"qick": True}, "bench: no option 'qick'; choose device, data"),
        ({"models": []}, r"bench: models is \[\]; name one or several"),
        ({"models": 5}, "bench: models: 5 is no model; give a folder"),
        ({"models": np.array([])}, r"bench: models is array\(\[\].*\); name one or several"),
        ({"models": [xcompress.Run(Path("a"))]}, r"bench: models: Run\(.* is no model; give a folder"),
        ({"models": b"tiny"}, "bench: models: 116 is no model"),
        ({"reference": 5}, "bench: reference: 5 is no model"),
        ({"languages": "en,de"}, r"bench: languages is 'en,de'; give a list, such as \['en', 'de'\]"),
        ({"languages": [5]}, "bench: languages.0: .* valid string, got 5; correct it"),
        ({"threads": 2}, r"bench: threads is 2; give a list, such as \[1, 2\]"),
        ({"threads": "2"}, r"bench: threads is '2'; give a list, such as \[1, 2\]"),
        ({"grid": 5}, "bench: grid is 5; give text, such as '1x16,32x32'"),
        ({"device": 5}, "bench: device is 5; give its name, such as 'cpu'"),
        ({"data": 5}, "bench: data: 5 is no path; give text or a Path"),
        ({"distractors": "five"}, "bench: distractors: .* valid integer, .*, got 'five'; correct it"),
        ({"device": "wasm", "slow_down": "much"}, "bench: slow_down: .* valid number, .*, got 'much'; correct it"),
    ],
)
def test_options_of_a_bench_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        xcompress.bench_models(**({"models": "tiny"} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"precison": "int4"}, "export: no option 'precison'; choose precision, table"),
        ({"languages": "de"}, r"export: languages is 'de'; give a list of codes, such as \['en', 'de'\]"),
        ({"text": "a.txt"}, r"export: text is 'a.txt'; give a list of files, such as \['sentences.txt'\]"),
        ({"text": Path("a.txt")}, r"export: text is .*a.txt.*; give a list of files"),
        ({"text": [None]}, "export: text: None is no path; give text or a Path"),
        ({"dimension": "half"}, "export: dimension: .* valid integer, .*, got 'half'; correct it"),
        ({"gate": "a"}, "export: gate: .* valid number, .*, got 'a'; correct it"),
        ({"prefix": 5}, "export: prefix: .* valid string, got 5; correct it"),
        ({"output": 5}, "export: output: 5 is no path; give text or a Path"),
        ({"source": 5}, "export: source: 5 is no model; give a folder"),
    ],
)
def test_options_of_an_export_that_cannot_be_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        xcompress.export_model(**({"source": "tiny"} | options))  # type: ignore[arg-type]


def test_a_bundle_is_not_exported_again() -> None:
    with pytest.raises(InputError, match="is a bundle already; give the model that it was made from"):
        xcompress.export_model(xcompress.Bundle.open("tiny"))  # type: ignore[arg-type]


def test_none_stands_for_the_default_of_an_option_of_a_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("xcompress.bench.run.bench", lambda *models, **options: calls.append(options))
    xcompress.bench_models("tiny", **dict.fromkeys(BenchOptions.__annotations__))  # type: ignore[arg-type]
    xcompress.bench_models("tiny", distractors="5", threads=["2"])  # type: ignore[arg-type, list-item]
    assert (calls[0]["device"], calls[0]["config"], calls[0]["options"]) == ("cpu", BenchConfig(), DeviceOptions())
    assert calls[1]["config"] == BenchConfig(distractors=5, threads=(2,))


def test_a_folder_may_be_text_and_nothing_but_a_path(run: xcompress.Run) -> None:
    assert xcompress.Run(str(run.folder)) == run  # type: ignore[arg-type]
    assert xcompress.Bundle(str(bundle())).manifest == read_manifest(bundle())  # type: ignore[arg-type]
    for kind in (xcompress.Run, xcompress.Run.open, xcompress.Bundle):
        with pytest.raises(InputError, match="None is no path; give text or a Path"):
            kind(None)  # type: ignore[operator]


def test_a_run_in_the_home_folder_opens(run: xcompress.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(run.folder.parent))
    assert xcompress.Run.open("~/run") == run


def test_overrides_are_of_the_types_of_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Recipe] = []

    def distill(recipe: Recipe, folder: Path, **_: object) -> Path:
        found.append(recipe)
        return folder

    monkeypatch.setattr("xcompress.distillation.pipeline.distill", distill)
    labelled = {"entailment": [Path("dir/\U0001f600\n\u2028.tsv"), "dir/ä b.tsv"]}
    xcompress.distill("minilm_ru3", run="runs/a", languages=("de",), labelled=labelled, student={"bottleneck": 8})
    (recipe,), base = found, load_recipe("minilm_ru3")
    assert (recipe.languages, recipe.labelled.entailment) == (("de",), tuple(map(str, labelled["entailment"])))
    assert recipe.student == base.student.model_copy(update={"bottleneck": 8})


def test_an_unknown_key_is_refused_even_where_its_mapping_is_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown key nosuch; known keys are"):
        xcompress.distill("minilm_ru3", run=tmp_path / "run", nosuch={})
    with pytest.raises(InputError, match=r"unknown key student\.botleneck; did you mean bottleneck"):
        xcompress.distill("minilm_ru3", run=tmp_path / "run", student={"botleneck": {}})


def test_overrides_of_a_loaded_recipe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model_copy"):
        xcompress.distill(load_recipe("minilm_ru3"), seed=2)


@pytest.mark.parametrize("processes", [0, -1, 1025, "2"])
def test_a_wrong_number_of_processes_is_refused_before_any_work(processes: object) -> None:
    with pytest.raises(InputError, match=f"distill: processes is {processes!r}; give a whole number from 1 to 1,024"):
        xcompress.distill("absent", processes=processes)  # type: ignore[arg-type]


def test_every_option_of_an_export_and_of_a_bench_can_be_given() -> None:
    assert ExportOptions.__annotations__.keys() == {field.name for field in fields(ExportConfig)}
    of_bench = {field.name for field in (*fields(BenchConfig), *fields(DeviceOptions))}
    assert BenchOptions.__annotations__.keys() == {"device", *of_bench}


def test_a_bundle_opens_by_folder_and_by_released_name(tmp_path: Path) -> None:
    folder = bundle()
    assert xcompress.Bundle.open(folder).manifest == read_manifest(folder)
    name = xcompress.released_names()[0]
    assert xcompress.Bundle.open(name).manifest["dimension"] == 384
    with pytest.raises(InputError):
        xcompress.Bundle.open(tmp_path)


def test_one_sentence_gives_one_vector_and_a_list_gives_rows() -> None:
    encoder = xcompress.Bundle.open(bundle()).encoder(threads=1)
    one = encoder.encode(SENTENCES[0])
    assert one.shape == (encoder.dimension,)
    np.testing.assert_array_equal(encoder.encode([SENTENCES[0]]), one[None])


@pytest.mark.usefixtures("little_text")
def test_export_model_takes_an_encoder_folder(tmp_path: Path) -> None:
    made = xcompress.export_model(save_student(tmp_path / "student"), tmp_path / "bundle", precision="fp32")
    assert made == xcompress.Bundle(tmp_path / "bundle")
    assert made.manifest["precision"] == "fp32"


@pytest.mark.usefixtures("little_text")
def test_export_model_takes_names_of_files_of_text(tmp_path: Path) -> None:
    (tmp_path / "own.en.txt").write_text("\n".join(SENTENCES * 3))
    student, text = save_student(tmp_path / "student"), [str(tmp_path / "own.en.txt")]
    made = xcompress.export_model(student, tmp_path / "bundle", precision="fp32", text=text)  # type: ignore[arg-type]
    assert made.manifest["precision"] == "fp32"


def test_every_public_name_is_there_and_documented() -> None:
    for name in xcompress.__all__:
        assert name in dir(xcompress)
        assert name == "__version__" or inspect.getdoc(getattr(xcompress, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = xcompress.nothing  # type: ignore[attr-defined]


def test_importing_xcompress_imports_nothing_heavy() -> None:
    code = (
        "import sys, xcompress; print([m for m in ('numpy', 'torch', 'onnxruntime', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.usefixtures("little_text")
def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    encode, distil = blocks
    names: dict[str, object] = {}
    exec(encode, names)
    assert np.shape(names["vector"]) == (384,)
    assert np.shape(names["vectors"]) == (2, 384)
    # the second example, with a recipe small enough for a test and the sets that it names
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "STS.en-de.txt").write_text(
        "rain\tder Regen\t5\nthe train\tdie Suppe\t0\na boat\tein Boot\t4\n"
    )
    recipe = write_recipe(tmp_path / "recipe", "contrast")
    small = distil.replace('"minilm_ru3"', repr(str(recipe))).replace('"bottleneck": 256', '"bottleneck": 8')
    small = small.replace('"int4"', '"fp32"')  # 4 bits are too few for random weights
    small = small.replace('quick=True, grid="1x16"', 'data="sets/", quick=True, grid="1x8"')
    exec(small, names)
    report = names["report"]
    assert isinstance(names["bundle"], xcompress.Bundle)
    assert report.results  # type: ignore[attr-defined]
