import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.export import (
    BASIC,
    CALIBRATED,
    LITTLE,
    batch,
    kinds,
    kinds_as_run,
    opened,
    ran,
    ranges_of,
    torch_vectors,
)
from tests.helpers.student import (
    CONFIG,
    GATED_BERT,
    GEMMA,
    MODERNBERT,
    QWEN,
    ROTARY_BERT,
    make_student,
    make_tokenizer,
)
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.external_data import external_locations
from xcompress.bundle.manifest import GRAPHS
from xcompress.errors import InputError
from xcompress.export import graph
from xcompress.export.calibrate import calibrate
from xcompress.export.config import ExportConfig
from xcompress.export.graph import (
    GraphOptions,
    Recurrence,
    TableKind,
    build,
    check_size,
    decide_folding,
    options_for,
    write_graph,
    write_lookup,
    write_ort,
)
from xcompress.export.int4 import quantize_rows
from xcompress.export.matmul import MatMulWriter, Range, matmuls
from xcompress.export.writer import OPSET, Writer
from xcompress.metrics import cosines
from xcompress.modeling.four_bits import block_size_for
from xcompress.modeling.rotary_config import RotaryBertAttention
from xcompress.modeling.student import Student, StudentConfig

PRECISIONS = ("fp32", "fp16", "int8", "int4")
LAYERS = CONFIG.unit_layers
DEPTH = CONFIG.depth
STUDENTS: dict[str, dict[str, object]] = {
    "bottleneck and head": {},
    "plain": {"bottleneck": None, "head_size": None, "position_offset": 0},
    "one layer": {"recurrences": 1, "unit_layers": 1, "layer_norm_eps": 1e-5},
    "prelude and coda": {"prelude_layers": 1, "unit_layers": 1, "recurrences": 2, "coda_layers": 2},
    "lengths kept": {"normalize": False},
    "first token": {"pooling": "cls"},
    "last token": {"pooling": "lasttoken", "normalize": False},
    "first token without head": {"pooling": "cls", "head_size": None, "normalize": False},
    "tanh": {"head_activation": "tanh"},
    "tanh of the first token": {"head_activation": "tanh", "pooling": "cls", "normalize": False},
    "distances": {"relative_buckets": 8},
    "distances without types": {"relative_buckets": 32, "type_vocab_size": 0, "bottleneck": None, "recurrences": 1},
    "without types": {"type_vocab_size": 0},
    "ModernBERT": MODERNBERT,
    "plain ModernBERT": MODERNBERT | {"bottleneck": None, "head_size": None, "pooling": "cls"},
    "Gemma": GEMMA,
    "plain Gemma": GEMMA | {"bottleneck": None, "head_size": None, "key_value_heads": None},
    "recurrent Gemma": GEMMA | {"prelude_layers": 1, "unit_layers": 2, "recurrences": 2},
    "Qwen": QWEN,
    "plain recurrent Qwen": QWEN | {"recurrences": 2, "bottleneck": None, "head_size": None, "key_value_heads": 1},
    "rotary BERT": ROTARY_BERT,
    "plain rotary BERT": ROTARY_BERT | {"bottleneck": None, "head_size": None, "pooling": "cls"},
    "gated BERT": GATED_BERT,
    "gated BERT with biases": {
        **{"rotary_bert": (RotaryBertAttention(100.0, gate="gelu"),) * 3, "recurrences": 1},
        **{"prelude_layers": 1, "bottleneck": None, "head_size": None},
    },
    "recurrent ModernBERT": MODERNBERT | {"prelude_layers": 1, "unit_layers": 2, "recurrences": 2},
}
FORMS = {
    "unrolled": GraphOptions(),
    "loop": GraphOptions("loop"),
    "folded": GraphOptions(fold=True),
    "folded loop": GraphOptions("loop", True),
}
CHANGED = (
    "this onnxruntime makes other nodes of the graph than the one it was tuned on; run benchmarks/graph_choices.py "
    "again, and then correct the counts here"
)


def small(precision: str, recurrence: graph.Recurrence = "unroll", **changes: object) -> onnx.ModelProto:
    form = options_for(precision, recurrence, False, ranges_of(**changes))
    return build(make_student(**changes), form)


