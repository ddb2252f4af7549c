"""Runs as bundles: what a bundle says of its run, when it is made again, what it replaces, and at which depth."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.helpers.export import TEXT, manifest_of
from tests.helpers.foreign import save_encoder
from tests.helpers.student import SENTENCES, change_manifest, save_student
from xcompress import console
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.manifest import list_files, write_manifest
from xcompress.errors import GateError, InputError
from xcompress.export import exporter
from xcompress.export.card import checks_of
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.verify import Bounds, run_graph
from xcompress.files import megabytes, sha256_of
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

    def write(folder: Path, source: object, config: object, bounds: object, made_from: str) -> None:
        calls.append(1)
        (folder / "a.txt").write_text("abc")
        required = {"format": 1, "dimension": 24, "prefix": "", "max_tokens": 128, "pad_token_id": 1}
        write_manifest(folder, {**required, "made_from": made_from, "files": list_files(folder)})

    monkeypatch.setattr(exporter, "make_bundle", write)
    return calls


def test_a_run_becomes_a_bundle_that_knows_its_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[1])
    bundle = export(options=FLOAT)
    manifest = manifest_of(bundle)
    assert bundle == Path("runs/trial/bundle")
    assert {name: manifest[name] for name in ("recipe_hash", "languages", "dev")} == {
        name: RUN[name] for name in ("recipe_hash", "languages", "dev")
    }
    assert (manifest["source"], list(manifest["graphs"])) == ("trial", ["fp32"])
    assert not (bundle / "onnx/model_quantized.onnx").exists()
    card = (bundle / "README.md").read_text()
    assert "| languages | en, de |" in card
    assert "| sts | 71.5 |" in card
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["exporting trial (runs/trial/student) to runs/trial/bundle", "target cpu"]
    assert f"onnx/model.onnx: {megabytes(manifest['files']['onnx/model.onnx']['bytes'])}" in said
    for line in checks_of(manifest):
        assert line in said and f"- {line}" in card


def test_weights_that_the_run_did_not_train_have_no_dev_scores(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    of_run = sha256_of(run / "student/model.safetensors")
    for student_hash, dev in ((of_run, RUN["dev"]), ("0" * 64, None)):
        (run / "manifest.json").write_text(json.dumps({**RUN, "student_hash": student_hash}))
        manifest = manifest_of(export(run, options=FLOAT))
        assert manifest.get("dev") == dev and manifest.get("student_hash") == (of_run if dev else None)
    assert "trial: the weights are not those that the run trained" in " ".join(capsys.readouterr().err.split())


def test_a_bundle_that_cuts_texts_earlier_claims_no_scores_of_longer_ones(run: Path) -> None:
    for max_tokens, dev in ((127, None), (128, RUN["dev"])):
        bundle = export(run, options=replace(FLOAT, max_tokens=max_tokens))
        assert manifest_of(bundle)["dev"] == dev
        assert ("| sts | 71.5 |" in (bundle / "README.md").read_text()) == (dev is not None)


def test_a_link_to_a_folder_stays_a_link(run: Path, quick: list[int], tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert export(run, tmp_path / "link") == tmp_path / "disk"
    assert (tmp_path / "link").is_symlink() and (tmp_path / "disk/manifest.json").is_file() and quick


def test_the_same_is_not_exported_twice(run: Path, quick: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    export(run)
    assert export(run) == run / "bundle"
    assert len(quick) == 1
    assert "already exported" in capsys.readouterr().err


@pytest.mark.parametrize("change", ["force", "option", "student", "file", "run", "text"])
def test_a_change_exports_again(run: Path, quick: list[int], change: str) -> None:
    text = run / "mine.txt"
    text.write_text("rain\n")
    options = ExportConfig(text=(text,))
    export(run, options=options)
    if change == "student":
        (run / "student/tokenizer.json").write_text("{}")
    if change == "file":
        (run / "bundle/a.txt").write_text("cut")  # of the same size
    if change == "run":
        (run / "manifest.json").write_text(json.dumps({**RUN, "dev": {}}))
    if change == "text":
        text.write_text("a red boat\n")
    if change == "option":
        options = replace(options, gate=0.5)
    export(run, options=options, force=change == "force")
    assert len(quick) == 2


def test_text_from_a_pipe_exports_again(run: Path, quick: list[int]) -> None:
    options = ExportConfig(text=(Path(os.devnull),))  # no regular file either
    export(run, options=options)
    export(run, options=options)
    assert len(quick) == 2


@pytest.mark.parametrize("content", ['{"made_from": ', "[1]"])
def test_a_bundle_with_a_damaged_manifest_is_replaced_by_force(run: Path, quick: list[int], content: str) -> None:
    made = export(run)
    (made / "onnx").mkdir()
    (made / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"bundle/manifest\.json: is damaged; add --force"):
        export(run)
    export(run, force=True)
    assert manifest_of(made)["files"]
    assert len(quick) == 2


def test_a_list_of_files_that_is_no_mapping_exports_again(run: Path, quick: list[int]) -> None:
    change_manifest(export(run), files=["a.txt"])
    export(run)
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
    monkeypatch.setattr("xcompress.export.folder.free_bytes", lambda _: 10_000)
    with pytest.raises(InputError, match="MB free"):
        export(run)
    assert not quick


@pytest.mark.usefixtures("quick")
def test_weights_of_16_bits_need_the_space_of_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_encoder(tmp_path / "model", "bert")
    file = tmp_path / "model/model.safetensors"
    weights = load_file(file)
    written = 4 * sum(map(torch.numel, weights.values()))
    monkeypatch.setattr("xcompress.export.folder.free_bytes", lambda _: written)
    save_file({name: weight.bfloat16() for name, weight in weights.items()}, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=f"the export needs {megabytes(1.6 * written)}"):
        export(tmp_path / "model", tmp_path / "bundle")


def test_a_failed_gate_keeps_the_bundle_that_was_there(
    run: Path, quick: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    export(run)
    before = (run / "bundle/manifest.json").read_text()

    def refuse(*_: object) -> None:
        raise GateError("too far off")

    monkeypatch.setattr(exporter, "make_bundle", refuse)
    with pytest.raises(GateError):
        export(run, force=True)
    assert (run / "bundle/manifest.json").read_text() == before
    assert sorted(path.name for path in run.iterdir()) == ["bundle", "manifest.json", "student"]


def test_a_graph_that_no_file_holds_is_noticed_before_the_work(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.export.graph.MOST_BYTES", 10_000)
    monkeypatch.setattr(exporter, "make_reference", lambda *_: pytest.fail("encoded with PyTorch"))
    with pytest.raises(InputError, match=r"own format holds at most .*; trim the vocabulary \(--languages de,en\), or"):
        export(run, options=ExportConfig(target="mobile"))


def test_bounds_decide(run: Path) -> None:
    with pytest.raises(GateError, match="bound 0e"):
        export(run, options=FLOAT, bounds=Bounds(fp32_difference=0.0))
    assert not (run / "bundle").exists()


def test_a_run_that_loses_too_much_in_4_bits_may_train_with_them(run: Path) -> None:
    advice = r"use --precision auto, or calibrate on .*, or train a last stage with quantize: int4$"
    with pytest.raises(GateError, match=rf"mean cosine to PyTorch .*; {advice}"):
        export(run, options=ExportConfig(precision="int4"), bounds=Bounds(mean_cosine=1.1))


def test_a_folder_that_is_no_bundle_is_not_replaced(run: Path, tmp_path: Path, quick: list[int]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("keep me")
    with pytest.raises(InputError, match="is not empty and not an export"):
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
        def __init__(self, label: str, total: int) -> None:
            super().__init__(label, total)
            bars[label] = [0, total]

        def advance(self, steps: int = 1, note: str = "") -> None:
            bars[self._label][0] += steps

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
    session = open_on_cpu(shallow / "onnx/model.onnx")
    np.testing.assert_allclose(run_graph(session, batch, 1), depths[1].numpy(), atol=1e-5)
    expected = encode(shallower(student, 2), tokenizer, SENTENCES)
    np.testing.assert_allclose(Encoder(shallow).encode(SENTENCES), expected, atol=1e-5)


def test_a_shallow_bundle_says_so_and_claims_no_scores_of_the_deep_one(
    deep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full, shallow = export(deep, options=FLOAT), export(deep, options=replace(FLOAT, recurrences=1))
    assert "with 1 recurrence to" in capsys.readouterr().err
    manifests = [manifest_of(bundle) for bundle in (full, shallow)]
    assert [(found["recurrences"], found["student_recurrences"]) for found in manifests] == [(3, 3), (1, 3)]
    assert ["dev" in found for found in manifests] == [True, False]
    cards = [(bundle / "README.md").read_text() for bundle in (full, shallow)]
    assert "| layers | 1 stored, applied 3 times |" in cards[0]
    assert "| layers | 1 stored, applied 1 times of the 3 that the student has |" in cards[1]


def test_manifest_and_card_say_which_layers_are_applied_once(tmp_path: Path) -> None:
    student = save_student(tmp_path / "student", prelude_layers=1, unit_layers=2, recurrences=2, coda_layers=1)
    made = export(student, options=FLOAT)
    manifest = manifest_of(made)
    assert [manifest[f"{part}_layers"] for part in ("prelude", "unit", "coda")] == [1, 2, 1]
    card = (made / "README.md").read_text()
    assert "| layers | 4 stored: a unit of 2, applied 2 times, 1 before and 1 after it |" in card


def test_the_depth_is_part_of_what_makes_a_bundle_current(deep: Path, tmp_path: Path, quick: list[int]) -> None:
    place = tmp_path / "mine"
    for recurrences in (2, 2, 1, None):
        export(deep, place, options=ExportConfig(recurrences=recurrences))
    assert len(quick) == 3


@pytest.mark.parametrize("recurrences", [0, 4])
def test_a_depth_that_the_student_lacks_is_refused_before_the_work(
    deep: Path, quick: list[int], recurrences: int
) -> None:
    with pytest.raises(InputError, match=f"recurrences: {recurrences} requested, but the student has 3"):
        export(deep, options=ExportConfig(recurrences=recurrences))
    assert not quick


def test_a_run_is_not_taken_for_a_bundle(deep: Path, quick: list[int]) -> None:
    with pytest.raises(InputError, match="is not empty and not an export"):
        export(deep, deep)
    assert (deep / "student").is_dir()


def test_what_is_beside_the_student_for_other_libraries_changes_nothing(deep: Path, quick: list[int]) -> None:
    export(deep)
    for name in ("modules.json", "config_sentence_transformers.json"):
        (deep / "student" / name).unlink()
    export(deep)
    assert len(quick) == 1
