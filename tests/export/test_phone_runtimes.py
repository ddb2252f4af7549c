"""`--target executorch` and `--target litert`: a file for phones beside the ONNX graph, verified in its own runtime."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.export import manifest_of, use_little_text
from tests.helpers.student import MODERNBERT, SENTENCES, change_manifest, save_student
from xcompress.bench.devices.mobile import BINDINGS, phone_subjects
from xcompress.bench.subjects import find_subjects
from xcompress.bench.workers.client import Worker
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import list_files, read_manifest
from xcompress.errors import GateError, InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.litert import signature_lengths
from xcompress.metrics import cosines
from xcompress.packages import is_installed
from xcompress.python_process import python_command
from xcompress.runtimes import PHONE_FILES, RUNTIMES

INSTALLED = {
    name: is_installed(RUNTIMES[name].run_by) and is_installed(RUNTIMES[name].written_by) for name in PHONE_FILES
}
EACH = pytest.mark.parametrize("runtime", PHONE_FILES)
WRITERS = {"executorch": "write_executorch", "litert": "write_litert"}


@pytest.fixture(scope="module", params=PHONE_FILES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Return the name of a runtime that is installed."""
    if not INSTALLED[request.param]:
        pytest.skip(f"{request.param} is not installed")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def made(runtime: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bundle of a student of one layer, applied twice."""
    folder = save_student(tmp_path_factory.mktemp(runtime) / "student", unit_layers=1, recurrences=2)
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_little_text(monkeypatch)
        return export(folder, folder.with_name("bundle"), options=ExportConfig(target=runtime))  # type: ignore[arg-type]


def test_the_bundle_holds_the_file_and_what_was_measured(runtime: str, made: Path) -> None:
    manifest = manifest_of(made)
    assert {PHONE_FILES[runtime], "onnx/model_quantized.onnx", "tokenizer.json"} <= set(manifest["files"])
    assert "onnx/model.onnx" not in manifest["files"]
    assert manifest["parity"][runtime]["mean_cosine"] > 0.995
    assert set(manifest["graded"][runtime]) == set(manifest["graded"]["before"])
    assert f"`{PHONE_FILES[runtime]}`" in (made / "README.md").read_text(encoding="utf-8")
    check_bundle(made, read_manifest(made), everything=True)


def test_a_float32_file_is_verified_too(runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    student = save_student(tmp_path / "student", unit_layers=1, recurrences=1)
    options = ExportConfig(target=runtime, precision="fp32")  # type: ignore[arg-type]
    folder = export(student, tmp_path / "bundle", options=options)
    assert manifest_of(folder)["parity"][runtime]["max_abs_difference"] < 1e-4
    assert f"- {runtime} against PyTorch: largest difference" in (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_modernbert_is_verified_too(
    runtime: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_little_text(monkeypatch)
    student = save_student(tmp_path / "student", **MODERNBERT | {"max_tokens": 32})
    options = ExportConfig(target=runtime, precision=precision)  # type: ignore[arg-type]
    parity = manifest_of(export(student, tmp_path / "bundle", options=options))["parity"][runtime]
    assert parity["max_abs_difference"] < 1e-4 if precision == "fp32" else parity["mean_cosine"] > 0.995


def test_encoder_opens_it_if_asked_to_and_gives_nearly_the_same_vectors(runtime: str, made: Path) -> None:
    texts = [*SENTENCES, "", "x " * 500]
    encoder = Encoder(made, engine=runtime)  # type: ignore[arg-type]
    assert (encoder.engine, Encoder(made).engine) == (runtime, "onnxruntime")
    assert cosines(encoder.encode(texts), Encoder(made).encode(texts)).min() > 0.99
    np.testing.assert_array_equal(encoder.encode(texts), np.stack([encoder.encode(text) for text in texts]))


def test_several_threads_give_the_vectors_of_one(runtime: str, made: Path, capfd: pytest.CaptureFixture[str]) -> None:
    expected = Encoder(made, engine=runtime).encode(SENTENCES)  # type: ignore[arg-type]
    encoder = Encoder(made, engine=runtime, threads=2)  # type: ignore[arg-type]
    with ThreadPoolExecutor(3) as pool:
        for vectors in pool.map(encoder.encode, [SENTENCES] * 6):
            np.testing.assert_allclose(vectors, expected, atol=1e-6)
    sys.stderr.write("heard")
    assert capfd.readouterr() == ("", "heard"), "the error stream is back"


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_opening_and_encoding_print_nothing(runtime: str, made: Path, threads: int | None) -> None:
    """In a process of its own: libraries print when they are first imported and called."""
    code = f"from xcompress import Encoder\nencoder = Encoder({str(made)!r}, engine={runtime!r}, threads={threads})\n"
    code += f"encoder.encode({[*SENTENCES, 'x ' * 500]!r})"
    done = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_writing_a_file_prints_nothing(runtime: str, tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom tests.helpers.student import make_student\n"
    code += f"from xcompress.export.{runtime} import {WRITERS[runtime]} as write\n"
    code += "student = make_student(unit_layers=1, recurrences=1)\n"
    code += f"write(student, Path({str(tmp_path / 'file')!r}), quantize=True, fold=False)"
    done = subprocess.run(python_command("-c", code), capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_mobile_bench_has_a_row_for_it(runtime: str, made: Path) -> None:
    (subject,) = find_subjects([made]).subjects
    (phone,) = phone_subjects(subject)
    assert (phone.kind, phone.name) == (runtime, f"student, {RUNTIMES[runtime].label} int8")
    assert phone.weights == (made / PHONE_FILES[runtime],)
    with Worker() as worker:
        worker.ask("import", modules=list(BINDINGS[runtime]))
        source = {"kind": phone.kind, "source": phone.source, "precision": phone.precision}
        loaded = worker.ask("load", **source, sentence="rain", input_ids=[[0, 5, 6, 2]])
        assert worker.ask("encode", texts=["rain"])["shape"] == [1, 24]
    assert loaded["resident"] < 100_000_000, "libraries that a phone's app lacks do not count"


def test_a_damaged_file_is_one_line(runtime: str, made: Path) -> None:
    file = made / PHONE_FILES[runtime]
    content = file.read_bytes()
    try:
        file.write_bytes(content[:-4000])
        with pytest.raises(InputError, match=rf"{file.name}: [\d,]+ bytes, manifest\.json says"):
            Encoder(made, engine=runtime)  # type: ignore[arg-type]
        file.write_bytes(b"\0" * len(content))
        with pytest.raises(
            InputError, match=rf"{file.name}: {runtime} cannot open it \(.*\); export the bundle again$"
        ):
            Encoder(made, engine=runtime, check=False)  # type: ignore[arg-type]
    finally:
        file.write_bytes(content)


def test_another_vector_is_refused(runtime: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    other = save_student(tmp_path / "other", unit_layers=1, recurrences=1)

    def write(student: object, file: Path, **_: object) -> None:
        file.parent.mkdir()
        file.write_bytes((made / PHONE_FILES[runtime]).read_bytes())

    monkeypatch.setattr(f"xcompress.export.exporter.{WRITERS[runtime]}", write)
    with pytest.raises(GateError, match=rf"^export: the file in {RUNTIMES[runtime].label}: mean cosine to PyTorch in"):
        export(other, tmp_path / "bundle", options=ExportConfig(target=runtime))  # type: ignore[arg-type]
    assert not (tmp_path / "bundle").exists()


@EACH
def test_without_the_package_the_export_is_refused_before_any_work(
    runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = save_student(tmp_path / "student")
    monkeypatch.setattr("xcompress.packages.is_installed", lambda _: False)
    expected = rf"^target: {runtime} needs {RUNTIMES[runtime].run_by}; pip install 'xcompress\[{runtime}\]'$"
    with pytest.raises(InputError, match=expected):
        export(student, options=ExportConfig(target=runtime))  # type: ignore[arg-type]


def test_litert_without_its_exporter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student = save_student(tmp_path / "student")
    monkeypatch.setattr("xcompress.packages.is_installed", lambda package: package != "litert_torch")
    with pytest.raises(InputError, match=r"^target: litert needs litert_torch; pip install 'xcompress\[litert\]'$"):
        export(student, options=ExportConfig(target="litert"))


@pytest.mark.parametrize(
    ("max_tokens", "lengths"), [(128, [16, 32, 64, 128]), (100, [16, 32, 64, 100]), (16, [16]), (7, [7])]
)
def test_a_litert_file_has_signatures_up_to_the_longest_text(max_tokens: int, lengths: list[int]) -> None:
    assert list(signature_lengths(max_tokens)) == lengths


@pytest.mark.parametrize("runtime", ["litert"], indirect=True)
def test_the_signatures_of_a_litert_file_share_scales(runtime: str, made: Path) -> None:
    from ai_edge_litert.schema_py_generated import ModelT

    content = (made / PHONE_FILES[runtime]).read_bytes()
    model = ModelT.InitFromPackedBuf(content, 0)
    assert len(model.subgraphs) == len(list(signature_lengths(manifest_of(made)["max_tokens"]))) > 1
    scales = {
        tensor.quantization.scale.tobytes()
        for graph in model.subgraphs
        for tensor in graph.tensors
        if tensor.quantization is not None and np.size(tensor.quantization.scale) > 8
    }
    assert scales and all(content.count(scale) == 1 for scale in scales)


def with_file(bundle: Path, runtime: str) -> Path:
    """Add a file of a runtime to a bundle and its manifest."""
    (bundle / runtime).mkdir()
    (bundle / PHONE_FILES[runtime]).write_bytes(b"no program")
    files = {name: entry for name, entry in list_files(bundle).items() if name != "manifest.json"}
    change_manifest(bundle, files=files)
    return bundle


@EACH
def test_encoder_says_what_is_missing(runtime: str, bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=f"no file for {RUNTIMES[runtime].label}; export it with --target {runtime}"):
        Encoder(bundle_copy, engine=runtime)  # type: ignore[arg-type]
    with_file(bundle_copy, runtime)
    expected = f"its file for {RUNTIMES[runtime].label} is in int8, not fp32; leave the precision out"
    with pytest.raises(InputError, match=expected):
        Encoder(bundle_copy, precision="fp32", engine=runtime)  # type: ignore[arg-type]
    monkeypatch.setattr("xcompress.bundle.engines.is_installed", lambda _: False)
    with pytest.raises(InputError, match=rf"^engine: {runtime} is not installed; pip install 'xcompress\[{runtime}\]'"):
        Encoder(bundle_copy, engine=runtime)  # type: ignore[arg-type]


@EACH
def test_a_bench_has_no_row_for_a_package_that_is_missing(
    runtime: str, bundle_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_file(bundle_copy, runtime)
    monkeypatch.setattr("xcompress.bench.devices.mobile.is_installed", lambda _: True)
    subjects = find_subjects([bundle_copy]).subjects
    found = [phone.name for subject in subjects for phone in phone_subjects(subject)]
    assert found == [f"small, {RUNTIMES[runtime].label} int8"], "the file is in the precision of one graph"
    monkeypatch.setattr("xcompress.bench.devices.mobile.is_installed", lambda _: False)
    assert not [phone for subject in subjects for phone in phone_subjects(subject)]


@EACH
@pytest.mark.parametrize("precision", ["fp16", "int4", "auto"])
def test_other_precisions_are_refused(runtime: str, precision: str) -> None:
    with pytest.raises(InputError, match=rf"^target: {runtime} needs precision int8 or fp32, not {precision}"):
        ExportConfig(precision=precision, target=runtime)  # type: ignore[arg-type]


@EACH
def test_other_tables_are_refused(runtime: str) -> None:
    with pytest.raises(InputError, match=rf"^table: int4 is not for target {runtime}"):
        ExportConfig(table="int4", target=runtime)  # type: ignore[arg-type]
