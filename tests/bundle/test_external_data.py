from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from xcompress.bundle import external_data
from xcompress.bundle.external_data import external_locations
from xcompress.errors import InputError
from xcompress.export.graph import write_ort


def outside(location: str, name: str = "weight") -> TensorProto:
    """Make a tensor of four numbers whose values lie in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("offset", "0"), ("location", location), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph(initializers: list[TensorProto], nodes: list[onnx.NodeProto] | None = None) -> onnx.GraphProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    return helper.make_graph(
        nodes or [helper.make_node("Add", ["x", "weight"], ["y"])], "g", values[:1], values[1:], initializers
    )


def model(kind: str) -> onnx.ModelProto:
    """Put a tensor in a.data in one of the places where a model may have one, beside ordinary weights."""
    plain = numpy_helper.from_array(numpy_helper.to_array(helper.make_tensor("p", TensorProto.FLOAT, [4], [1.0] * 4)))
    tensor = outside("a.data")
    constant = helper.make_node("Constant", [], ["weight"], value=tensor)
    inner = graph([tensor])
    sparse = helper.make_sparse_tensor(
        outside("a.data"), helper.make_tensor("i", TensorProto.INT64, [4], range(4)), [9]
    )
    places = {
        "weight": graph([plain, tensor]),
        "constant": graph([plain], [constant]),
        "subgraph": graph([plain], [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=graph([]))]),
        "sparse": graph([plain]),
        "none": graph([plain]),
    }
    made = helper.make_model(places[kind], opset_imports=[helper.make_opsetid("", 20)])
    if kind == "sparse":
        made.graph.sparse_initializer.append(sparse)
    return made


@pytest.mark.parametrize("kind", ["weight", "constant", "subgraph", "sparse", "none"])
def test_a_location_is_found_wherever_a_tensor_may_be(tmp_path: Path, kind: str) -> None:
    onnx.save(model(kind), tmp_path / "m.onnx")
    assert external_locations(tmp_path / "m.onnx") == (set() if kind == "none" else {"a.data"})


@pytest.mark.parametrize("depth", [1, 30])
def test_functions_are_refused(tmp_path: Path, depth: int) -> None:
    """Each of 30 calls the next one twice, so that the last one is called 2^30 times."""
    made = model("none")
    for number in range(depth):
        called, domain = ("Identity", "") if number + 1 == depth else (f"f{number + 1}", "mine")
        nodes = [helper.make_node(called, [x], [y], domain=domain) for x, y in (("x", "t"), ("t", "y"))]
        made.functions.append(helper.make_function("mine", f"f{number}", ["x"], ["y"], nodes, made.opset_import))
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"m\.onnx: defines functions, which no export writes; do not use it"):
        external_locations(tmp_path / "m.onnx")


def looping(*numbers: TensorProto, inputs: Sequence[str] = ("turns", "", "x"), inside: bool = False) -> onnx.ModelProto:
    """Make a graph of a Loop, which may be in a branch of an If."""
    kinds = {"turn": TensorProto.INT64, "again": TensorProto.BOOL, "more": TensorProto.BOOL}
    values = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in kinds.items()}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("before", "after"))
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in (("again", "more"), ("before", "after"))]
    body = helper.make_graph(nodes, "b", [values["turn"], values["again"], x], [values["more"], y])
    outer = graph(list(numbers), [helper.make_node("Loop", inputs, ["y"], body=body)])
    if inside:
        branches = {"then_branch": outer, "else_branch": outer}
        outer = graph(list(numbers), [helper.make_node("If", ["x"], ["y"], **branches)])
    return helper.make_model(outer, opset_imports=[helper.make_opsetid("", 20)])


def replaced(made: onnx.ModelProto) -> onnx.ModelProto:
    """Add a constant of the same name as a weight, in place of which onnxruntime takes it."""
    made.graph.node.append(helper.make_node("Constant", [], ["turns"], value=number(10**15)))
    return made


def number(value: int, name: str = "turns") -> TensorProto:
    return numpy_helper.from_array(np.int64(value), name)


def test_a_loop_of_known_length_is_read(tmp_path: Path) -> None:
    onnx.save(looping(number(5), number(10**6, "other")), tmp_path / "m.onnx")
    assert external_locations(tmp_path / "m.onnx") == set()


@pytest.mark.parametrize(
    "made",
    {
        "no number": looping(number(5), inputs=("", "", "x")),
        "no inputs": looping(number(5), inputs=()),
        "computed": looping(number(5), inputs=("x", "", "x")),
        "large": looping(number(1001)),
        "negative": looping(number(-1)),
        "named twice": looping(number(1001), number(5)),
        "replaced": replaced(looping(number(5))),
        "in another file": looping(
            TensorProto.FromString(number(5).SerializeToString() + outside("a").SerializeToString())
        ),
    }.items(),
    ids=lambda made: made[0],
)
def test_a_loop_that_may_never_end_is_refused(tmp_path: Path, made: tuple[str, onnx.ModelProto]) -> None:
    onnx.save(made[1], tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"m\.onnx: has a loop of over 1,000 turns, or of as many as it computes, .*; do"
    ):
        external_locations(tmp_path / "m.onnx")


def test_a_loop_inside_another_node_is_refused(tmp_path: Path) -> None:
    onnx.save(looping(number(5), inside=True), tmp_path / "m.onnx")
    with pytest.raises(
        InputError, match=r"m\.onnx: has a graph in a graph in a graph, or .*, which no export writes; do not"
    ):
        external_locations(tmp_path / "m.onnx")


def test_a_tag_that_protobuf_cuts_to_32_bits_is_refused(tmp_path: Path) -> None:
    """Other readers would see the field that its lower bits name: here 13, the entries of external data."""
    onnx.save(model("weight"), tmp_path / "m.onnx")
    content = (tmp_path / "m.onnx").read_bytes()
    entry = b"\x0a\x08location"
    at = content.index(entry) - 2
    assert content[at : at + 1] == b"\x6a"
    for longer in (b"\xea\x80\x80\x80\x10", b"\x02"):
        (tmp_path / "m.onnx").write_bytes(content[:at] + longer + content[at + 1 :])
        with pytest.raises(InputError, match="not an ONNX graph"):
            external_locations(tmp_path / "m.onnx")


def test_external_files_that_onnx_writes_are_found(tmp_path: Path) -> None:
    weight = helper.make_tensor("weight", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    onnx.save_model(
        helper.make_model(graph([numpy_helper.from_array(numpy_helper.to_array(weight), "weight")])),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
    )
    assert external_locations(tmp_path / "m.onnx") == {"m.onnx.data"}


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\x0b", b"\x3a\xff\xff\xff\xff\x0f", b"\x3a", b"\x80" * 20, b"# no graph\n"], ids=repr
)
def test_a_file_that_is_no_graph_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(InputError, match=r"m\.onnx: not an ONNX graph"):
        external_locations(tmp_path / "m.onnx")


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x08\x00"])  # an empty node, a number
def test_countless_fields_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: bytes) -> None:
    """Each takes two bytes in the file, and 200 in memory where it is a message."""
    monkeypatch.setattr(external_data, "_MOST_FIELDS", 61)
    file = tmp_path / "m.onnx"
    file.write_bytes(b"\x3a\x78" + 60 * field)
    assert external_locations(file) == set()
    file.write_bytes(b"\x3a\x7a" + 61 * field)
    with pytest.raises(InputError, match=r"m\.onnx: has over 61 fields, .*; do not use it"):
        external_locations(file)


def test_a_missing_graph_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"m\.onnx: cannot be read"):
        external_locations(tmp_path / "m.onnx")


def in_ort_format(made: onnx.ModelProto, folder: Path) -> Path:
    made.ir_version = 10  # onnxruntime may not read the newest one of onnx
    onnx.save(made, folder / "m.onnx")
    return write_ort(folder / "m.onnx")


def test_a_loop_of_known_length_in_ort_format_is_read(tmp_path: Path) -> None:
    assert external_locations(in_ort_format(looping(number(5)), tmp_path)) == set()


@pytest.mark.parametrize("made", [looping(number(1001)), looping(inputs=("", "", "x"))], ids=["large", "no number"])
def test_a_loop_in_ort_format_that_may_never_end_is_refused(tmp_path: Path, made: onnx.ModelProto) -> None:
    with pytest.raises(InputError, match=r"m\.ort: has a loop of over 1,000 turns, .*; do not use it"):
        external_locations(in_ort_format(made, tmp_path))


@pytest.mark.parametrize("suffix", ["onnx", "ort"])
def test_a_scan_is_refused_as_a_gigabyte_of_it_takes_hours(tmp_path: Path, suffix: str) -> None:
    element = helper.make_tensor_value_info("element", TensorProto.FLOAT, [])
    state = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in ("before", "after")]
    body = helper.make_graph(
        [helper.make_node("Add", ["before", "element"], ["after"])], "b", [state[0], element], state[1:]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Scan", ["sum", "x"], ["y"], body=body, num_scan_inputs=1),
    ]
    outer = graph([], nodes)
    outer.output[0].type.tensor_type.shape.ClearField("dim")
    made = in_ort_format(helper.make_model(outer, opset_imports=[helper.make_opsetid("", 20)]), tmp_path)
    with pytest.raises(
        InputError, match=rf"m\.{suffix}: has a graph in .* in another node than Loop or If, .*; do not use it"
    ):
        external_locations(made.with_suffix(f".{suffix}"))


@given(at=st.integers(min_value=0), noise=st.binary(max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_in_ort_format_is_refused_or_read_over(tmp_path: Path, at: int, noise: bytes) -> None:
    if not (tmp_path / "m.ort").exists():
        in_ort_format(looping(number(5)), tmp_path)
    content = (tmp_path / "m.ort").read_bytes()
    at %= len(content)
    (tmp_path / "damaged.ort").write_bytes(content[:at] + noise + content[at + len(noise) :])
    with suppress(InputError):
        external_locations(tmp_path / "damaged.ort")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(end=st.integers(0, 10_000), at=st.integers(0, 10_000), byte=st.integers(0, 255), noise=st.binary(max_size=40))
def test_damage_is_refused_or_read_over(tmp_path: Path, end: int, at: int, byte: int, noise: bytes) -> None:
    content = bytearray(model("subgraph").SerializeToString() + noise)
    content[at % len(content)] = byte
    (tmp_path / "m.onnx").write_bytes(content[: end % len(content) or None])
    try:
        found = external_locations(tmp_path / "m.onnx")
    except InputError:
        return
    assert len(found) <= 1
