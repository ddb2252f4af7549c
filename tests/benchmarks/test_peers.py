"""benchmarks/peers.py gives every encoder the texts that it expects."""

from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.helpers.student import SENTENCES, make_tokenizer, save_student


@pytest.fixture
def optimum(tmp_path: Path) -> Path:
    """Make a folder as Optimum writes it, with a graph whose token vectors are the token ids."""
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["n", "t"])
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["floats", "last"], ["tokens"]),
    ]
    last = helper.make_tensor("last", TensorProto.INT64, [1], [2])
    output = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["n", "t", 1])
    graph = helper.make_graph(nodes, "ids", [ids], [output], [last])
    folder = tmp_path / "optimum-int8"
    folder.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model_quantized.onnx")
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def test_optimums_graph_reads_the_prefix_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, optimum: Path
) -> None:
    peers, peer_models = import_module("peers"), import_module("peer_models")
    for name in (peer_models.OPTIMUM_FOLDER, peer_models.OPTIMUM_PREFIX):
        monkeypatch.setenv(name, "")  # put back what the script sets
    monkeypatch.setattr(peers, "export", lambda source, folder, **options: folder)
    monkeypatch.setattr(peers, "quantize_with_optimum", lambda model, out: optimum)
    monkeypatch.setattr(peers, "_installed", lambda module, package: module == "optimum")
    save_student(tmp_path / "run" / "reference", prefix="query: ")
    assert "assistant, ONNX int8 by Optimum=python:peer_models:OptimumInt8" in list(
        peers._prepare_peers(tmp_path / "run", tmp_path)
    )
    with_prefix = peer_models.OptimumInt8().encode(SENTENCES)
    monkeypatch.setenv(peer_models.OPTIMUM_PREFIX, "")
    plain = peer_models.OptimumInt8()
    np.testing.assert_array_equal(with_prefix, plain.encode([f"query: {text}" for text in SENTENCES]))
    assert not np.array_equal(with_prefix, plain.encode(SENTENCES))
