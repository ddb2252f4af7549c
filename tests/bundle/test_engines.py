import errno
import os
import subprocess
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, save

from xcompress.bench.workers.client import Worker
from xcompress.bundle import engines
from xcompress.bundle.engines import OpenVinoSession, open_session
from xcompress.errors import InputError
from xcompress.packages import is_installed
from xcompress.python_process import python_command

ENGINES = [
    "onnxruntime",
    pytest.param(
        "openvino", marks=pytest.mark.skipif(not is_installed("openvino"), reason="OpenVINO is not installed")
    ),
]


def encoder(
    *, ids: int = TensorProto.INT64, vectors: int = TensorProto.FLOAT, for_each_token: bool = False
) -> ModelProto:
    """Make a graph of eight dimensions: the mean of its token embeddings, or all of them."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("ReduceMean", ["tokens"], ["text"], axes=[1], keepdims=0),
        helper.make_node("Cast", ["tokens" if for_each_token else "text"], ["sentence_embedding"], to=vectors),
    ]
    shape = ["n", "l", 8] if for_each_token else ["n", 8]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("input_ids", ids, ["n", "l"])],
        [helper.make_tensor_value_info("sentence_embedding", vectors, shape)],
        [numpy_helper.from_array(np.ones((20, 8), np.float32), "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_encoder_opens(engine: str, tmp_path: Path) -> None:
    save(encoder(), tmp_path / "model.onnx")
    session = open_session(tmp_path / "model.onnx", {"dimension": 8}, "fp32", engine, 1)
    assert session.run(["sentence_embedding"], {"input_ids": np.array([[1, 2]])})[0].tolist() == [[1.0] * 8]


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (encoder(ids=TensorProto.INT32), r"'input_ids' is a tensor\(int32\), not a tensor\(int64\)"),
        (encoder(vectors=TensorProto.STRING), r"'sentence_embedding' is a tensor\(string\), not a tensor\(float\)"),
        (encoder(vectors=TensorProto.DOUBLE), r"'sentence_embedding' is a tensor\(double\), not a tensor\(float\)"),
    ],
)
def test_a_graph_of_other_types_is_refused(model: ModelProto, what: str, tmp_path: Path) -> None:
    save(model, tmp_path / "model.onnx")
    with pytest.raises(InputError, match=rf"model\.onnx: {what}; export the bundle again"):
        open_session(tmp_path / "model.onnx", {"dimension": 8}, "fp32", "onnxruntime", 1)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_graph_with_a_vector_for_each_token_is_refused(engine: str, tmp_path: Path) -> None:
    save(encoder(for_each_token=True), tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx: outputs the shape \[.*, .*, 8\], not a vector for each"):
        open_session(tmp_path / "model.onnx", {"dimension": 8}, "fp32", engine, 1)


@pytest.mark.parametrize("streams", [False, True])
def test_openvino_keeps_few_kernels(streams: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise a server's memory grows with each new number of texts and length: 1 GB after 450 of them."""
    core = Mock()
    monkeypatch.setattr(engines, "_core", lambda: core)
    OpenVinoSession(tmp_path / "model.onnx", 2, exact=False, streams=streams)
    assert core.compile_model.call_args.args[2]["CPU_RUNTIME_CACHE_CAPACITY"] <= 500


@pytest.mark.skipif(not is_installed("openvino"), reason="OpenVINO is not installed")
def test_what_openvino_cannot_open_is_explained(tmp_path: Path) -> None:
    save(encoder(vectors=TensorProto.STRING), tmp_path / "model.onnx")
    with pytest.raises(
        InputError, match=r"openvino cannot open it \(.*Unsupported operation of type: Convert"
    ) as error:
        open_session(tmp_path / "model.onnx", {"dimension": 8}, "fp32", "openvino", 1)
    assert "\n" not in str(error.value)


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of processes that start, still empty; xcompress has set the variable in this one."""
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_onnxruntime_reports_nothing_and_leaves_no_file_at_home(empty_home: Path) -> None:
    subprocess.run(python_command("-c", "from xcompress.bundle import engines"), check=True)
    with Worker() as worker:
        worker.ask("import", modules=["onnxruntime"])
    assert list(empty_home.iterdir()) == []


def test_onnxruntime_prints_nothing_where_no_thread_can_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    create = Mock(side_effect=RuntimeError(f"pthread_create failed, error msg: {os.strerror(errno.EAGAIN)}"))
    monkeypatch.setattr(onnxruntime.InferenceSession, "_create_inference_session", create)
    save(encoder(), tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"cannot open it \(pthread_create .*, or use 1 thread \(--threads 1\)$"):
        open_session(tmp_path / "model.onnx", {"dimension": 8}, "fp32", "onnxruntime", 1)
    assert capsys.readouterr().out == ""
