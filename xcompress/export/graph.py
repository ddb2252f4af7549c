"""The graphs of a bundle: which there are, how they are written, and where they lie."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import nn

from xcompress.errors import InputError
from xcompress.export.config import Bottleneck, Recurrence, Table
from xcompress.export.embeddings import TableKind, look_up
from xcompress.export.int4 import Floats
from xcompress.export.matmul import Level, MatMul, Products, Range, floats, matmuls
from xcompress.export.writer import CONTRIB, Writer
from xcompress.modeling.student import Layer, Student, StudentConfig

INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("token_embeddings", "sentence_embedding", "last_hidden_state")
"""The third is the first again: some loaders look the token vectors up by that name."""
_LARGEST = 2_000_000_000
"""Bytes; a protobuf message may hold 2 GiB."""
_HIDDEN = -1e4
"""Added to the score of a padded token; exp(-1e4) is 0 in float32, and the value still fits float16."""
_SHORTEST = 1e-12
"""Vectors shorter than this are not scaled to unit length."""


@dataclass(frozen=True)
class GraphOptions:
    """How a student is written as a graph."""

    recurrence: Recurrence = "unroll"
    """The unit's nodes R times, or once in a Loop."""
    fold: bool = False
    """Whether word table and bottleneck projection are multiplied out, (V, B) (B, H) = (V, H)."""
    table: TableKind = "fp32"
    products: Products = field(default_factory=Products)


def build(student: Student, form: GraphOptions | None = None) -> onnx.ModelProto:
    """Write the student as a graph with free batch size and length.

    :returns: inputs `INPUTS` (N, L) int64, outputs `OUTPUTS` (N, L, D), (N, D), (N, L, D) float32; where the head has
        an activation, the token vectors are those in front of it, (N, L, H).
    :raises InputError: when the graph would pass what one file may hold.
    """
    form = form or GraphOptions()
    _check_size(student, form)
    return _Encoder(student, form).write()


