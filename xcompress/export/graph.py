"""Build the ONNX graph of a student, and write it to files."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.external_data_helper import set_external_data
from torch import nn

from xcompress.bundle.engines import write_optimised
from xcompress.bundle.manifest import FLOAT, OUTPUT
from xcompress.errors import InputError
from xcompress.export import LEAST_NORM, MASKED_SCORE
from xcompress.export.config import Bottleneck, ExportConfig, Operators, Recurrence, Table
from xcompress.export.int4 import Floats, pack_int4, quantize_rows
from xcompress.export.layers import LayerWriter, Mask, write_norm, write_rotary
from xcompress.export.matmul import Level, MatMulWriter, Range, floats, matmuls
from xcompress.export.writer import CONTRIB, Writer
from xcompress.files import megabytes
from xcompress.modeling.four_bits import block_size_for
from xcompress.modeling.student import Student, StudentConfig

INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("token_embeddings", OUTPUT, "last_hidden_state")
"""The third is the first again: some loaders look up the token vectors by that name."""
MOST_BYTES = 2_000_000_000
"""A protobuf message holds at most 2 GiB, and so does a flatbuffer."""
_EXTERNAL_BYTES = 1024
"""With external data, smaller weights stay in the graph."""
_FOLD_BYTES = 1_000_000
"""Fold a bottleneck if that adds fewer bytes of float32 than this; it saves one small product."""

TableKind = Literal["fp32", "fp16", "int8", "int4"]


@dataclass(frozen=True)
class GraphOptions:
    """How to write a student as a graph."""

    recurrence: Recurrence = "unroll"
    """Write the recurrent unit R times, or once in a Loop."""
    fold: bool = False
    """Multiply token embeddings and bottleneck projection, (V, B) (B, H) = (V, H)."""
    table: TableKind = "fp32"
    """How to store the token embeddings."""
    matmul_writer: MatMulWriter = field(default_factory=MatMulWriter)

    def with_levels(self, levels: Mapping[str, Level]) -> "GraphOptions":
        """Return the options with these levels of the products."""
        return replace(self, matmul_writer=replace(self.matmul_writer, levels=levels))


def options_for(
    precision: str,
    recurrence: Recurrence,
    fold: bool,
    ranges: Mapping[str, Range],
    table: Table = "auto",
    operators: Operators = "onnxruntime",
) -> GraphOptions:
    """Return the options of a graph in a precision: fp32, fp16, int8 or int4.

    :param ranges: input ranges of the products, for int8 and int4.
    :param table: how to store the token embeddings beside int8 products.
    :param operators: those of int8; fp32 and fp16 have standard ones in any case, int4 has not.
    """
    if precision == "fp32":
        return GraphOptions(recurrence, fold)
    if precision == "fp16":
        return GraphOptions(recurrence, fold, "fp16", MatMulWriter(half=True))
    is_int4 = precision == "int4"
    if table == "auto":
        table = "int4" if is_int4 else "int8"
    products = MatMulWriter(None, ranges=ranges, bits=4 if is_int4 else 8, standard=operators == "standard")
    return GraphOptions(recurrence, fold, table, products)


def decide_folding(config: StudentConfig, bottleneck: Bottleneck) -> tuple[bool, str]:
    """Decide whether to fold the bottleneck; return the decision and its reason."""
    if config.bottleneck is None:
        return False, "no bottleneck"
    added = 4 * (config.vocab_size * (config.hidden_size - config.bottleneck) - config.bottleneck * config.hidden_size)
    cost = f"folding adds {megabytes(added)} in float32 and saves one product of {1 + 4 * config.depth}"
    if bottleneck != "auto":
        return bottleneck == "fold", f"asked for; {cost}"
    return added < _FOLD_BYTES, cost


def write_graph(student: Student, options: GraphOptions, file: Path, *, external: bool) -> bool:
    """Write a student's graph to a file.

    :param external: store the weights in a file beside the graph, which runtimes map into memory. This is done in any
        case where one file cannot hold them.
    :returns: whether it was done.
    """
    file.parent.mkdir(exist_ok=True)
    model = build(student, options)
    weights = model.graph.initializer
    sizes = (math.prod(weight.dims) * helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize for weight in weights)
    external = external or sum(sizes) > MOST_BYTES
    if external:
        _move_weights(model, file.with_name(f"{file.name}_data"))
    onnx.save(model, file)
    return external


def _move_weights(model: onnx.ModelProto, file: Path) -> None:
    """Move all but the small weights of a graph to a file.

    onnx would let no other user read the file, and refuses a name that a file in the current folder has.
    """
    with file.open("wb") as data:
        for weight in model.graph.initializer:
            if len(content := weight.raw_data) >= _EXTERNAL_BYTES:
                set_external_data(weight, file.name, data.tell(), len(content))
                weight.ClearField("raw_data")
                data.write(content)


def write_ort(graph: Path) -> Path:
    """Write a graph in onnxruntime's own format beside it, optimised for every CPU; return the file."""
    file = graph.with_suffix(".ort")
    write_optimised(graph, file, {"session.save_model_format": "ORT"})
    return file