def sizes(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield name, shape and bytes of what is stored."""
    for weight in model.graph.initializer:
        yield weight.name, tuple(weight.dims), len(weight.raw_data)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", STUDENTS)
def test_every_form_of_student_agrees_with_torch(kind: str, form: str) -> None:
    student = make_student(**STUDENTS[kind])
    session = opened(build(student, FORMS[form]))
    longest = student.config.max_position_embeddings - student.config.position_offset
    for shape in ((1, 1), (1, 7), (5, 33), (2, longest)):
        feeds = batch(*shape)
        tokens, sentences = torch_vectors(student, feeds)
        found = session.run(list(graph.OUTPUTS), feeds)
        kept = feeds["attention_mask"] == 1
        np.testing.assert_allclose(found[0][kept], tokens[kept], atol=1e-4)
        np.testing.assert_allclose(found[1], sentences, atol=1e-4)
        np.testing.assert_array_equal(found[0], found[2])
        assert found[1].dtype == np.float32


@pytest.mark.parametrize("precision", PRECISIONS[1:])
@pytest.mark.parametrize("kind", STUDENTS)
def test_smaller_graphs_are_close_to_torch_for_every_form_of_student(kind: str, precision: str) -> None:
    feeds, changes = batch(5, 33), STUDENTS[kind]
    expected = torch_vectors(make_student(**changes), feeds)[1]
    found = ran(small(precision, **changes), feeds)[1]
    close = {"fp16": 0.99999, "int8": 0.99, "int4": 0.95}
    assert cosines(found, expected).min() > close[precision]
    if not make_student(**changes).config.normalize:
        assert np.linalg.norm(found - expected) < 0.3 * np.linalg.norm(expected)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_last_token_is_found_whichever_side_is_padded(precision: str) -> None:
    model, feeds = small(precision, **QWEN), batch(5, 33)
    order = feeds["attention_mask"].argsort(axis=1, kind="stable")
    left = {name: np.take_along_axis(values, order, axis=1) for name, values in feeds.items()}
    np.testing.assert_allclose(ran(model, left)[1], ran(model, feeds)[1], atol=1e-5)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_attention_that_tells_tokens_apart_is_the_same(precision: str, heads: int) -> None:
    student = make_student(num_attention_heads=heads, recurrences=1, unit_layers=1)
    with torch.no_grad():
        student.unit[0].attention.weight[:64] *= 4  # queries and keys, so that weights are far from equal
        student.unit[0].attention_output.weight.mul_(4)
    ranges = calibrate(student, make_tokenizer(), CALIBRATED)
    feeds = batch(5, 33)
    found = ran(build(student, options_for(precision, "unroll", False, ranges)), feeds)[1]
    assert (1 - cosines(found, torch_vectors(student, feeds)[1])).max() < (1e-6 if precision == "fp32" else 0.003)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_unrolled_and_looped_give_equal_vectors(precision: str) -> None:
    feeds = batch(4, 19)
    unrolled, looped = small(precision), small(precision, "loop")
    for left, right in zip(ran(unrolled, feeds), ran(looped, feeds), strict=True):
        np.testing.assert_allclose(left, right, atol=2e-6)
    assert at_work(looped) < at_work(unrolled) / 3
    assert kinds(unrolled.graph)["Loop"] == 0


def at_work(model: onnx.ModelProto) -> int:
    """Count the nodes without the seven for each weight that turn 4 bits into int8 once."""
    return len(model.graph.node) - 7 * kinds(model.graph)["QLinearConv"]


def test_a_unit_applied_once_needs_no_loop() -> None:
    assert kinds(small("fp32", "loop", recurrences=1).graph)["Loop"] == 0


@pytest.mark.parametrize("recurrence", ["unroll", "loop"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_weight_is_stored_once(precision: str, recurrence: graph.Recurrence) -> None:
    student, model = make_student(), small(precision, recurrence)
    shapes = [site.weight.shape for site in matmuls(student).values()]
    expected = [(400, 16), (160 - 2, 32), *shapes]
    if precision == "int4":  # two values a byte, in blocks of 32 or 16
        blocks = [(shape[0] * shape[1], block_size_for(shape[0]) or 1) for shape in shapes]
        expected = [(400, 8), (160 - 2, 32), *((1, size // block, block // 2) for size, block in blocks)]
    stored = [shape for _, shape, _ in sizes(model) if len(shape) > 1 and shape[-1] > 1]
    assert sorted(stored) == sorted(expected)
    assert not [node for node in model.graph.node if node.op_type == "Constant"]
    for node in model.graph.node:
        for attribute in node.attribute:
            assert not attribute.HasField("t")
            assert not attribute.g.initializer


@pytest.mark.parametrize(("precision", "width"), [("fp32", 4), ("fp16", 2), ("int8", 1), ("int4", 1)])
@pytest.mark.parametrize("recurrence", ["unroll", "loop"])
def test_the_bytes_are_those_of_the_weights(precision: str, width: float, recurrence: graph.Recurrence) -> None:
    shape = {"hidden_size": 128, "intermediate_size": 512, "bottleneck": 64, "vocab_size": 3000, "head_size": None}
    student = make_student(**shape)
    model = build(student, options_for(precision, recurrence, False, wide_ranges(student)))
    matrices = sum(weight.numel() for weight in student.parameters() if weight.dim() == 2)
    vectors = sum(weight.numel() for weight in student.parameters() if weight.dim() == 1)
    channels = sum(site.weight.shape[1] for site in matmuls(student).values())
    rows = 3000 + 160
    scales = 4 * (rows + channels) if width == 1 else 0
    positions = 158 * 128
    weights = (matrices + positions) / 2 if precision == "int4" else width * matrices
    stored = sum(size for _, _, size in sizes(model))
    steps = weights / 16 if precision == "int4" else 0  # a byte for 32 weights, two for 32 of the table
    assert stored <= weights + steps + 4 * vectors + scales + 1000
    assert stored >= 0.99 * weights
    assert model.ByteSize() <= stored + 300 * sum(kinds(model.graph).values())


def test_at_real_widths_int8_takes_little_more_than_a_byte_for_a_parameter() -> None:
    shape = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536, "bottleneck": 128}
    student = make_student(**shape, vocab_size=6000, head_size=384, unit_layers=1)
    for recurrence in ("unroll", "loop"):
        model = build(student, options_for("int8", recurrence, False, wide_ranges(student)))
        assert model.ByteSize() <= 1.03 * sum(weight.numel() for weight in student.parameters())


def wide_ranges(student: Student) -> dict[str, Range]:
    """Make ranges up, where only sizes matter."""
    ones = {name: np.ones(len(site.weight), dtype=np.float32) for name, site in matmuls(student).items()}
    return {name: Range(-3 * one, 3 * one) for name, one in ones.items()}


@pytest.mark.parametrize("recurrence", ["unroll", "loop"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_graphs_are_well_formed(precision: str, recurrence: graph.Recurrence) -> None:
    model = small(precision, recurrence)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == list(graph.INPUTS)
    assert [value.name for value in model.graph.output] == list(graph.OUTPUTS)
    assert [_shape(value) for value in model.graph.input] == [["batch", "length"]] * 2
    tokens, sentence, again = map(_shape, model.graph.output)
    assert tokens == again == ["batch", "length", 24]
    assert sentence == ["batch", 24]
    versions = {entry.domain: entry.version for entry in model.opset_import}
    assert versions == ({"": OPSET, "com.microsoft": 1} if precision.startswith("int") else {"": OPSET})
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)


def _shape(value: onnx.ValueInfoProto) -> list[str | int]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_token_vectors_in_front_of_an_activated_head_have_the_encoders_width() -> None:
    tokens, sentence, _ = map(_shape, small("fp32", head_activation="tanh").graph.output)
    assert (tokens[-1], sentence[-1]) == (32, 24)


def test_residuals_are_sums() -> None:
    model = small("fp32")
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    before = [makers[node.input[0]] for node in model.graph.node if node.op_type == "LayerNormalization"]
    assert before == ["Sum"] * (1 + 2 * DEPTH)


@pytest.mark.parametrize("level", [None, BASIC], ids=["all", "basic"])
def test_nodes_of_the_float32_graph_as_onnxruntime_runs_it(level: object) -> None:
    found = kinds_as_run(small("fp32"), *([level] if level else []))
    wanted = {
        "MatMul": 2 + 6 * DEPTH + 1,  # projection and head, four products and two of the attention, pooling
        "Sum": 1 + 2 * DEPTH,
        "LayerNormalization": 1 + 2 * DEPTH,
        "Softmax": DEPTH,
        "BiasGelu": 0 if level else DEPTH,
        "Gelu": DEPTH if level else 0,
        "SkipLayerNormalization": 0,
        "EmbedLayerNormalization": 0,
        "Attention": 0,
        "MultiHeadAttention": 0,
        "Cast": 2,
    }
    assert {kind: found[kind] for kind in wanted} == wanted, CHANGED


@pytest.mark.parametrize("level", [None, BASIC], ids=["all", "basic"])
@pytest.mark.parametrize(("precision", "tables"), [("int8", 4), ("int4", 2)])
@pytest.mark.parametrize(("recurrence", "depth"), [("unroll", DEPTH), ("loop", LAYERS)])
def test_nodes_of_the_quantised_graphs_as_onnxruntime_runs_them(
    precision: str, tables: int, recurrence: graph.Recurrence, depth: int, level: object
) -> None:
    found = kinds_as_run(small(precision, recurrence), *([level] if level else []))
    wanted = {
        "QAttention": depth,
        "MatMulIntegerToFloat": 2 + 3 * depth,
        "QuantizeLinear": 2 + 4 * depth,
        "MatMul": 1,  # pooling
        "Sum": 1 + 2 * depth,
        "LayerNormalization": 1 + 2 * depth,
        "Gelu": depth,
        "ReduceMax": depth,
        "Gather": tables,
        "QLinearConv": 0,
        "GatherBlockQuantized": int(precision == "int4"),
        "Loop": int(recurrence == "loop"),
        "DequantizeLinear": 0,
        "DynamicQuantizeLinear": 0,
        "SkipLayerNormalization": 0,
        "Softmax": 0,
    }
    assert {kind: found[kind] for kind in wanted} == wanted, CHANGED


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sentence_does_not_depend_on_its_batch(precision: str) -> None:
    session, feeds = opened(small(precision)), batch(6, 40)
    among = session.run(["sentence_embedding"], feeds)[0]
    for row, length in enumerate(feeds["attention_mask"].sum(1)):
        alone = session.run(
            ["sentence_embedding"], {name: values[row : row + 1, :length] for name, values in feeds.items()}
        )
        np.testing.assert_allclose(alone[0][0], among[row], atol=1e-5)


@pytest.mark.parametrize(("precision", "splits"), [("fp32", True), ("fp16", False), ("int8", False), ("int4", False)])
def test_a_graph_too_large_for_one_file_has_its_weights_beside_it(
    precision: str, splits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "MOST_BYTES", LITTLE)
    file, feeds = tmp_path / "onnx" / "model.onnx", batch(3, 9)
    form = options_for(precision, "loop", False, ranges_of())
    assert write_graph(make_student(), form, file, external=False) == splits
    assert external_locations(file) == ({"model.onnx_data"} if splits else set())
    found = open_on_cpu(file).run(None, feeds)
    for left, right in zip(found, ran(small(precision, "loop"), feeds), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (ExportConfig(precision="fp32"), ""),
        (ExportConfig(precision="fp32", target="openvino"), ""),
        (ExportConfig(precision="fp32", target="mobile", ort=False), ""),
        (ExportConfig(target="mobile"), ""),
        (ExportConfig(precision="int4", ort=True), ""),
        (ExportConfig(precision="fp16", target="wasm"), ""),
        (ExportConfig(target="litert"), ""),
        (ExportConfig(precision="fp32", target="mobile"), "in fp32, onnxruntime's own format holds at most"),
        (ExportConfig(precision="fp16", target="mobile"), r"use --precision int8, .* or leave .* out \(--no-ort\)"),
        (ExportConfig(precision="fp32", target="wasm"), "a browser loads at most .* or choose another --target"),
        (ExportConfig(precision="fp32", target="litert"), "LiteRT's format holds at most"),
    ],
)
def test_only_where_weights_cannot_lie_beside_the_graph_it_may_be_too_large(
    config: ExportConfig, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph, "MOST_BYTES", LITTLE)
    with pytest.raises(InputError, match=problem) if problem else nullcontext():
        check_size(make_student(), config, fold=False)
    monkeypatch.setattr(graph, "MOST_BYTES", 1.5 * LITTLE)
    check_size(make_student(), config, fold=False)


def test_a_folded_bottleneck_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST_BYTES", 4 * sum(weight.numel() for weight in make_student().parameters()))
    check_size(make_student(), ExportConfig(precision="fp32", target="mobile"), fold=False)
    with pytest.raises(InputError, match="trim the vocabulary"):
        check_size(make_student(), ExportConfig(precision="fp32", target="mobile"), fold=True)


def test_weights_beside_the_graph_are_read_by_all_who_read_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the current folder has: here, a bundle's own folder of graphs."""
    file = tmp_path / "onnx" / "model.onnx"
    for _ in range(2):
        write_graph(make_student(), GraphOptions(), file, external=True)
        monkeypatch.chdir(file.parent)
    assert file.stat().st_mode == file.with_name("model.onnx_data").stat().st_mode


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_graph_names_no_place_and_no_machine(precision: str) -> None:
    model = small(precision)
    for place in (Path(graph.__file__).parents[2], Path.home(), Path.cwd(), Path(sys.prefix)):
        assert str(place).encode() not in model.SerializeToString()
    assert (model.producer_name, model.doc_string, len(model.metadata_props)) == ("xcompress", "", 0)
    assert not [node.name for node in model.graph.node if node.doc_string or node.metadata_props]


def test_building_twice_gives_the_same_bytes() -> None:
    assert small("int8").SerializeToString() == small("int8").SerializeToString()


LARGE = StudentConfig(vocab_size=50_000, bottleneck=128)


def test_forms_of_the_precisions() -> None:
    assert options_for("fp32", "loop", True, {}) == GraphOptions("loop", True)
    assert options_for("fp16", "unroll", False, {}) == GraphOptions("unroll", False, "fp16", MatMulWriter(half=True))
    ranges = ranges_of()
    products = MatMulWriter(None, ranges=ranges)
    assert options_for("int8", "loop", False, ranges) == GraphOptions("loop", False, "int8", products)
    assert options_for("int8", "loop", False, ranges, "int4") == GraphOptions("loop", False, "int4", products)
    assert options_for("int4", "loop", False, ranges) == GraphOptions("loop", False, "int4", replace(products, bits=4))
    assert options_for("int4", "loop", False, ranges, "int8") == GraphOptions(
        "loop", False, "int8", replace(products, bits=4)
    )


def test_other_levels_change_nothing_else() -> None:
    form = options_for("int4", "loop", True, ranges_of())
    changed = form.with_levels({"head": "fp32"})
    assert changed.matmul_writer.levels == {"head": "fp32"}
    assert changed.with_levels({}) == form


@pytest.mark.parametrize(
    ("config", "asked", "answer"),
    [
        (CONFIG, "auto", True),
        (LARGE, "auto", False),
        (LARGE, "fold", True),
        (CONFIG, "keep", False),
        (StudentConfig(vocab_size=400), "fold", False),
        (StudentConfig(vocab_size=400), "auto", False),
    ],
)
def test_the_bottleneck_is_folded_where_that_costs_little_or_is_asked_for(
    config: StudentConfig, asked: str, answer: bool
) -> None:
    assert decide_folding(config, asked)[0] is answer


def test_why_the_bottleneck_is_folded_is_told_in_figures() -> None:
    # 50,000 x (384 - 128) - 128 x 384 numbers of 4 bytes, and 4 products in each of 12 layers
    cost = "folding adds 51.0 MB in float32 and saves one product of 49"
    assert decide_folding(LARGE, "auto")[1] == cost
    assert decide_folding(LARGE, "fold")[1] == f"asked for; {cost}"
    assert decide_folding(StudentConfig(vocab_size=400), "auto")[1] == "no bottleneck"


@pytest.mark.parametrize("recurrence", ["unroll", "loop"])
@pytest.mark.parametrize("precision", GRAPHS)
def test_weights_beside_the_graph_give_the_same_vectors(precision: str, recurrence: Recurrence, tmp_path: Path) -> None:
    form = options_for(precision, recurrence, False, ranges_of())
    file, feeds = tmp_path / "onnx" / "model.onnx", batch(3, 9)
    found = []
    for external in (False, True):
        write_graph(make_student(), form, file, external=external)
        found.append(open_on_cpu(file).run(None, feeds))
    for left, right in zip(*found, strict=True):
        np.testing.assert_array_equal(left, right)
    assert sorted(path.name for path in file.parent.iterdir()) == ["model.onnx", "model.onnx_data"]
    assert external_locations(file) == {"model.onnx_data"}
    onnx.checker.check_model(str(file))


def test_the_large_weights_lie_beside_the_graph_and_the_small_ones_in_it(tmp_path: Path) -> None:
    file = tmp_path / "onnx" / "model.onnx"
    write_graph(make_student(), GraphOptions(), file, external=False)
    whole = file.stat().st_size
    write_graph(make_student(), GraphOptions(), file, external=True)
    beside = file.with_name("model.onnx_data").stat().st_size
    assert beside > 3 * 30_040 < whole
    assert file.stat().st_size < whole / 3
    stored = onnx.load(file, load_external_data=False).graph.initializer
    for weight in stored:
        assert weight.HasField("raw_data") == (not weight.external_data)
        assert bool(weight.external_data) == (np.prod(weight.dims) * 4 >= 1024)


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("precision", [*(name for name in GRAPHS if name != "int4"), "int4"])
def test_ort_format_needs_no_other_file(precision: str, external: bool, tmp_path: Path) -> None:
    file, feeds = tmp_path / "onnx" / "model.onnx", batch(3, 9)
    write_graph(make_student(), options_for(precision, "loop", False, ranges_of()), file, external=external)
    ort = write_ort(file)
    assert ort == file.with_suffix(".ort")
    expected = open_on_cpu(file).run(["sentence_embedding"], feeds)[0]
    for left_over in file.parent.glob("model.onnx*"):
        left_over.unlink()
    session = onnxruntime.InferenceSession(str(ort), providers=["CPUExecutionProvider"])
    found = session.run(["sentence_embedding"], feeds)[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert cosines(found, torch_vectors(make_student(), feeds)[1]).min() > 0.97
    assert str(tmp_path).encode() not in ort.read_bytes()


ROWS = 37
WIDTHS = (16, 32, 33, 40, 96)
BLOCK_OF = {16: 16, 32: 32, 48: 16, 96: 32}
"""Components that share a scale in an int4 row, by the row's width."""
IDS = np.array([[0, 36, 5], [7, 7, 1]])
KINDS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8, "int4": TensorProto.UINT8}


def table(width: int) -> NDArray[np.float32]:
    """Make rows of very different lengths; row 7 is all zeros, row 1 has a single value."""
    generator = np.random.default_rng(width)
    found = generator.normal(size=(ROWS, width)) * generator.uniform(0.01, 10, (ROWS, 1))
    found[[7, 1]] = 0
    found[1, -1] = -0.25
    return found.astype(np.float32)


def looked_up(rows: NDArray[np.float32], kind: TableKind) -> tuple[NDArray[np.float32], dict[str, object]]:
    """Look IDS up; return the rows, and what is stored."""
    writer = Writer()
    writer.node("Identity", write_lookup(writer, "table", rows, "ids", kind), name="found")
    model = writer.model(
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [None, None])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [None, None, rows.shape[1]])],
    )
    return ran(model, {"ids": IDS})[0], {tensor.name: tensor for tensor in model.graph.initializer}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_only_rows_of_the_kind_are_stored_and_they_come_back_as_float32(kind: TableKind, width: int) -> None:
    found, stored = looked_up(table(width), kind)
    assert (found.shape, found.dtype) == ((2, 3, width), np.float32)
    rows = next(iter(stored.values()))
    if kind == "int4" and width in BLOCK_OF:
        assert (rows.data_type, list(rows.dims)) == (TensorProto.UINT8, [ROWS, width // 2])
    else:
        own = TensorProto.INT8 if kind == "int4" else KINDS[kind]
        assert (rows.data_type, list(rows.dims)) == (own, [ROWS, width])
    spread = np.abs(table(width)).max(1)[IDS][..., None]
    bound = {"fp32": 0, "fp16": 1 / 1024, "int8": 0.51 / 127, "int4": 1.01 / 8}[kind]
    assert (np.abs(found - table(width)[IDS]) <= bound * spread).all()
    if kind != "fp32":
        assert (found != table(width)[IDS]).any()


def test_rows_of_zeros_stay_zeros() -> None:
    for kind in KINDS:
        assert not looked_up(table(40), kind)[0][1, 0].any()
        assert np.isfinite(looked_up(np.zeros((ROWS, 40), np.float32), kind)[0]).all()


def test_int8_rows_have_a_scale_each_and_are_off_by_half_a_step() -> None:
    rows = table(40)
    found, stored = looked_up(rows, "int8")
    values, scales = (numpy_helper.to_array(stored[f"table.{part}"]) for part in ("rows", "scales"))
    assert (values.shape, scales.shape, scales.dtype) == ((ROWS, 40), (ROWS, 1), np.float32)
    assert (np.abs(values * scales - rows) <= 0.501 * scales).all()
    np.testing.assert_array_equal(np.abs(values.astype(int)).max(1), np.where(np.arange(ROWS) == 7, 0, 127))
    np.testing.assert_array_equal(found, (values * scales)[IDS])


@pytest.mark.parametrize("width", BLOCK_OF)
def test_int4_values_are_off_by_half_a_step_where_seven_steps_reach(width: int) -> None:
    rows = table(width)
    values, scales = quantize_rows(rows, BLOCK_OF[width])
    assert (values.shape, scales.shape) == ((ROWS, width), (ROWS, width // BLOCK_OF[width]))
    assert (values.dtype, scales.dtype) == (np.int8, np.float16)
    assert values.min() == -8
    assert values.max() <= 7
    steps = np.repeat(scales.astype(np.float32), BLOCK_OF[width], 1)
    off = np.abs(values * steps - rows)
    reached = rows / np.where(steps == 0, 1, steps) <= 7.5
    assert reached.mean() > 0.9
    assert (off[reached] <= 0.51 * np.abs(steps)[reached]).all()
    assert (off <= 1.01 * np.abs(steps)).all()
    assert not values[7].any()


@pytest.mark.parametrize("width", BLOCK_OF)
def test_the_looked_up_int4_rows_are_values_times_scales(width: int) -> None:
    rows = table(width)
    values, scales = quantize_rows(rows, BLOCK_OF[width])
    exact = values * np.repeat(scales.astype(np.float32), BLOCK_OF[width], 1)
    found, stored = looked_up(rows, "int4")
    np.testing.assert_array_equal(found, exact.astype(np.float16).astype(np.float32)[IDS])
    assert len(stored["table.rows"].raw_data) == ROWS * width // 2


def test_the_extreme_value_of_a_block_is_kept_almost_exactly() -> None:
    rows = table(96)
    values, scales = quantize_rows(rows, 32)
    blocks = np.abs(rows.reshape(ROWS, -1, 32))
    np.testing.assert_allclose(8 * np.abs(scales.astype(np.float32)), blocks.max(-1), rtol=1e-3)
    assert (values.reshape(ROWS, -1, 32).min(-1)[blocks.max(-1) > 0] == -8).all()


def test_fp16_rows_are_the_nearest_ones() -> None:
    np.testing.assert_array_equal(looked_up(table(33), "fp16")[0], table(33).astype(np.float16).astype(np.float32)[IDS])
