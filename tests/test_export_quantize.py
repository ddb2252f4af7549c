import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_student import bundle

from xcompress.errors import GateError
from xcompress.export.quantize import check_quantized, quantize_tables


@pytest.fixture(scope="module")
def plain() -> onnx.ModelProto:
    return onnx.load(bundle() / "onnx" / "model.onnx")


@pytest.fixture(scope="module")
def small() -> onnx.ModelProto:
    return onnx.load(bundle() / "onnx" / "model_quantized.onnx")


def lookup(table: np.ndarray) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("Slice", ["table", "start", "end"], ["first"]),
    ]
    inputs = [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, table.shape[1]]) for name in ("words", "first")
    ]
    constants = [numpy_helper.from_array(table, "table")]
    constants += [
        numpy_helper.from_array(np.array([number], dtype=np.int64), name) for name, number in (("start", 0), ("end", 3))
    ]
    graph = helper.make_graph(nodes, "lookup", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_each_row_of_a_table_has_its_own_scale() -> None:
    table = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    table *= np.logspace(-6, 3, 64, dtype=np.float32)[:, None]
    table[5] = 0
    model = lookup(table)
    quantize_tables(model)
    onnx.checker.check_model(model)
    ids = np.array([63, 0, 5, 7], dtype=np.int64)
    words, first = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"ids": ids})
    half_step = np.abs(table).max(1, keepdims=True) / 127 / 2
    assert (np.abs(words - table[ids]) <= half_step[ids] * 1.001).all()
    assert (np.abs(first - table[:3]) <= half_step[:3] * 1.001).all()


def test_the_float_table_is_gone_and_the_rows_are_looked_up_before_they_are_multiplied() -> None:
    model = lookup(np.ones((64, 32), dtype=np.float32))
    quantize_tables(model)
    kinds = {weight.name: weight.data_type for weight in model.graph.initializer}
    assert "table" not in kinds
    assert kinds["table_rows"] == TensorProto.INT8
    assert [node.op_type for node in model.graph.node][:4] == ["Gather", "Gather", "Cast", "Mul"]


def test_small_tables_stay() -> None:
    model = lookup(np.ones((4, 8), dtype=np.float32))
    quantize_tables(model)
    assert [node.op_type for node in model.graph.node] == ["Gather", "Slice"]


def test_every_product_of_a_weight_is_int8(plain: onnx.ModelProto, small: onnx.ModelProto) -> None:
    matrices = {weight.name for weight in plain.graph.initializer if len(weight.dims) == 2}
    uses = sum(node.op_type == "MatMul" and node.input[1] in matrices for node in plain.graph.node)
    assert sum(node.op_type == "MatMulInteger" for node in small.graph.node) == uses == 26
    int8 = [weight for weight in small.graph.initializer if weight.data_type == TensorProto.INT8]
    assert sum(len(weight.dims) == 2 for weight in int8) == len(matrices) == 12


def test_weights_have_a_scale_per_channel(small: onnx.ModelProto) -> None:
    scales = {weight.name: list(weight.dims) for weight in small.graph.initializer if weight.name.endswith("_scale")}
    assert scales["unit.0.intermediate_scale"] == [64]
    assert scales["unit.1.attention_scale"] == [96]


def test_an_unquantised_graph_is_refused(plain: onnx.ModelProto) -> None:
    with pytest.raises(GateError, match=r"0 of \d+ products became int8"):
        check_quantized(plain, plain)


def test_a_copied_weight_is_refused(plain: onnx.ModelProto, small: onnx.ModelProto) -> None:
    copied = onnx.ModelProto()
    copied.CopyFrom(small)
    rows = next(weight for weight in small.graph.initializer if weight.name == "word_rows")
    copied.graph.initializer.add().CopyFrom(rows)
    with pytest.raises(GateError, match="copied"):
        check_quantized(copied, plain)


def test_only_used_operator_sets_are_declared(small: onnx.ModelProto) -> None:
    assert {opset.domain for opset in small.opset_import} == {node.domain for node in small.graph.node}
