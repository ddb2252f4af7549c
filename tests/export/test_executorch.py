"""`--target executorch`: a file for ExecuTorch beside the ONNX graph, verified in ExecuTorch."""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.export import manifest_of, use_little_text
from tests.helpers.student import SENTENCES, change_manifest, save_student
from xcompress.bench.devices.mobile import phone_subjects
from xcompress.bench.subjects import find_subjects
from xcompress.bench.workers.client import Worker
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import list_files, read_manifest
from xcompress.bundle.phone_runtimes import has_runtime
from xcompress.errors import GateError, InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.metrics import cosines

PTE = "executorch/model.pte"
NEEDED = pytest.mark.skipif(not has_runtime("executorch"), reason="executorch is not installed")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of a student of one layer, applied twice."""
    folder = save_student(tmp_path_factory.mktemp("executorch") / "student", unit_layers=1, recurrences=2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_little_text(monkeypatch)
        return export(folder, folder.with_name("bundle"), options=ExportConfig(target="executorch"))


@NEEDED
def test_the_bundle_holds_the_file_and_what_was_measured(made: Path) -> None:
    manifest = manifest_of(made)
    assert {PTE, "onnx/model_quantized.onnx", "tokenizer.json"} <= set(manifest["files"])
    assert "onnx/model.onnx" not in manifest["files"]
    assert manifest["parity"]["executorch"]["mean_cosine"] > 0.995
    assert set(manifest["graded"]["executorch"]) == set(manifest["graded"]["before"])
    assert "`executorch/model.pte`" in (made / "README.md").read_text(encoding="utf-8")
    check_bundle(made, read_manifest(made), everything=True)


@NEEDED
def test_a_float32_file_is_verified_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    student = save_student(tmp_path / "student", unit_layers=1, recurrences=1)
    folder = export(student, tmp_path / "bundle", options=ExportConfig(target="executorch", precision="fp32"))
    assert manifest_of(folder)["parity"]["executorch"]["max_abs_difference"] < 1e-4
    assert "- executorch against PyTorch: largest difference" in (folder / "README.md").read_text(encoding="utf-8")


@NEEDED
def test_encoder_opens_it_if_asked_to_and_gives_nearly_the_same_vectors(made: Path) -> None:
    texts = [*SENTENCES, "", "x " * 500]
    encoder = Encoder(made, engine="executorch")
    assert (encoder.engine, Encoder(made).engine) == ("executorch", "onnxruntime")
    assert cosines(encoder.encode(texts), Encoder(made).encode(texts)).min() > 0.99
    np.testing.assert_array_equal(encoder.encode(texts), np.stack([encoder.encode(text) for text in texts]))


@NEEDED
def test_a_mobile_bench_has_a_row_for_it(made: Path) -> None:
    (subject,) = find_subjects([made]).subjects
    (phone,) = phone_subjects(subject)
    assert (phone.kind, phone.name) == ("executorch", "student, ExecuTorch int8")
    assert phone.weights == (made / PTE,)
    with Worker() as worker:
        worker.ask("import", modules=["torch", "executorch.runtime"])
        source = {"kind": phone.kind, "source": phone.source, "precision": phone.precision}
        loaded = worker.ask("load", **source, sentence="rain", input_ids=[[0, 5, 6, 2]])
    assert loaded["dimension"] == 24
    assert loaded["resident"] < 100_000_000, "PyTorch does not count"


@NEEDED
def test_a_damaged_file_is_one_line(made: Path, tmp_path: Path) -> None:
    content = (made / PTE).read_bytes()
    try:
        (made / PTE).write_bytes(content[:-4000])
        with pytest.raises(InputError, match=r"model\.pte: \d+ bytes, manifest\.json says"):
            Encoder(made, engine="executorch")
        (made / PTE).write_bytes(b"\0" * len(content))
        with pytest.raises(InputError, match=r"model\.pte: executorch cannot open it \(.*\); export the bundle again$"):
            Encoder(made, engine="executorch", check=False)
    finally:
        (made / PTE).write_bytes(content)


@NEEDED
def test_another_vector_is_refused(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    other = save_student(tmp_path / "other", unit_layers=1, recurrences=1)

    def write(student: object, file: Path, **_: object) -> None:
        file.parent.mkdir()
        file.write_bytes((made / PTE).read_bytes())

    monkeypatch.setattr("xcompress.export.exporter.write_executorch", write)
    with pytest.raises(GateError, match=r"^export: the file in ExecuTorch: mean cosine to PyTorch in"):
        export(other, tmp_path / "bundle", options=ExportConfig(target="executorch"))
    assert not (tmp_path / "bundle").exists()


def test_without_the_package_the_export_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = save_student(tmp_path / "student")
    monkeypatch.setattr("xcompress.export.exporter.has_runtime", lambda _: False)
    expected = r"^target: executorch needs ExecuTorch; pip install 'xcompress\[executorch\]'$"
    with pytest.raises(InputError, match=expected):
        export(student, options=ExportConfig(target="executorch"))


def test_encoder_says_what_is_missing(bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has no file for ExecuTorch; export it with --target executorch"):
        Encoder(bundle_copy, engine="executorch")
    (bundle_copy / "executorch").mkdir()
    (bundle_copy / PTE).write_bytes(b"no program")
    files = {name: entry for name, entry in list_files(bundle_copy).items() if name != "manifest.json"}
    change_manifest(bundle_copy, files=files)
    with pytest.raises(InputError, match="its file for ExecuTorch is in int8, not fp32; leave the precision out"):
        Encoder(bundle_copy, precision="fp32", engine="executorch")
    monkeypatch.setattr("xcompress.bundle.engines.has_runtime", lambda _: False)
    with pytest.raises(
        InputError, match=r"^engine: executorch is not installed; pip install 'xcompress\[executorch\]'"
    ):
        Encoder(bundle_copy, engine="executorch")


def test_a_bench_has_no_row_for_a_package_that_is_missing(bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle_copy / "executorch").mkdir()
    (bundle_copy / PTE).write_bytes(b"no program")
    monkeypatch.setattr("xcompress.bench.devices.mobile.has_runtime", lambda _: True)
    subjects = find_subjects([bundle_copy]).subjects
    found = [phone.name for subject in subjects for phone in phone_subjects(subject)]
    assert found == ["small, ExecuTorch int8"], "the file is in the precision of one graph"
    monkeypatch.setattr("xcompress.bench.devices.mobile.has_runtime", lambda _: False)
    assert not [phone for subject in subjects for phone in phone_subjects(subject)]


@pytest.mark.parametrize("precision", ["fp16", "int4", "auto"])
def test_other_precisions_are_refused(precision: str) -> None:
    with pytest.raises(InputError, match=rf"^target: executorch needs precision int8 or fp32, not {precision}"):
        ExportConfig(precision=precision, target="executorch")  # type: ignore[arg-type]


def test_other_tables_are_refused() -> None:
    with pytest.raises(InputError, match=r"^table: int4 is not for target executorch"):
        ExportConfig(table="int4", target="executorch")
