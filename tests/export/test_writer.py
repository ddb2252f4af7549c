import weakref

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from xcompress.export.writer import CONTRIB, OPSET, Writer


def value(name: str, kind: int = TensorProto.FLOAT, shape: tuple[int, ...] = (2,)) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def test_a_constant_is_stored_once_whoever_uses_it() -> None:
    writer = Writer()
    inner = Writer(writer)
    names = [place.constant("weight", np.ones(3, dtype=np.float32)) for place in (writer, inner, Writer(inner))]
    assert names == ["weight"] * 3
    assert (writer.has("weight"), inner.has("weight"), writer.has("other")) == (True, True, False)
    model = writer.model([], [])
    assert [tensor.name for tensor in model.graph.initializer] == ["weight"]
    assert not inner.body([], []).initializer


def test_a_writer_with_its_constants_goes_as_soon_as_nobody_has_it() -> None:
    writer = Writer()
    left = weakref.ref(writer)
    Writer(writer).constant("weight", np.ones(3, dtype=np.float32))
    del writer
    assert left() is None


def test_numbers_are_one_constant_for_each_value_and_never_another_one() -> None:
    writer = Writer()
    values = [1.1846875, 1.18469, 1e-9, 1e-12, -1e4, 127, 127]
    names = [writer.number(number) for number in values]
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in writer.model([], []).graph.initializer}
    assert len(stored) == 6
    for name, number in zip(names, values, strict=True):
        assert stored[name] == np.float32(number)
        assert stored[name].shape == ()


def test_lists_of_integers() -> None:
    writer = Writer()
    assert writer.integers(0, 0, 12) == writer.integers(0, 0, 12) != writer.integers(0, 0, -12)
    stored = writer.model([], []).graph.initializer
    assert [numpy_helper.to_array(tensor).tolist() for tensor in stored] == [[0, 0, 12], [0, 0, -12]]


def test_names_are_new_in_the_body_of_a_loop_too() -> None:
    writer = Writer()
    inner = Writer(writer)
    names = [writer.node("Neg", "x"), inner.node("Neg", "x"), writer.node("Neg", "x"), inner.node("Abs", "x")]
    assert len(set(names)) == 4
    assert [node.output[0] for node in inner.nodes] == [names[1], names[3]]
    assert [node.name for node in writer.nodes] == [names[0], names[2]]


def test_only_operators_in_use_ask_for_their_domain() -> None:
    writer = Writer()
    writer.node("Identity", "x", name="y")
    assert {entry.domain: entry.version for entry in writer.model([], []).opset_import} == {"": OPSET}
    body = Writer(writer)
    body.node("QAttention", "x", domain=CONTRIB, num_heads=2)
    writer.node("Loop", "n", "", "y", body=body.body([], []))
    assert {entry.domain for entry in writer.model([], []).opset_import} == {"", CONTRIB}


def test_a_written_graph_is_valid() -> None:
    writer = Writer()
    parts = writer.nodes_of("Split", ["x"], ["left", "right"], axis=0, num_outputs=2)
    writer.node("Concat", *reversed(parts), name="y", axis=0)
    model = writer.model([value("x")], [value("y")])
    onnx.checker.check_model(model, full_check=True)
    found = ReferenceEvaluator(model).run(None, {"x": np.array([1, 2], dtype=np.float32)})
    assert found[0].tolist() == [2, 1]
