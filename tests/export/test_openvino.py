"""`--target openvino`: OpenVINO opens the bundle, in `Encoder`, in a bench and in other libraries."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.bundle.test_open_encoder import exit_code_of_fork
from tests.helpers.export import manifest_of, use_little_text
from tests.helpers.student import SENTENCES, bundle, make_student, make_tokenizer, save_student
from xcompress.bench.devices.local import LocalDevice
from xcompress.bench.subjects import find_subjects
from xcompress.bench.workers.client import Worker
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import OpenVinoSession
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import read_manifest
from xcompress.errors import GateError, InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.verify import Bounds
from xcompress.metrics import cosines
from xcompress.packages import is_installed
from xcompress.python_process import python_command

NEEDED = pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
ANY = Bounds(mean_cosine=-1, worst_cosine=-1, similarity_correlation=-1, invariance_cosine=-1)
XML, GRAPH = "openvino/openvino_model.xml", "onnx/model_quantized.onnx"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a student, and its bundle in the folder `bundle` inside."""
    pytest.importorskip("openvino", reason="openvino is not installed")
    folder = tmp_path_factory.mktemp("openvino") / "student"
    folder.mkdir()
    make_student().save(folder, make_tokenizer())
    with pytest.MonkeyPatch.context() as monkeypatch:
        use_little_text(monkeypatch)
        return export(folder, folder.with_name("bundle"), options=ExportConfig(target="openvino"))


def test_the_bundle_holds_both_formats_and_what_was_measured(made: Path) -> None:
    manifest = manifest_of(made)
    assert {XML, "openvino/openvino_model.bin", GRAPH} <= set(manifest["files"])
    assert "onnx/model.onnx" not in manifest["files"]
    assert (manifest["target"], manifest["operators"]) == ("openvino", "standard")
    assert manifest["parity"]["openvino"]["mean_cosine"] > 0.99
    assert 'backend="openvino"' in (made / "README.md").read_text(encoding="utf-8")
    check_bundle(made, read_manifest(made), everything=True)


def test_no_path_of_this_machine_is_in_the_file(made: Path) -> None:
    assert str(made.parent) not in (made / XML).read_text(encoding="utf-8")


def test_auto_takes_openvino_and_gives_the_same_vectors(made: Path) -> None:
    encoder = Encoder(made)
    assert (encoder.engine, encoder.engine_reason) == (
        "openvino",
        "the bundle was exported for OpenVINO, and it is installed",
    )
    expected = Encoder(made, engine="onnxruntime").encode(SENTENCES)
    assert cosines(encoder.encode(SENTENCES), expected).min() > 0.995
    alone = np.stack([encoder.encode(text) for text in SENTENCES])
    assert cosines(encoder.encode(SENTENCES), alone).min() > 0.995


def test_threads_share_an_encoder(made: Path) -> None:
    encoder = Encoder(made, threads=1)
    expected = [encoder.encode(text) for text in SENTENCES]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(encoder.encode, SENTENCES * 20))
    assert cosines(np.stack(found), np.stack(expected * 20)).min() > 0.9999


def test_without_openvino_onnxruntime_opens_the_bundle(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.bundle.engines.is_installed", lambda _: False)
    encoder = Encoder(made)
    assert encoder.engine == "onnxruntime"
    assert encoder.engine_reason.endswith("which is not installed; pip install 'xcompress[openvino]'")
    with pytest.raises(InputError, match=r"^engine: openvino is not installed; pip install 'xcompress\[openvino\]'"):
        Encoder(made, engine="openvino")


@NEEDED
def test_the_first_token_behind_a_quantized_head_is_one_row_a_text(tmp_path: Path, little_text: None) -> None:
    """OpenVINO 2026.4 gives a Gather of one row behind a product in 8 bits the shape (1, N, D)."""
    folder = save_student(tmp_path / "student", pooling="cls", head_size=None, prefix="")
    options = ExportConfig(target="openvino", dimension=8)
    made = export(folder, tmp_path / "bundle", options=options, bounds=ANY)
    assert Encoder(made).encode(SENTENCES).shape == (len(SENTENCES), 8)


@NEEDED
def test_a_graph_that_openvino_does_not_read_is_opened_by_onnxruntime(tmp_path: Path, little_text: None) -> None:
    options = ExportConfig(target="openvino", precision="fp32", ort=True)
    made = export(save_student(tmp_path / "student"), tmp_path / "bundle", options=options)
    encoder = Encoder(made)
    assert (encoder.engine, encoder.engine_reason) == ("onnxruntime", "OpenVINO does not read onnx/model.ort")
    assert encoder.encode(SENTENCES).any()


def test_without_openvino_the_export_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student = save_student(tmp_path / "student")
    monkeypatch.setattr("xcompress.packages.is_installed", lambda _: False)
    with pytest.raises(InputError, match=r"^target: openvino needs openvino; pip install 'xcompress\[openvino\]'$"):
        export(student, options=ExportConfig(target="openvino"))


@NEEDED
def test_a_float32_graph_of_any_bundle_opens_in_openvino() -> None:
    encoder = Encoder(bundle(), precision="fp32", engine="openvino")
    expected = Encoder(bundle(), precision="fp32").encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-4)
    assert Encoder(bundle(), precision="fp32").engine_reason == "the bundle was not exported for OpenVINO"