class _Encoder:
    """Writes one student in one form."""

    def __init__(self, student: Student, form: GraphOptions) -> None:
        self.student, self.form, self.config = student, form, student.config
        self.products = form.products
        self.matmuls = matmuls(student)
        self.writer = Writer()

    def write(self) -> onnx.ModelProto:
        writer, config = self.writer, self.config
        mask = self._mask()
        tokens = self._unit_applied(self._embedded(), mask)
        if "head" in self.matmuls and not config.head_activation:
            tokens = self.products.product(writer, tokens, self.matmuls["head"])
        writer.node("Identity", tokens, name=OUTPUTS[0])
        writer.node("Identity", self._sentences(tokens, mask.kept), name=OUTPUTS[1])
        writer.node("Identity", tokens, name=OUTPUTS[2])
        return writer.model(
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"]) for name in INPUTS],
            self._outputs(),
        )

    def _outputs(self) -> list[onnx.ValueInfoProto]:
        width = self.config.hidden_size if self.config.head_activation else self.config.dimension
        tokens: list[str | int | None] = ["batch", "length", width]
        sentences: list[str | int | None] = ["batch", self.config.dimension]
        shapes = dict(zip(OUTPUTS, (tokens, sentences, tokens), strict=True))
        return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]

    def _embedded(self) -> str:
        writer, part = self.writer, self.student.embeddings
        table, projection = floats(part.word.weight), self.matmuls.get("embeddings.projection")
        if projection is not None and self.form.fold:
            table, projection = table @ projection.weight, None
        words = look_up(writer, "word", table, INPUTS[0], self.form.table)
        if projection is not None:
            words = self.products.product(writer, words, projection)
        places = floats(part.position.weight[part.offset :])
        if part.token_type is not None:
            places = places + floats(part.token_type.weight[0])
        return self._norm(writer, "norm", part.norm, words, self._position_rows(places))

    def _position_rows(self, places: Floats) -> str:
        kind = "int8" if self.form.table == "int4" else self.form.table
        return look_up(self.writer, "position", places, self._numbers(), kind)

    def _numbers(self) -> str:
        """Write the numbers 0 ... L - 1 of the tokens."""
        length = self.writer.node("Squeeze", self.writer.node("Shape", INPUTS[0], start=1, end=2))
        return self.writer.node("Range", self._scalar_int(0), length, self._scalar_int(1))

    def _scalar_int(self, value: int) -> str:
        return self.writer.constant(f"scalar_{value}", np.int64(value))

    def _mask(self) -> "_Mask":
        writer = self.writer
        kept = writer.node("Cast", INPUTS[1], to=TensorProto.FLOAT)
        scores = writer.node("Mul", writer.node("Sub", writer.number(1), kept), writer.number(_HIDDEN))
        scores = writer.node("Unsqueeze", scores, writer.integers(1, 2))
        if self.student.relative is not None:
            return _Mask(kept, writer.node("Add", scores, self._relative_scores()), None)
        return _Mask(kept, scores, writer.node("Cast", INPUTS[1], to=TensorProto.INT32))

    def _relative_scores(self) -> str:
        """Look up (1, heads, L, L) biases by the distance j - i between key and query."""
        relative, writer = self.student.relative, self.writer
        assert relative is not None
        positions = self.config.max_position_embeddings - self.config.position_offset
        with torch.inference_mode():
            biases = writer.constant("relative", floats(relative.by_distance(positions)))
        numbers = self._numbers()
        keys = writer.node("Add", numbers, self._scalar_int(positions - 1))
        queries = writer.node("Unsqueeze", numbers, writer.integers(1))
        found = writer.node("Gather", biases, writer.node("Sub", keys, queries))
        return writer.node("Unsqueeze", writer.node("Transpose", found, perm=[2, 0, 1]), writer.integers(0))

    def _unit_applied(self, tokens: str, mask: "_Mask") -> str:
        if self.form.recurrence == "loop" and self.config.recurrences > 1:
            return self._loop(tokens, mask)
        for _ in range(self.config.recurrences):
            tokens = self._unit(self.writer, tokens, mask)
        return tokens

    def _loop(self, tokens: str, mask: "_Mask") -> str:
        body = Writer(self.writer)
        again = body.node("Identity", "again", name="again_after")
        after = body.node("Identity", self._unit(body, "tokens", mask), name="tokens_after")
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
        turns = self._scalar_int(self.config.recurrences)
        return self.writer.node("Loop", turns, "", tokens, body=body.body(inputs, outputs))

    def _unit(self, writer: Writer, tokens: str, mask: "_Mask") -> str:
        for number, layer in enumerate(self.student.unit):
            assert isinstance(layer, Layer)
            tokens = self._layer(writer, f"unit.{number}", layer, tokens, mask)
        return tokens

    def _layer(self, writer: Writer, name: str, layer: Layer, tokens: str, mask: "_Mask") -> str:
        context = self._context(writer, self.matmuls[f"{name}.attention"], layer.heads, tokens, mask)
        terms = self.products.terms(writer, context, self.matmuls[f"{name}.attention_output"])
        attended = self._norm(writer, f"{name}.attention_norm", layer.attention_norm, tokens, *terms)
        inner = self.products.product(writer, attended, self.matmuls[f"{name}.intermediate"])
        terms = self.products.terms(writer, writer.node("Gelu", inner), self.matmuls[f"{name}.output"])
        return self._norm(writer, f"{name}.output_norm", layer.output_norm, attended, *terms)

    def _context(self, writer: Writer, site: MatMul, heads: int, tokens: str, mask: "_Mask") -> str:
        if self.products.level(site) == "static" and mask.visible is not None:
            return self._int8_attention(writer, site, heads, tokens, mask.visible)
        width = site.weight.shape[0]
        joint = self.products.product(writer, tokens, site)
        joint = writer.node("Reshape", joint, writer.integers(0, 0, 3 * heads, width // heads))
        joint = writer.node("Transpose", joint, perm=[0, 2, 1, 3])
        parts = [f"{joint}_{part}" for part in ("query", "key", "value")]
        query, key, value = writer.nodes_of("Split", [joint], parts, axis=1, num_outputs=3)
        scores = writer.node("MatMul", query, writer.node("Transpose", key, perm=[0, 1, 3, 2]))
        weights = writer.node("Softmax", writer.node("Add", scores, mask.scores), axis=-1)
        context = writer.node("Transpose", writer.node("MatMul", weights, value), perm=[0, 2, 1, 3])
        return writer.node("Reshape", context, writer.integers(0, 0, width))

    def _int8_attention(self, writer: Writer, site: MatMul, heads: int, tokens: str, visible: str) -> str:
        """Write product and attention as one operator, which scales the scores itself."""
        width = site.weight.shape[0]
        unscaled = np.ones(3 * width, dtype=np.float32)
        unscaled[:width] = np.sqrt(width // heads)
        assert site.bias is not None
        values, scales = self.products.store_int8(writer, site, unscaled)
        bias = writer.constant(f"{site.name}.bias", site.bias * unscaled)
        inputs, scale, zero = self.products.quantised(writer, tokens, site)
        given = (inputs, values, bias, scale, scales, visible, zero)
        return writer.node("QAttention", *given, domain=CONTRIB, num_heads=heads, mask_filter_value=_HIDDEN)

    def _norm(self, writer: Writer, name: str, norm: nn.LayerNorm, *terms: str) -> str:
        """Add and normalise.

        The addition is written as Sum: onnxruntime fuses Add and LayerNormalization into SkipLayerNormalization, whose
        CPU kernel is several times slower than the two.
        """
        gain = writer.constant(f"{name}.weight", floats(norm.weight))
        shift = writer.constant(f"{name}.bias", floats(norm.bias))
        return writer.node("LayerNormalization", writer.node("Sum", *terms), gain, shift, epsilon=norm.eps)

    def _sentences(self, tokens: str, kept: str) -> str:
        writer, config = self.writer, self.config
        vectors = self._pooled(tokens, kept)
        if config.head_activation:
            vectors = writer.node("Tanh", self.products.product(writer, vectors, self.matmuls["head"]))
        if not config.normalize:
            return vectors
        length = writer.node("ReduceL2", vectors, writer.integers(-1))
        return writer.node("Div", vectors, writer.node("Max", length, writer.number(_SHORTEST)))

    def _pooled(self, tokens: str, kept: str) -> str:
        writer = self.writer
        if self.config.pooling == "cls":
            return writer.node("Gather", tokens, self._scalar_int(0), axis=1)
        total = writer.node("MatMul", writer.node("Unsqueeze", kept, writer.integers(1)), tokens)
        total = writer.node("Squeeze", total, writer.integers(1))
        if self.config.normalize and not self.config.head_activation:
            return total
        return writer.node("Div", total, writer.node("ReduceSum", kept, writer.integers(-1)))


@dataclass(frozen=True)
class _Mask:
    """The attention mask in the forms that the layers need, by name."""

    kept: str
    """(N, L), 1.0 for tokens."""
    scores: str
    """What is added to the attention scores, (N, 1, 1, L) or (N, heads, L, L)."""
    visible: str | None
    """(N, L) int32; None where distances have biases, too."""


def _check_size(student: Student, form: GraphOptions) -> None:
    values = sum(weight.numel() for weight in student.parameters())
    config = student.config
    if form.fold and config.bottleneck:
        values += config.vocab_size * (config.hidden_size - config.bottleneck)
    size = 4 * values
    if size > _LARGEST:
        raise InputError(
            f"export: the float32 graph would take {size / 1e9:.1f} GB, one ONNX file holds {_LARGEST / 1e9:.1f}; "
            "give the student a bottleneck or trim its vocabulary"
        )


GRAPHS = {
    "fp32": "onnx/model.onnx",
    "fp16": "onnx/model_fp16.onnx",
    "int8": "onnx/model_quantized.onnx",
    "int4": "onnx/model_q4.onnx",
}
"""Named as transformers.js and Optimum look for them."""
_LARGE = 1024
"""Bytes; smaller weights stay in the graph when the others lie outside."""
_WORTH_FOLDING = 1_000_000
"""Bytes of float32 that folding may add to save one small product."""


def form_of(
    precision: str, recurrence: Recurrence, fold: bool, ranges: Mapping[str, Range], table: Table = "auto"
) -> GraphOptions:
    """Return the form of a graph in some precision.

    :param table: how the word table is stored beside products in int8.
    """
    if precision == "fp32":
        return GraphOptions(recurrence, fold)
    if precision == "fp16":
        return GraphOptions(recurrence, fold, "fp16", Products(halved=True))
    bits: Literal[4, 8] = 4 if precision == "int4" else 8
    kind: Literal["int4", "int8"] = table if table != "auto" else "int4" if bits == 4 else "int8"
    return GraphOptions(recurrence, fold, kind, Products(None, ranges=ranges, bits=bits))


def with_levels(form: GraphOptions, levels: Mapping[str, Level]) -> GraphOptions:
    """Return the form with some products at other levels."""
    return replace(form, products=replace(form.products, levels=levels))


def folds(config: StudentConfig, asked: Bottleneck) -> tuple[bool, str]:
    """Decide whether to multiply out the bottleneck, and say why."""
    if config.bottleneck is None:
        return False, "no bottleneck"
    added = 4 * (config.vocab_size * (config.hidden_size - config.bottleneck) - config.bottleneck * config.hidden_size)
    cost = f"folding adds {added / 1e6:.1f} MB in float32 and saves one product of {1 + 4 * config.depth}"
    if asked != "auto":
        return asked == "fold", f"asked for; {cost}"
    return added < _WORTH_FOLDING, cost


def write_graph(student: Student, form: GraphOptions, file: Path, *, external: bool) -> None:
    """Write a student's graph.

    :param external: put weights into a file beside it, which runtimes map into memory.
    """
    file.parent.mkdir(exist_ok=True)
    if not external:
        onnx.save(build(student, form), file)
        return
    onnx.save(
        build(student, form),
        file,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=f"{file.name}_data",
        size_threshold=_LARGE,
    )


def write_ort(graph: Path) -> Path:
    """Write a graph in onnxruntime's own format beside it, optimised for any CPU of any kind.

    :returns: the file.
    """
    file = graph.with_suffix(".ort")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(file)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return file