def write_openvino(graph: Path, file: Path) -> None:
    """Write a graph in OpenVINO's own format, an .xml file. Its weights are in the .bin beside it.

    The outputs are `sentence_embedding` and `last_hidden_state`: optimum-intel refuses to open a graph that also has
    `token_embeddings` as a feature extractor, which is how sentence-transformers opens it.
    """
    import openvino

    model = openvino.Core().read_model(str(graph))
    for name in OUTPUTS[1:]:
        model.output(name).get_tensor().set_names({name})
    outputs = [model.output(name).get_node() for name in OUTPUTS[1:]]
    file.parent.mkdir(exist_ok=True)
    openvino.save_model(openvino.Model(outputs, model.get_parameters()), str(file), compress_to_fp16=False)


def build(student: Student, options: GraphOptions | None = None) -> onnx.ModelProto:
    """Build a student's graph, for any batch size and length.

    :returns: inputs `INPUTS` (N, L) int64, outputs `OUTPUTS` (N, L, D), (N, D), (N, L, D) float32. Where the head has
        an activation, the token vectors are the head's inputs, (N, L, H). It may be larger than one file can be.
    """
    return _GraphBuilder(student, options or GraphOptions()).build()


def check_size(student: Student, config: ExportConfig, *, fold: bool) -> None:
    """Check that the graph fits where weights cannot lie in a file beside it.

    :param fold: whether the bottleneck is folded.
    :raises InputError: when it does not.
    """
    settings = config.settings()
    if settings.ort:
        holder, advice = "onnxruntime's own format holds", "leave that format out (--no-ort)"
    elif settings.runtime == "litert":
        holder, advice = "LiteRT's format holds", "choose another --target"
    elif config.target == "wasm":
        holder, advice = "a browser loads", "choose another --target"
    else:
        return
    table, others = student.embeddings.word.weight.numel(), sum(weight.numel() for weight in student.parameters())
    others -= table
    if fold:
        table = student.config.vocab_size * student.config.hidden_size
    # onnxruntime's own format stores weights as they are computed: products of fp16 in float32, and 4 bits in int8
    sizes = {"fp32": 4 * (table + others), "fp16": 2 * table + (4 if settings.ort else 2) * others}
    size = sizes.get(config.precision, table + others)
    if size > MOST_BYTES:
        smaller = "use --precision int8, " if config.precision in FLOAT else ""
        raise InputError(
            f"export: the graph would take {size / 1e9:.1f} GB in {config.precision}, {holder} at most "
            f"{MOST_BYTES / 1e9:.1f}; {smaller}trim the vocabulary (--languages de,en), or {advice}"
        )


