"""`--target coreml`: an ML program beside the ONNX graph, checked without Core ML and marked as not run."""

import shutil
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.export import TEXT, manifest_of, use_little_text
from tests.helpers.student import MODERNBERT, make_student, make_tokenizer, save_student
from xcompress.bench.devices.mobile import MobileDevice
from xcompress.bench.subjects import find_subjects
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import read_manifest
from xcompress.errors import GateError, InputError
from xcompress.export.config import ExportConfig
from xcompress.export.coreml import write_coreml
from xcompress.export.exporter import export
from xcompress.export.ml_program import MlProgram
from xcompress.export.phone import PhoneModel
from xcompress.export.verify import Bounds, make_reference, verify_sample
from xcompress.packages import is_installed
from xcompress.runtimes import COREML

NEEDED = pytest.mark.skipif(not is_installed("coremltools"), reason="coremltools is not installed")
SIZES = {"hidden_size": 64, "intermediate_size": 128, "unit_layers": 1, "recurrences": 2}
NOT_RUN = "not run: Core ML needs macOS or iOS"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the int8 bundle of a student of one layer, applied twice."""
    folder = save_student(tmp_path_factory.mktemp("coreml") / "student", **SIZES)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_little_text(monkeypatch)
        return export(folder, folder.with_name("bundle"), options=ExportConfig(target="coreml"))


@NEEDED
def test_the_bundle_holds_the_package_and_says_that_it_was_not_run(made: Path) -> None:
    manifest = manifest_of(made)
    package = {name for name in manifest["files"] if name.startswith(f"{COREML}/")}
    contents = ("Manifest.json", "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights/weight.bin")
    assert package == {f"{COREML}/{name}" for name in contents}
    coreml = manifest["coreml"]
    assert coreml["status"] == NOT_RUN
    assert coreml["bytes"] == sum(manifest["files"][name]["bytes"] for name in package)
    assert coreml["evaluated_in_numpy"]["worst_cosine"] > 0.99
    assert set(manifest["parity"]) == {"fp32", "int8"}, "nothing was measured in Core ML"
    card = (made / "README.md").read_text(encoding="utf-8")
    assert f"- {COREML}: {NOT_RUN}" in card
    assert f"| {COREML} | 0." in card
    check_bundle(made, read_manifest(made), everything=True)


@NEEDED
def test_no_path_of_this_machine_is_in_the_package(made: Path) -> None:
    model = (made / COREML / "Data/com.apple.CoreML/model.mlmodel").read_bytes()
    for folder in (Path(__file__).parents[2], Path(torch.__file__).parent, made.parent):
        assert str(folder).encode() not in model


@NEEDED
def test_each_large_matrix_is_in_int8_and_a_shared_one_is_stored_once(made: Path) -> None:
    weights = manifest_of(made)["coreml"]["weights"]
    assert weights["int8"] == 7, "six products of the layer, and the token embeddings"
    assert 0 < weights["largest_difference"] < 0.01
    layer, others = 4 * 64 * 64 + 2 * 64 * 128, 400 * 64 + 2 * (128 * 64 + 24 * 64)
    size = (made / COREML / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    assert layer + others < size < 2 * layer + others


@NEEDED
def test_another_student_and_another_interface_are_told_apart(made: Path) -> None:
    program = MlProgram(made / COREML)
    other = make_student(**SIZES)
    with torch.no_grad():
        other.unit[0].intermediate.weight[3, 5] += 0.5  # type: ignore[union-attr, index, operator]
    with pytest.raises(GateError, match=r"layers\.0\.intermediate\.weight differs from the student's by up to 0\.5"):
        program.check_weights(PhoneModel(other, fold=True, int8_rows=False), quantized=True)
    program.check_interface(128, 24)
    with pytest.raises(GateError, match=r"^export: coreml/model\.mlpackage: its inputs are .*\(2, 128\)"):
        program.check_interface(64, 24)
    with pytest.raises(GateError, match=r"^export: coreml/model\.mlpackage: its output is .*\[1, 24\]"):
        program.check_interface(128, 32)


@NEEDED
@pytest.mark.parametrize(
    "changes", [SIZES | {"relative_buckets": 8, "position_offset": 0, "head_activation": "tanh"}, SIZES | MODERNBERT]
)
def test_a_float16_program_gives_the_students_vectors_with_and_without_padding(
    changes: dict[str, object], tmp_path: Path
) -> None:
    student = make_student(**changes)
    with torch.no_grad():
        student.embeddings.word.weight[1] = 0  # as for padding in most models
    model = PhoneModel(student, int8_rows=False)
    write_coreml(model, tmp_path / "coreml/model.mlpackage", quantize=False)
    program = MlProgram(tmp_path / "coreml/model.mlpackage")
    assert program.check_weights(model, quantized=False)["int8"] == 0
    with pytest.raises(GateError, match=r"word\.weight is not in int8"):
        program.check_weights(model, quantized=True)
    ids = torch.randint(5, 300, (1, 11), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 7:] = 0
    with torch.inference_mode():
        expected = student(ids, mask)[1].numpy()
    for found in (program.encode(ids[0].tolist(), mask[0].tolist()), program.encode(ids[0, :7].tolist())):
        np.testing.assert_allclose(found, expected, atol=2e-3)


@NEEDED
def test_what_is_not_the_student_leaves_no_bundle(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    other = save_student(tmp_path / "other", **SIZES | {"recurrences": 1})

    def write(model: object, package: Path, **_: object) -> None:
        shutil.copytree(made / COREML, package)

    monkeypatch.setattr("xcompress.export.exporter.write_coreml", write)
    with pytest.raises(GateError, match=r"^export: coreml/model\.mlpackage in numpy: mean cosine to PyTorch is"):
        export(other, tmp_path / "bundle", options=ExportConfig(target="coreml"))
    assert not (tmp_path / "bundle").exists()


@NEEDED
def test_a_changed_package_is_refused_and_a_missing_one_is_not(made: Path, tmp_path: Path) -> None:
    bundle = shutil.copytree(made, tmp_path / "bundle")
    (bundle / COREML / "added.bin").write_bytes(b"x")
    with pytest.raises(InputError, match=r"added\.bin: is not listed in manifest\.json"):
        Encoder(bundle)
    shutil.rmtree(bundle / COREML)
    assert Encoder(bundle).encode("rain").shape == (24,)


@NEEDED
def test_a_mobile_bench_says_that_it_was_not_run(made: Path) -> None:
    (subject,) = find_subjects([made]).subjects
    with ExitStack() as stack:
        device = MobileDevice(None, stack)
        subjects, _ = device.prepare([subject], None)
        assert [subject.kind for subject in subjects] == ["onnx"], "no row without figures"
        notes = list(device.check_vectors(subjects, []))
    assert f"student, ONNX int8: {COREML} beside it was {NOT_RUN}" in notes


def test_a_sample_that_differs_too_much_is_refused() -> None:
    reference = make_reference(make_student(), make_tokenizer(), TEXT)
    with pytest.raises(GateError, match=r"^export: it: mean cosine to PyTorch is .*, bound 0\.995"):
        verify_sample(lambda _: np.ones((1, 24), dtype=np.float32), "it", reference, Bounds.of("int8"))


def test_without_the_package_the_export_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = save_student(tmp_path / "student")
    monkeypatch.setattr("xcompress.packages.is_installed", lambda _: False)
    with pytest.raises(InputError, match=r"^target: coreml needs coremltools; pip install 'xcompress\[coreml\]'$"):
        export(student, options=ExportConfig(target="coreml"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["student"]


def test_encoder_refuses_it_in_one_line(bundle_copy: Path) -> None:
    expected = rf"^engine: coreml is {NOT_RUN}; open .*model\.mlpackage there in an app, or choose onnxruntime$"
    with pytest.raises(InputError, match=expected):
        Encoder(bundle_copy, engine="coreml")  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["fp32", "int4", "auto"])
def test_other_precisions_are_refused(precision: str) -> None:
    with pytest.raises(
        InputError, match=rf"^target: coreml needs precision int8 or fp16, not {precision}; change one$"
    ):
        ExportConfig(precision=precision, target="coreml")  # type: ignore[arg-type]


def test_other_tables_are_refused() -> None:
    with pytest.raises(InputError, match=r"^table: int4 is not for target coreml"):
        ExportConfig(table="int4", target="coreml")