@NEEDED
def test_operators_of_onnxruntime_are_refused() -> None:
    with pytest.raises(
        InputError, match=r"model_quantized\.onnx: only onnxruntime reads it; export it with --target openvino"
    ):
        Encoder(bundle(), engine="openvino")


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^engine: 'tensorrt' is unknown; choose auto, onnxruntime, openvino, executorch or litert$"
    ):
        Encoder(bundle(), engine="tensorrt")  # type: ignore[arg-type]


def test_a_damaged_graph_gives_one_line(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in made.rglob("*"):
        if file.is_file():
            (copy / file.relative_to(made)).parent.mkdir(exist_ok=True)
            (copy / file.relative_to(made)).write_bytes(file.read_bytes())
    content = (made / GRAPH).read_bytes()
    (copy / GRAPH).write_bytes(content[:-4000])
    with pytest.raises(InputError, match=r"bytes, manifest\.json says") as refused:
        Encoder(copy)
    (copy / GRAPH).write_bytes(content.replace(b"MatMul", b"MatMil"))
    with pytest.raises(InputError, match="openvino cannot open it") as unchecked:
        Encoder(copy, check=False)
    assert "\n" not in str(refused.value) + str(unchecked.value)
    (copy / GRAPH).write_bytes(content)
    (copy / "openvino" / "openvino_tokenizer.xml").write_text("<net/>")
    with pytest.raises(InputError, match=r"is not listed in manifest\.json"):
        Encoder(copy)


def test_a_graph_that_differs_in_openvino_is_refused(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_little_text(monkeypatch)

    def run(session: object, batch: list[list[int]], pad_token_id: int) -> np.ndarray:
        return np.random.default_rng(0).normal(size=(len(batch), 24)).astype(np.float32)

    def verify(graph: object, *others: object) -> dict[str, object]:
        if not isinstance(graph, Path):
            monkeypatch.setattr("xcompress.export.verify.run_graph", run)
        return quantized(graph, *others)

    from xcompress.export import exporter

    quantized = exporter.verify_quantized
    monkeypatch.setattr(exporter, "verify_quantized", verify)
    with pytest.raises(GateError, match=r"^export: the graph in OpenVINO: mean cosine"):
        export(made.with_name("student"), tmp_path / "bundle", options=ExportConfig(target="openvino"), bounds=Bounds())
    assert not (tmp_path / "bundle").exists()


def test_the_gate_holds_in_openvino_too(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_text(monkeypatch)
    assert set(manifest_of(made)["graded"]["openvino"]) == set(manifest_of(made)["graded"]["before"])
    from xcompress.export import exporter

    score = exporter.graded_scores

    def worse_in_openvino(encoder: object, languages: list[str]) -> dict[str, float]:
        scores = score(encoder, languages)  # type: ignore[arg-type]
        if isinstance(getattr(encoder, "session", None), OpenVinoSession):
            return {pair: points - 90 for pair, points in scores.items()}
        return scores

    monkeypatch.setattr(exporter, "graded_scores", worse_in_openvino)
    options = ExportConfig(target="openvino", gate=50)
    with pytest.raises(GateError, match=r"allowed 50; use --precision auto, or use a larger --gate$"):
        export(made.with_name("student"), tmp_path / "bundle", options=options)


def test_of_many_batches_each_thread_takes_some(made: Path) -> None:
    encoder, texts = Encoder(made, threads=2), [" ".join(SENTENCES[: 1 + number % 4]) for number in range(64)]
    alone = Encoder(made, threads=1).encode(texts, batch_size=1)
    np.testing.assert_allclose(encoder.encode(texts, batch_size=1), alone, rtol=0, atol=1e-6)
    streams = encoder._for_many_batches
    assert isinstance(streams, OpenVinoSession)
    assert streams.model.get_property("NUM_STREAMS") == 2


def test_a_bench_has_a_row_for_each_engine(made: Path) -> None:
    found = find_subjects([made])
    subjects, _ = LocalDevice("cpu").prepare(found.subjects, found.reference)
    assert [(subject.kind, subject.name) for subject in subjects] == [
        ("onnx", "student, ONNX int8"),
        ("openvino", "student, ONNX int8 in OpenVINO"),
    ]
    (note,) = LocalDevice("cpu").check_vectors(subjects, SENTENCES)
    assert "Encoder opens openvino by default: the bundle was exported for OpenVINO, and it is installed" in note
    request = LocalDevice("cpu").load_request(subjects[1])
    with Worker() as worker:
        worker.ask("load", **request, sentence="rain", input_ids=[[0, 5, 6, 2]])
        worker.ask("threads", count=2)
        assert len(worker.ask("time", input_ids=[[0, 5, 6, 2]], calls=2, warm=True)["seconds"]) == 2
        assert worker.ask("encode", texts=["rain"])["shape"] == [1, 24]


CLOSED_IN_TURN = """
import signal, sys
from pathlib import Path
from xcompress.bundle.engines import OpenVinoSession
first, second = (OpenVinoSession(Path(sys.argv[1]), 1, exact=True) for _ in range(2))
del first
del second
signal.signal(signal.SIGINT, lambda *_: print("handled"))
signal.raise_signal(signal.SIGINT)
"""


def test_ctrl_c_still_works_when_models_are_closed(made: Path) -> None:
    """OpenVINO sets a stack for signal handlers; a handler that ran on one that is gone would end the process."""
    command = python_command("-c", CLOSED_IN_TURN, str(made / GRAPH))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


FIRST_USES = """
import faulthandler, sys, threading
from xcompress.bundle.engines import _core
_core()
import openvino
faulthandler.dump_traceback_later(10, exit=True)
sys.setswitchinterval(1e-6)
ready = threading.Barrier(4)
def use():
    ready.wait()
    openvino.Type.f32.to_dtype()
threads = [threading.Thread(target=use) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@NEEDED
@pytest.mark.parametrize("attempt", range(3))
def test_threads_that_encode_at_once_at_first_do_not_wait_for_each_other(attempt: int) -> None:
    done = subprocess.run(python_command("-c", FIRST_USES), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("options", [(), ("many",)])
def test_a_forked_process_encodes_and_ends(made: Path, options: tuple[str, ...]) -> None:
    assert exit_code_of_fork(made, *options) == "0"


def test_contradictions_are_refused() -> None:
    with pytest.raises(InputError, match=r"^target: openvino needs precision int8, not int4; .* --table int4$"):
        ExportConfig(precision="int4", target="openvino")
    with pytest.raises(InputError, match=r"^operators: OpenVINO does not read those of onnxruntime"):
        ExportConfig(operators="onnxruntime", target="openvino")


@pytest.mark.slow
def test_sentence_transformers_and_optimum_intel(made: Path) -> None:
    pytest.importorskip("optimum.intel", reason="optimum-intel is not installed")
    package = pytest.importorskip("sentence_transformers")
    model = package.SentenceTransformer(str(made), backend="openvino")
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    texts = [text for text in SENTENCES if len(tokenizer.encode(text).ids) > 2]
    assert cosines(model.encode(texts, batch_size=1), Encoder(made).encode(texts, batch_size=1)).min() > 0.995
    listed = json.loads((made / "manifest.json").read_text())["files"]
    found = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    assert found == {*listed, "manifest.json"}