class _GraphBuilder:
    """Writes the nodes of one student."""

    def __init__(self, student: Student, options: GraphOptions) -> None:
        self.student, self.options, self.config = student, options, student.config
        self.matmul_writer = options.matmul_writer
        self.matmuls = matmuls(student)
        self.layers = LayerWriter(options.matmul_writer, self.matmuls)
        self.writer = Writer()

    def build(self) -> onnx.ModelProto:
        """Write the whole graph: embeddings, layers, head and pooling."""
        writer, config = self.writer, self.config
        mask = self._write_mask()
        tokens = self._write_layers(writer, "prelude", self._write_embeddings(), mask)
        if self.options.recurrence == "loop" and config.recurrences > 1:
            tokens = self._write_loop(tokens, mask)
        else:
            for _ in range(config.recurrences):
                tokens = self._write_layers(writer, "unit", tokens, mask)
        tokens = self._write_layers(writer, "coda", tokens, mask)
        tokens = write_norm(writer, "final_norm", self.student.final_norm, tokens)
        if "head" in self.matmuls and not config.head_activation:
            tokens = self.matmul_writer.write(writer, tokens, self.matmuls["head"])
        writer.node("Identity", tokens, name=OUTPUTS[0])
        writer.node("Identity", self._write_sentence_vectors(tokens, mask.kept), name=OUTPUTS[1])
        writer.node("Identity", tokens, name=OUTPUTS[2])

        width = config.hidden_size if config.head_activation else config.dimension
        token_shape: list[str | int | None] = ["batch", "length", width]
        sentence_shape: list[str | int | None] = ["batch", config.dimension]
        shapes = dict(zip(OUTPUTS, (token_shape, sentence_shape, token_shape), strict=True))
        return writer.model(
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in INPUTS],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        )

    def _write_mask(self) -> Mask:
        writer = self.writer
        kept = writer.node("Cast", INPUTS[1], to=TensorProto.FLOAT)
        scores = writer.node("Mul", writer.node("Sub", writer.number(1), kept), writer.number(MASKED_SCORE))
        scores = writer.node("Unsqueeze", scores, writer.integers(1, 2))
        relative = self.student.relative
        if self.config.rotary:
            return Mask(kept, scores, None, write_rotary(writer, self.config, self._write_token_numbers(), scores))
        if relative is None:
            return Mask(kept, scores, writer.node("Cast", INPUTS[1], to=TensorProto.INT32))
        # look up biases (1, heads, L, L) by the distance j - i between key and query
        positions = self.config.max_position_embeddings - self.config.position_offset
        with torch.inference_mode():
            table = writer.constant("relative", floats(relative.by_distance(positions)))
        numbers = self._write_token_numbers()
        keys = writer.node("Add", numbers, writer.integer(positions - 1))
        queries = writer.node("Unsqueeze", numbers, writer.integers(1))
        biases = writer.node("Gather", table, writer.node("Sub", keys, queries))
        biases = writer.node("Unsqueeze", writer.node("Transpose", biases, perm=[2, 0, 1]), writer.integers(0))
        return Mask(kept, writer.node("Add", scores, biases), None)

    def _write_token_numbers(self) -> str:
        """Write the numbers 0 ... L - 1 of the tokens."""
        length = self.writer.node("Squeeze", self.writer.node("Shape", INPUTS[0], start=1, end=2))
        return self.writer.node("Range", self.writer.integer(0), length, self.writer.integer(1))

    def _write_embeddings(self) -> str:
        """Add token embeddings and positions, if any, and normalise; token type 0 is added to the positions."""
        writer, embeddings, table_kind = self.writer, self.student.embeddings, self.options.table
        table, projection = floats(embeddings.word.weight), self.matmuls.get("embeddings.projection")
        if projection is not None and self.options.fold:
            table, projection = table @ projection.weight, None
        tokens = write_lookup(writer, "word", table, INPUTS[0], table_kind, standard=self.matmul_writer.standard)
        if projection is not None:
            tokens = self.matmul_writer.write(writer, tokens, projection)
        if not isinstance(embeddings.norm, nn.LayerNorm):
            return tokens
        first_type = None if embeddings.token_type is None else floats(embeddings.token_type.weight[0])
        if embeddings.position is None:
            added = [] if first_type is None else [writer.constant("token_type", first_type)]
            return write_norm(writer, "norm", embeddings.norm, tokens, *added)
        positions = floats(embeddings.position.weight[embeddings.offset :])
        if first_type is not None:
            positions = positions + first_type
        position_kind = "int8" if table_kind == "int4" else table_kind
        rows = write_lookup(writer, "position", positions, self._write_token_numbers(), position_kind)
        return write_norm(writer, "norm", embeddings.norm, tokens, rows)

    def _write_loop(self, tokens: str, mask: Mask) -> str:
        """Apply the unit R times, written once as the body of a Loop."""
        body = Writer(self.writer)
        again = body.node("Identity", "again", name="again_after")
        after = body.node("Identity", self._write_layers(body, "unit", "tokens", mask), name="tokens_after")
        shape: list[str | int | None] = ["batch", "length", self.config.hidden_size]
        inputs = [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("tokens", TensorProto.FLOAT, shape),
        ]
        outputs = [
            helper.make_tensor_value_info(again, TensorProto.BOOL, []),
            helper.make_tensor_value_info(after, TensorProto.FLOAT, shape),
        ]
        turns = self.writer.integer(self.config.recurrences)
        return self.writer.node("Loop", turns, "", tokens, body=body.body(inputs, outputs))

    def _write_layers(self, writer: Writer, part: str, tokens: str, mask: Mask) -> str:
        """Write each layer of a part of the student (prelude, unit or coda) once."""
        for name, layer in self.student.layers().items():
            if name.startswith(f"{part}."):
                tokens = self.layers.write(writer, name, layer, tokens, mask)
        return tokens

    def _write_sentence_vectors(self, tokens: str, kept: str) -> str:
        """Pool the token vectors, apply a head with an activation, scale to unit length."""
        writer, config = self.writer, self.config
        if config.pooling == "cls":
            # not Gather with the number 0 alone, whose result behind an int8 head OpenVINO 2026.4 gives as (1, N, D)
            first = writer.node("Gather", tokens, writer.integers(0), axis=1)
            vectors = writer.node("Squeeze", first, writer.integers(1))
        else:
            if config.pooling == "lasttoken":  # where the count of the tokens so far is the largest
                counts = writer.node("Mul", writer.node("CumSum", kept, writer.integer(1)), kept)
                largest = writer.node("ReduceMax", counts, writer.integers(-1), keepdims=1)
                kept = writer.node("Cast", writer.node("Equal", counts, largest), to=TensorProto.FLOAT)
            vectors = writer.node("MatMul", writer.node("Unsqueeze", kept, writer.integers(1)), tokens)
            vectors = writer.node("Squeeze", vectors, writer.integers(1))
            if not config.normalize or config.head_activation:  # otherwise the sum has the direction of the mean
                vectors = writer.node("Div", vectors, writer.node("ReduceSum", kept, writer.integers(-1)))
        if config.head_activation:
            vectors = writer.node("Tanh", self.matmul_writer.write(writer, vectors, self.matmuls["head"]))
        if not config.normalize:
            return vectors
        norm = writer.node("ReduceL2", vectors, writer.integers(-1))
        return writer.node("Div", vectors, writer.node("Max", norm, writer.number(LEAST_NORM)))


