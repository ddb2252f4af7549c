import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.helpers.student import SENTENCES, change_manifest, save_student, student_of_bundle
from xcompress.bench import memory
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.bench.workers.onnx_model import OnnxModel
from xcompress.bundle.manifest import read_manifest
from xcompress.files import sha256_of
from xcompress.modeling.student import encode
from xcompress.python_process import module_command

IDS = [[0, 5, 6, 2]]
ECHO = """
import json, os, signal, sys, time
for line in sys.stdin:
    asked = json.loads(line)["do"]
    if asked == "exit":
        sys.exit("the disk is gone")
    if asked == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if asked == "sleep":
        time.sleep(60)
    print(json.dumps({"did": asked} if asked != "fail" else {"error": "no such thing"}), flush=True)
"""


def fake(timeout: float = 30.0) -> Worker:
    return Worker([sys.executable, "-c", ECHO], timeout)


def test_worker_serves_a_student(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "small")
    request = {"kind": "pytorch", "source": str(folder), "precision": "fp32", "sentence": "rain", "input_ids": IDS}
    with Worker() as worker:
        loaded = worker.ask("load", **request)
        worker.ask("threads", count=2)
        seconds = worker.ask("time", input_ids=IDS, calls=4, warm=True)["seconds"]
        encoded = worker.ask("encode", texts=SENTENCES)
    assert set(loaded["seconds"]) == {"import", "model", "first_vector"}
    assert loaded["seconds"]["import"] > 0.05, "torch is imported in the worker, and timed"
    assert loaded["resident"] > loaded["bare"], "torch weighs more than the bare interpreter"
    assert loaded["peak"] >= loaded["resident"]
    assert len(seconds) == 4
    assert min(seconds) > 0
    expected = encode(*student_of_bundle(), SENTENCES)
    np.testing.assert_allclose(
        np.frombuffer(base64.b64decode(encoded["vectors"]), "<f4").reshape(encoded["shape"]), expected, atol=1e-5
    )


def test_a_worker_ends_during_a_request_when_its_parent_is_gone(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = subprocess.Popen(
        module_command("xcompress.bench.workers.worker"), stdin=-1, stderr=-1, env=os.environ | {"PYTHONPATH": path}
    )
    with process:
        assert process.stdin and process.stderr
        process.stdin.write(b'{"do": "import", "modules": ["slow"]}\n')
        process.stdin.flush()
        assert process.stderr.readline() == b"here\n"
        process.stdin.close()
        assert process.wait(30) == 1


def test_nothing_heavy_before_the_bare_measurement() -> None:
    heavy = ["numpy", "torch", "onnxruntime", "tokenizers", "rich", "pydantic"]
    code = f"import sys, xcompress.bench.workers.worker; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_model_is_one_line(tmp_path: Path) -> None:
    request = {"kind": "pytorch", "source": str(tmp_path), "precision": "fp32", "sentence": "x", "input_ids": IDS}
    with Worker() as worker, pytest.raises(WorkerFailed, match=r"no config\.json|config\.json: no such file") as caught:
        worker.ask("load", **request)
    assert "\n" not in str(caught.value)


def test_an_error_reply_leaves_the_worker_alive() -> None:
    with fake() as worker:
        with pytest.raises(WorkerFailed, match="no such thing"):
            worker.ask("fail")
        assert worker.ask("go on") == {"did": "go on"}


@pytest.mark.parametrize(
    ("do", "says"), [("exit", "ended with exit code 1: the disk is gone"), ("kill", r"signal 9.*out of memory")]
)
def test_death_is_reported(do: str, says: str) -> None:
    with fake() as worker:
        with pytest.raises(WorkerFailed, match=says):
            worker.ask(do)
        with pytest.raises(WorkerFailed, match=says):
            worker.ask("anything after its death")


def test_a_slow_request_times_out() -> None:
    with fake(timeout=0.3) as worker, pytest.raises(WorkerFailed, match=r"no answer within 0\.3 s"):
        worker.ask("sleep")


def test_a_late_process_behind_a_script_is_not_waited_for() -> None:
    with Worker(["sh", "-c", "(read one; read two); true"], timeout=0.3) as worker:
        for _ in range(2):
            with pytest.raises(WorkerFailed, match=r"no answer within 0\.3 s"):
                worker.ask("anything")


def test_a_reply_of_too_many_values_is_not_read() -> None:
    code = "print(input() and '{}', flush=True); print('{' + ','.join(f'\"{n}\":{{}}' for n in range(200_000)) + '}')"
    with Worker([sys.executable, "-c", code]) as worker:
        worker.ask("anything")
        with pytest.raises(WorkerFailed, match="instead of a reply"):
            worker.ask("anything")


def test_output_of_libraries_is_not_a_reply() -> None:
    code = (
        "import os, sys, xcompress.bench.workers.worker as w\n"
        "w.RequestHandler.do_noise = lambda self: (print('noise'), os.write(1, b'more noise\\n'), {})[-1]\n"
        "w.main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1, text=True) as worker:
        assert worker.stdin and worker.stdout
        worker.stdin.write(json.dumps({"do": "noise"}) + "\n")
        worker.stdin.flush()
        assert worker.stdout.readline() == "{}\n"
        printed, errors = worker.communicate()
    assert printed == "" and "more noise" in errors


def test_memory_grows_with_an_allocation() -> None:
    before = memory.resident()
    block = b"x" * 50_000_000
    assert memory.resident() - before > 40_000_000
    assert memory.peak() >= before + 40_000_000
    assert len(block) == 50_000_000


def test_a_graph_with_token_types_is_timed(bundle_copy: Path) -> None:
    graph = bundle_copy / "onnx/model.onnx"
    model = onnx.load(graph)
    model.graph.input.append(helper.make_tensor_value_info("token_type_ids", TensorProto.INT64, ["batch", "length"]))
    onnx.save(model, graph)
    files = read_manifest(bundle_copy)["files"]
    files["onnx/model.onnx"] = {"bytes": graph.stat().st_size, "sha256": sha256_of(graph)}
    change_manifest(bundle_copy, files=files)
    opened = OnnxModel(str(bundle_copy), "fp32", "cpu")
    opened.use_threads(1)
    vectors = opened.call(IDS)()
    assert isinstance(vectors, list)
    assert vectors[0].shape == (1, 24)
