import mmap
import os
import re
import resource
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bench import memory
from xcompress.bench.devices.arm64 import VARIABLE
from xcompress.bench.devices.device import Failure
from xcompress.bench.devices.mobile import (
    ENVIRONMENT,
    MobileDevice,
    emulation_notes,
    explain_out_of_memory,
    measure_needed_memory,
    mobile_bundle,
)
from xcompress.bench.machine import Machine
from xcompress.bench.run import bench
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import read_manifest
from xcompress.errors import InputError
from xcompress.files import sha256_of

MB = 10**6
on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has the limit")


def load_request() -> dict[str, object]:
    """Ask a worker for the small bundle."""
    source = str(bundle())
    return {"kind": "onnx", "source": source, "precision": "int8", "sentence": "rain", "input_ids": [[0, 5, 6, 2]]}


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mobile_bundle(bundle(), "int8", tmp_path_factory.mktemp("phone") / "bundle")


def test_a_bundle_for_phones_is_complete_and_in_ort_format(phone: Path) -> None:
    manifest = read_manifest(phone)
    check_bundle(phone, manifest, everything=True)
    assert manifest["target"] == "mobile"
    assert manifest["graphs"] == {"int8": "onnx/model_quantized.ort"}
    assert [file.name for file in (phone / "onnx").iterdir()] == ["model_quantized.ort"]
    assert (phone / "onnx/model_quantized.ort").read_bytes()[4:8] == b"ORTM"


def test_a_bundle_for_phones_opens_with_one_thread_and_gives_the_same_vectors(phone: Path) -> None:
    encoder = Encoder(phone)
    assert encoder.session.get_session_options().intra_op_num_threads == 1
    expected = Encoder(bundle(), precision="int8").encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES), expected, atol=1e-5)


def test_a_bundle_exported_for_phones_is_used_unchanged(phone: Path, tmp_path: Path) -> None:
    assert mobile_bundle(phone, "int8", tmp_path / "copy") == phone
    assert not (tmp_path / "copy").exists()


def test_ort_format_of_another_target_is_copied(phone: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(phone, other)
    change_manifest(other, target="cpu")
    made = mobile_bundle(other, "int8", tmp_path / "copy")
    assert read_manifest(made)["target"] == "mobile"
    Encoder(made)


def test_external_data_ends_up_in_the_graph(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    folder = tmp_path / "bundle"
    shutil.copytree(bundle(), folder)
    graph = folder / "onnx/model.onnx"
    model = onnx.load(graph)
    onnx.save(model, graph, save_as_external_data=True, location="model.onnx_data", size_threshold=1024)
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"]
    listed = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }
    change_manifest(folder, files=listed)
    made = mobile_bundle(folder, "fp32", tmp_path / "phone")
    assert [file.name for file in (made / "onnx").iterdir()] == ["model.ort"]
    np.testing.assert_allclose(
        Encoder(made).encode("rain"), Encoder(bundle(), precision="fp32").encode("rain"), atol=1e-5
    )


def test_a_missing_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"precision is 'int4', but the graphs are .*fp32"):
        mobile_bundle(bundle(), "int4", tmp_path / "phone")


def test_a_changed_bundle_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(bundle(), folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        mobile_bundle(folder, "int8", tmp_path / "phone")
    assert not (tmp_path / "phone").exists()


def test_a_graph_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Path) -> Path:
        raise RuntimeError("no such operator\nand more")

    monkeypatch.setattr("xcompress.export.graph.write_ort", broken)
    with pytest.raises(InputError, match=r"ORT format, .* 2 GB \(no such operator\); export .* --target mobile"):
        mobile_bundle(bundle(), "int8", tmp_path / "phone")


