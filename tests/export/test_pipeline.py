import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from tests.helpers.export import TEXT, little_text, manifest_of  # noqa: F401
from tests.helpers.student import SENTENCES, save_student
from xcompress import console
from xcompress.bundle.encoder import Encoder
from xcompress.errors import GateError, InputError
from xcompress.export import exporter as pipeline
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.verify import Bounds, open_session, run_graph
from xcompress.modeling.student import Student, encode, pad, shallower, token_ids

pytestmark = pytest.mark.usefixtures("little_text")
FLOAT = ExportConfig(precision="fp32")

RUN = {
    "name": "trial",
    "recipe_hash": "0123456789abcdef",
    "languages": ["en", "de"],
    "finished": "2024-05-01T10:00:00+00:00",
    "dev": {"sts": 71.5},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    save_student(tmp_path / "runs/trial/student", unit_layers=1, recurrences=1)
    (tmp_path / "runs/trial/manifest.json").write_text(json.dumps(RUN))
    return tmp_path / "runs/trial"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count exports, and write next to nothing."""
    calls: list[int] = []

    def write(folder: Path, source: object, config: object, bounds: object, made_from: str, _: object) -> None:
        calls.append(1)
        (folder / "a.txt").write_text("abc")
        files = {"a.txt": {"bytes": 3}}
        (folder / "manifest.json").write_text(json.dumps({"made_from": made_from, "files": files}))

    monkeypatch.setattr(pipeline, "make_bundle", write)
    return calls


def test_a_run_becomes_a_bundle_that_knows_its_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[1])
    bundle = export(options=FLOAT, facts={"note": "mine"})
    manifest = manifest_of(bundle)
    assert bundle == Path("runs/trial/bundle")
    assert {name: manifest[name] for name in ("recipe_hash", "languages", "dev")} == {
        name: RUN[name] for name in ("recipe_hash", "languages", "dev")
    }
    assert (manifest["source"], list(manifest["graphs"]), manifest["note"]) == ("trial", ["fp32"], "mine")
    assert not (bundle / "onnx/model_quantized.onnx").exists()
    card = (bundle / "README.md").read_text()
    assert "| languages | en, de |" in card
    assert "| sts | 71.5 |" in card
    assert "exporting trial" in capsys.readouterr().err


def test_the_same_is_not_exported_twice(run: Path, quick: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    export(run)
    assert export(run) == run / "bundle"
    assert len(quick) == 1
    assert "already exported" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["force", "option", "facts", "student", "file", "run", "text"])
def test_a_change_exports_again(run: Path, quick: list[int], change: str) -> None:
    text = run / "mine.txt"
    text.write_text("rain\n")
    options = ExportConfig(text=(text,))
    export(run, options=options)
    if change == "student":
        (run / "student/tokenizer.json").write_text("{}")
    if change == "file":
        (run / "bundle/a.txt").write_text("cut")
        (run / "bundle/a.txt").write_text("")
    if change == "run":
        (run / "manifest.json").write_text(json.dumps({**RUN, "dev": {}}))
    if change == "text":
        text.write_text("a red boat\n")
    if change == "option":
        options = replace(options, gate=0.5)
    export(run, options=options, force=change == "force", facts={"a": 1} if change == "facts" else None)
    assert len(quick) == 2


def test_a_full_disk_leaves_nothing(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("onnx.save", full)
    with pytest.raises(InputError, match=r"No space left on device.*free space"):
        export(run)
    assert sorted(path.name for path in run.iterdir()) == ["manifest.json", "student"]


def test_too_little_space_is_noticed_before_the_work(
    run: Path, quick: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "_free_bytes", lambda _: 10_000)
    with pytest.raises(InputError, match="MB free"):
        export(run)
    assert not quick


def test_a_failed_gate_keeps_the_bundle_that_was_there(
    run: Path, quick: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(run)
    before = (run / "bundle/manifest.json").read_text()

    def refuse(*_: object) -> None:
        raise GateError("too far off")

    monkeypatch.setattr(pipeline, "make_bundle", refuse)
    with pytest.raises(GateError):
        export(run, force=True)
    assert (run / "bundle/manifest.json").read_text() == before
    assert sorted(path.name for path in run.iterdir()) == ["bundle", "manifest.json", "student"]


def test_bounds_decide(run: Path) -> None:
    with pytest.raises(GateError, match="bound 0e"):
        export(run, options=FLOAT, bounds=Bounds(fp32_difference=0.0))
    assert not (run / "bundle").exists()


def test_a_folder_that_is_no_bundle_is_not_replaced(run: Path, tmp_path: Path, quick: list[int]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("keep me")
    with pytest.raises(InputError, match="holds no bundle"):
        export(run, tmp_path / "mine")
    assert (tmp_path / "mine/letter.txt").read_text() == "keep me"


def test_the_target_may_not_be_a_file(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        export(run, tmp_path / "file")


def test_an_unfinished_run_is_exported_with_a_warning(
    run: Path, quick: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "manifest.json").write_text(json.dumps({**RUN, "finished": None}))
    export(run)
    assert "not finished" in capsys.readouterr().err


def test_bars_show_the_sentences(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: dict[str, list[int]] = {}

    class Noting(console.LineTicker):
        def __init__(self, what: str, total: int) -> None:
            super().__init__(what, total)
            bars[what] = [0, total]

        def advance(self, steps: int = 1, note: str = "") -> None:
            bars[self._what][0] += steps

    monkeypatch.setattr(console, "LineTicker", Noting)
    export(run)
    sentences = sum(map(len, TEXT.values()))
    whats = ("encoded with PyTorch", "fp32 checked", "int8 checked")
    assert bars == {what: [sentences, sentences] for what in whats}


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    save_student(tmp_path / "runs/deep/student", unit_layers=1, recurrences=3)
    (tmp_path / "runs/deep/manifest.json").write_text(json.dumps({**RUN, "name": "deep"}))
    return tmp_path / "runs/deep"


def test_fewer_recurrences_make_another_bundle_with_fewer_nodes(deep: Path) -> None:
    full, shallow = export(deep, options=FLOAT), export(deep, options=replace(FLOAT, recurrences=2))
    assert [bundle.name for bundle in (full, shallow)] == ["bundle", "bundle-r2"]
    nodes = [len(onnx.load(bundle / "onnx/model.onnx").graph.node) for bundle in (full, shallow)]
    assert nodes[1] < nodes[0]
    student, tokenizer = Student.load(deep / "student")
    batch = token_ids(tokenizer, SENTENCES, student.config)
    with torch.inference_mode():
        depths = student.at_depths(*pad(batch, 1))
    session = open_session(shallow / "onnx/model.onnx")
    np.testing.assert_allclose(run_graph(session, batch, 1), depths[1].numpy(), atol=1e-5)
    expected = encode(shallower(student, 2), tokenizer, SENTENCES)
    np.testing.assert_allclose(Encoder(shallow).encode(SENTENCES), expected, atol=1e-5)


def test_a_shallow_bundle_says_so_and_claims_no_scores_of_the_deep_one(deep: Path) -> None:
    full, shallow = export(deep, options=FLOAT), export(deep, options=replace(FLOAT, recurrences=1))
    manifests = [manifest_of(bundle) for bundle in (full, shallow)]
    assert [(found["recurrences"], found["student_recurrences"]) for found in manifests] == [(3, 3), (1, 3)]
    assert ["dev" in found for found in manifests] == [True, False]
    cards = [(bundle / "README.md").read_text() for bundle in (full, shallow)]
    assert "| layers | 1 stored, applied 3 times |" in cards[0]
    assert "| layers | 1 stored, applied 1 times of the 3 that the student has |" in cards[1]


def test_the_depth_is_part_of_what_makes_a_bundle_current(deep: Path, tmp_path: Path, quick: list[int]) -> None:
    place = tmp_path / "mine"
    for recurrences in (2, 2, 1, None):
        export(deep, place, options=ExportConfig(recurrences=recurrences))
    assert len(quick) == 3


@pytest.mark.parametrize("recurrences", [0, 4])
def test_a_depth_that_the_student_lacks_is_refused_before_the_work(
    deep: Path, quick: list[int], recurrences: int
) -> None:
    with pytest.raises(InputError, match=f"recurrences: {recurrences} asked for, the student has 3"):
        export(deep, options=ExportConfig(recurrences=recurrences))
    assert not quick


def test_a_run_is_not_taken_for_a_bundle(deep: Path, quick: list[int]) -> None:
    with pytest.raises(InputError, match="holds no bundle"):
        export(deep, deep)
    assert (deep / "student").is_dir()


def test_what_is_beside_the_student_for_other_libraries_changes_nothing(deep: Path, quick: list[int]) -> None:
    export(deep)
    for name in ("modules.json", "config_sentence_transformers.json"):
        (deep / "student" / name).unlink()
    export(deep)
    assert len(quick) == 1