def write_lookup(writer: Writer, name: str, table: Floats, ids: str, kind: TableKind, *, standard: bool = False) -> str:
    """Store a table and write the lookup of its rows; only the rows looked up become float32.

    :param table: (V, W); a table for int4 whose width no block size divides is stored in int8.
    :param ids: name of int64 row numbers, of any shape; for int4 with standard operators (N, L).
    :param standard: look up int4 rows with operators of the ONNX standard alone.
    :returns: name of the float32 rows, the shape of ids followed by W.
    """
    if kind == "fp32":
        return writer.node("Gather", writer.constant(name, table), ids)
    if kind == "fp16":
        rows = writer.node("Gather", writer.constant(name, table.astype(np.float16)), ids)
        return writer.node("Cast", rows, to=TensorProto.FLOAT)
    block = block_size_for(table.shape[1])
    if kind == "int8" or block is None:
        # row = q s with one scale per row: s = max|row| / 127, q = round(row / s)
        scales = np.maximum(np.abs(table).max(1, keepdims=True) / 127, np.finfo(np.float32).tiny).astype(np.float32)
        rows = writer.node("Gather", writer.constant(f"{name}.rows", np.rint(table / scales).astype(np.int8)), ids)
        row_scales = writer.node("Gather", writer.constant(f"{name}.scales", scales), ids)
        return writer.node("Mul", writer.node("Cast", rows, to=TensorProto.FLOAT), row_scales)
    # q = round(row / s) in -8 ... 7 with one float16 scale per block of a row; the sign of s is such that -8 is used
    values, block_scales = quantize_rows(table, block)
    if standard:
        return _write_int4_lookup(writer, name, values, block_scales, ids)
    packed = writer.constant(f"{name}.rows", pack_int4(values[:, 0::2], values[:, 1::2]))
    inputs = (packed, ids, writer.constant(f"{name}.scales", block_scales))
    half = writer.node(
        "GatherBlockQuantized", *inputs, domain=CONTRIB, gather_axis=0, quantize_axis=1, bits=4, block_size=block
    )
    return writer.node("Cast", half, to=TensorProto.FLOAT)


def _write_int4_lookup(
    writer: Writer, name: str, values: NDArray[np.int8], scales: NDArray[np.float16], ids: str
) -> str:
    """Look up the bytes of rows, two values each, unpack them, and multiply each block by its scale.

    :param values: (V, W), in -8 ... 7.
    :param scales: (V, W / block).
    :param ids: name of row numbers (N, L).
    :returns: name of the rows (N, L, W).
    """
    (rows, width), blocks = values.shape, scales.shape[1]
    halves = np.split(values.reshape(rows, blocks, -1), 2, axis=2)  # the first half of a block is in the low bits
    packed = writer.node("Gather", writer.constant(f"{name}.rows", pack_int4(*halves)), ids)
    low = writer.node("BitwiseAnd", packed, writer.constant("uint8_15", np.uint8(15)))
    high = writer.node("BitShift", packed, writer.constant("uint8_4", np.uint8(4)), direction="RIGHT")
    raised = writer.node("Cast", writer.node("Concat", low, high, axis=-1), to=TensorProto.FLOAT)
    steps = writer.node("Gather", writer.constant(f"{name}.scales", scales[..., None]), ids)
    steps = writer.node("Cast", steps, to=TensorProto.FLOAT)
    numbers = writer.node("Mul", writer.node("Sub", raised, writer.number(8)), steps)
    return writer.node("Reshape", numbers, writer.integers(0, 0, width))