@on_linux
def test_an_allocation_over_the_ceiling_fails() -> None:
    code = f"""
import sys
from xcompress.bench.memory import limit, reserved
limit({50 * MB})
bytearray({40 * MB})
try:
    bytearray({60 * MB} + reserved())
except MemoryError:
    print("held")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "held\n"


@on_linux
def test_private_memory_counts_before_it_is_touched() -> None:
    before = memory.status_bytes("VmData")
    reservation = mmap.mmap(-1, 50 * MB, flags=mmap.MAP_PRIVATE)
    assert memory.status_bytes("VmData") - before >= 50 * MB
    reservation.close()
    assert memory.status_bytes("VmData", 2**22 + 1) == 0, "there is no such process"


@on_linux
def test_a_lower_limit_of_the_system_stays() -> None:
    code = "import resource; from xcompress.bench.memory import limit; limit(10**12); print(resource.getrlimit(2))"
    most = 400 * MB

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=bound, env=os.environ
    )
    assert done.stdout == f"({most}, {most})\n"


def test_a_system_that_enforces_no_ceiling_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="--device mobile: darwin enforces no memory ceiling; measure on Linux"):
        bench(bundle(), device="mobile")


@on_linux
def test_a_worker_under_a_ceiling_fails_below_what_it_needs_and_not_above() -> None:
    reserved = memory.reserved(ENVIRONMENT)
    took = measure_needed_memory(Worker(environment=ENVIRONMENT), load_request(), [[[5] * 16] * 8], reserved)
    assert took is not None
    assert 10 * MB < took < 500 * MB
    with Worker(environment=ENVIRONMENT) as worker:
        worker.ask("limit", bytes=took + took // 5)
        assert worker.ask("load", **load_request())["resident"] > 0
    with Worker(environment=ENVIRONMENT) as worker, pytest.raises(WorkerFailed) as caught:
        worker.ask("limit", bytes=took - took // 5)
        worker.ask("load", **load_request())
    explained = explain_out_of_memory(str(caught.value), took, took - took // 5)
    assert explained.why.startswith("needs ") and explained.over_memory


def test_the_memory_of_a_model_that_always_fails_is_unknown(tmp_path: Path) -> None:
    request = load_request() | {"source": str(tmp_path)}
    assert measure_needed_memory(Worker(environment=ENVIRONMENT), request, [], 0) is None


@on_linux
def test_what_numpy_has_reserved_already_is_not_added_to_a_ceiling() -> None:
    code = """
import numpy, resource
from xcompress.bench import memory
before = memory.status_bytes("VmData")
memory.limit(10**8)
print(resource.getrlimit(resource.RLIMIT_DATA)[0] - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert abs(int(done.stdout) - 100 * MB) < 5 * MB


@on_linux
def test_what_numpy_has_reserved_already_is_not_taken_from_what_a_subject_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xcompress.bench.devices.mobile.BINDINGS", {"onnx": ("numpy",)})
    monkeypatch.setattr(memory, "reserved", lambda _: 10**12)
    subject = Subject("small", "onnx", str(bundle()), "int8")
    with ExitStack() as stack:
        failure = MobileDevice(1, stack).explain_failure(subject, "bad_alloc", load_request(), [])
    assert re.fullmatch(r"needs \d+ MB, ceiling 1 MB", failure.why)


def test_a_runtime_that_cannot_be_imported_fails_one_subject_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.bench.devices.mobile.BINDINGS", {"onnx": ("no_such_module",)})
    with ExitStack() as stack:
        device = MobileDevice(100, stack)
        assert device.explain_failure(Subject("small", "onnx", ""), "no module", {}, []) == Failure("no module")


@pytest.mark.parametrize(
    ("failure", "took", "said", "over_memory"),
    [
        ("std::bad_alloc", 142_300_000, "needs 143 MB, ceiling 100 MB", True),
        ("std::bad_alloc", 99_000_000, "needs more than the ceiling of 100 MB (std::bad_alloc)", True),
        ("MemoryError", None, "needs more than the ceiling of 100 MB (MemoryError)", True),
        ("no such file", None, "no such file", False),
        (
            "needs torch; install it",
            99_000_000,
            "needs torch; install it",
            False,
        ),
    ],
)
def test_a_failure_is_explained(failure: str, took: int | None, said: str, over_memory: bool) -> None:
    assert explain_out_of_memory(failure, took, 100 * MB) == Failure(said, over_memory)


def machine(*flags: str) -> Machine:
    return Machine("some processor", flags, 1, 0, 0.0, "a system", "3.11", {})


def test_the_emulation_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    wide, narrow = ("\n".join(emulation_notes(machine(*flags))) for flags in (["avx2", "avx512f"], ["avx2"]))
    assert "some processor" in narrow
    assert "AVX-512" not in narrow
    assert "onnxruntime has no switch for it" in wide
    assert "arm64: not checked" in narrow


@pytest.mark.slow
def test_pytorch_is_kept_from_avx512() -> None:
    pytest.importorskip("torch")
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | dict(ENVIRONMENT), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ("AVX2", "DEFAULT")
