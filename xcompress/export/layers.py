"""Write the transformer layers of a student as nodes of an ONNX graph."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto
from torch import nn

from xcompress.export import MASKED_SCORE
from xcompress.export.matmul import MatMul, MatMulWriter, floats
from xcompress.export.writer import CONTRIB, Writer
from xcompress.modeling.layers import ModernBertLayer, RmsNormLayer, TransformerLayer, rotary_angles
from xcompress.modeling.student import StudentConfig


@dataclass(frozen=True)
class Rotary:
    """Names of what the attention of a layer needs of the positions of tokens, where these are rotary."""

    cosines: str
    """Of the angles of rotary positions, (L, H / heads / 2)."""
    sines: str
    """Of the same angles."""
    scores: str
    """Added to the attention scores, (N, 1, 1, L), or (N, 1, L, L) where a token sees only those near or before it."""


RotaryPositions = Mapping[tuple[tuple[float, float], int | None], Rotary]


@dataclass(frozen=True)
class Mask:
    """Names of the attention mask in the forms that the layers need."""

    kept: str
    """(N, L), 1.0 for tokens, 0.0 for padding."""
    scores: str
    """Added to the attention scores, (N, 1, 1, L) or (N, heads, L, L)."""
    visible: str | None
    """(N, L) int32, for QAttention; None where attention has a relative bias or rotary positions, which that operator
    lacks."""
    rotary: RotaryPositions = field(default_factory=dict)
    """By the rotation of a layer and its window."""


@dataclass(frozen=True)
class LayerWriter:
    """Writes the layers of one student."""

    matmul_writer: MatMulWriter
    matmuls: Mapping[str, MatMul]
    """By name."""

    def write(self, writer: Writer, name: str, layer: TransformerLayer, tokens: str, mask: Mask) -> str:
        """Write a layer; return the name of its token vectors (N, L, H).

        :param name: of the layer, such as `unit.0`.
        """
        if isinstance(layer, ModernBertLayer):
            return self._write_modernbert(writer, name, layer, tokens, mask)
        if isinstance(layer, RmsNormLayer):
            return self._write_rms_norm_layer(writer, name, layer, tokens, mask)
        context = self._write_attention(writer, name, layer, tokens, mask)
        terms = self.matmul_writer.write_terms(writer, context, self.matmuls[f"{name}.attention_output"])
        attended = write_norm(writer, f"{name}.attention_norm", layer.attention_norm, tokens, *terms)
        if layer.gate:
            terms = [self._write_gated(writer, name, attended, layer.gate)]
        else:
            inner = self.matmul_writer.write(writer, attended, self.matmuls[f"{name}.intermediate"])
            inner = writer.node("Gelu", inner)
            terms = self.matmul_writer.write_terms(writer, inner, self.matmuls[f"{name}.output"])
        return write_norm(writer, f"{name}.output_norm", layer.output_norm, attended, *terms)

    def _write_modernbert(self, writer: Writer, name: str, layer: ModernBertLayer, tokens: str, mask: Mask) -> str:
        """Write a layer of ModernBERT: norms come first, and a gate multiplies what GELU gives."""
        normed = write_norm(writer, f"{name}.attention_norm", layer.attention_norm, tokens)
        context = self._write_attention(writer, name, layer, normed, mask)
        context = self.matmul_writer.write(writer, context, self.matmuls[f"{name}.attention_output"])
        attended = writer.node("Sum", tokens, context)  # not Add, as in `write_norm`
        normed = write_norm(writer, f"{name}.intermediate_norm", layer.intermediate_norm, attended)
        return writer.node("Sum", attended, self._write_gated(writer, name, normed, "gelu"))

    def _write_rms_norm_layer(self, writer: Writer, name: str, layer: RmsNormLayer, tokens: str, mask: Mask) -> str:
        """Write a layer of EmbeddingGemma or Qwen3: norms come before each part and, in EmbeddingGemma, behind it."""
        normed = write_norm(writer, f"{name}.attention_norm", layer.attention_norm, tokens)
        context = self._write_attention(writer, name, layer, normed, mask)
        context = self.matmul_writer.write(writer, context, self.matmuls[f"{name}.attention_output"])
        context = write_norm(writer, f"{name}.context_norm", layer.context_norm, context)
        attended = writer.node("Sum", tokens, context)
        normed = write_norm(writer, f"{name}.intermediate_norm", layer.intermediate_norm, attended)
        gated = self._write_gated(writer, name, normed, "silu" if isinstance(layer.activation, nn.SiLU) else "tanh")
        return writer.node("Sum", attended, write_norm(writer, f"{name}.output_norm", layer.output_norm, gated))

    def _write_gated(self, writer: Writer, name: str, normed: str, activation: str) -> str:
        """Write a gated feed-forward part: the half of a product is activated, and is multiplied by the other.

        :param activation: gelu, tanh (the approximation of GELU) or silu.
        """
        inner = self.matmul_writer.write(writer, normed, self.matmuls[f"{name}.intermediate"])
        names = [f"{inner}_activated", f"{inner}_gate"]
        half, gate = writer.nodes_of("Split", [inner], names, axis=-1, num_outputs=2)
        if activation == "silu":
            activated = writer.node("Mul", half, writer.node("Sigmoid", half))
        else:
            activated = writer.node("Gelu", half, **({"approximate": "tanh"} if activation == "tanh" else {}))
        inner = writer.node("Mul", activated, gate)
        return self.matmul_writer.write(writer, inner, self.matmuls[f"{name}.output"])

    def _write_attention(self, writer: Writer, name: str, layer: TransformerLayer, tokens: str, mask: Mask) -> str:
        """Write the product of queries, keys and values, and attention up to the context (N, L, W).

        W is the width of all queries.
        """
        product, heads, width = self.matmuls[f"{name}.attention"], layer.heads, layer.attention_output.in_features
        fused = self.matmul_writer.level(product) == "static" and not self.matmul_writer.standard
        if mask.visible is not None and fused:
            return self._write_int8_attention(writer, product, heads, tokens, mask.visible)
        others = layer.key_value_heads if isinstance(layer, RmsNormLayer) else heads
        rotary = mask.rotary[layer.settings.rotation, layer.settings.window] if layer.settings else None

        def regroup(vectors: str, count: int) -> str:
            """Stack the rows of heads that share a key, for one product with it (`count`: `others`); or undo that."""
            return vectors if others == heads else writer.node("Reshape", vectors, writer.integers(0, count, -1, 0))

        def turn(part: str, vectors: str, factor: float = 1.0) -> str:
            """Normalise and rotate queries or keys, as far as the layer does."""
            if isinstance(layer, RmsNormLayer):
                norm = layer.get_submodule(f"{part}_norm")
                vectors = write_norm(writer, f"{name}.{part}_norm", norm, vectors, factor=factor)
            return _write_rotation(writer, rotary, vectors, fused=fused) if rotary else vectors

        # (N, L, W + keys + values) to queries (N, heads, L, W / heads), keys and values (N, others, L, W / heads)
        joint = self.matmul_writer.write(writer, tokens, product)
        joint = writer.node("Reshape", joint, writer.integers(0, 0, heads + 2 * others, width // heads))
        joint = writer.node("Transpose", joint, perm=[0, 2, 1, 3])
        names = [f"{joint}_{part}" for part in ("query", "key", "value")]
        if others == heads:
            query, key, value = writer.nodes_of("Split", [joint], names, axis=1, num_outputs=3)
        else:
            query, key, value = writer.nodes_of("Split", [joint, writer.integers(heads, others, others)], names, axis=1)
        query, key = turn("query", query, 1 / math.sqrt(width // heads)), turn("key", key)
        scores = writer.node("MatMul", regroup(query, others), writer.node("Transpose", key, perm=[0, 1, 3, 2]))
        scores = writer.node("Add", regroup(scores, heads), rotary.scores if rotary else mask.scores)
        weights = writer.node("Softmax", scores, axis=-1)
        context = regroup(writer.node("MatMul", regroup(weights, others), value), heads)
        context = writer.node("Transpose", context, perm=[0, 2, 1, 3])
        return writer.node("Reshape", context, writer.integers(0, 0, width))

    def _write_int8_attention(self, writer: Writer, matmul: MatMul, heads: int, tokens: str, visible: str) -> str:
        """Write the product of queries, keys and values, and attention up to the context (N, L, H), as one operator."""
        width = matmul.weight.shape[0]
        # QAttention scales the scores itself, so the scale that `matmuls` put into the queries is taken out again
        factors = np.ones(3 * width, dtype=np.float32)
        factors[:width] = np.sqrt(width // heads)
        assert matmul.bias is not None
        values, scales = self.matmul_writer.store_int8(writer, matmul, factors)
        bias = writer.constant(f"{matmul.name}.bias", matmul.bias * factors)
        quantized, scale, zero = self.matmul_writer.quantize_input(writer, tokens, matmul)
        inputs = (quantized, values, bias, scale, scales, visible, zero)
        return writer.node("QAttention", *inputs, domain=CONTRIB, num_heads=heads, mask_filter_value=MASKED_SCORE)


def write_rotary(writer: Writer, config: StudentConfig, numbers: str, scores: str) -> RotaryPositions:
    """Write what layers need of the positions of tokens, once for all layers that need the same.

    :param numbers: name of the numbers 0 ... L - 1 of the tokens.
    :param scores: name of what is added to all attention scores, (N, 1, 1, L).
    """

    def hide(scores: str, hidden: str) -> str:
        hidden = writer.node("Mul", writer.node("Cast", hidden, to=TensorProto.FLOAT), writer.number(MASKED_SCORE))
        return writer.node("Add", scores, hidden)

    def write_distances() -> str:
        return writer.node("Sub", writer.node("Unsqueeze", numbers, writer.integers(1)), numbers)

    if config.qwen:  # a token sees itself and those before it
        scores = hide(scores, writer.node("Less", write_distances(), writer.integer(0)))
    found = {}
    for rotation, window in dict.fromkeys((layer.rotation, layer.window) for layer in config.rotary):
        # the angle at a position is its number times that at position 1
        speeds = floats(rotary_angles(2, config.width_of_head, rotation)[1])
        rows = writer.node("Unsqueeze", writer.node("Cast", numbers, to=TensorProto.FLOAT), writer.integers(1))
        angles = writer.node("Mul", rows, writer.constant("rotary_{!r}_{!r}".format(*rotation), speeds))
        near = scores
        if window is not None:
            near = hide(scores, writer.node("Greater", writer.node("Abs", write_distances()), writer.integer(window)))
        found[rotation, window] = Rotary(writer.node("Cos", angles), writer.node("Sin", angles), near)
    return found


def _write_rotation(writer: Writer, rotary: Rotary, vectors: str, *, fused: bool) -> str:
    """Rotate the pairs (i, i + W / 2) of vectors (N, heads, L, W).

    :param fused: write one operator of onnxruntime.
    """
    if fused:
        return writer.node("RotaryEmbedding", vectors, writer.integers(0), rotary.cosines, rotary.sines, domain=CONTRIB)
    first, second = writer.nodes_of("Split", [vectors], [f"{vectors}_1", f"{vectors}_2"], axis=-1, num_outputs=2)
    left, right = (writer.node("Mul", first, part) for part in (rotary.cosines, rotary.sines))
    down, up = (writer.node("Mul", second, part) for part in (rotary.sines, rotary.cosines))
    return writer.node("Concat", writer.node("Sub", left, down), writer.node("Add", up, right), axis=-1)


def write_norm(writer: Writer, name: str, norm: nn.Module | None, *terms: str, factor: float = 1.0) -> str:
    """Add values (..., W) and normalise the sum; without a norm (None or Identity), only add.

    The addition is a Sum: onnxruntime fuses Add and LayerNormalization into SkipLayerNormalization, whose CPU kernel is
    several times slower than the two.

    :param factor: multiplies the weights of an RMSNorm.
    """
    total = writer.node("Sum", *terms) if len(terms) > 1 else terms[0]
    if isinstance(norm, nn.LayerNorm):
        gain = writer.constant(f"{name}.weight", floats(norm.weight))
        shift = [] if norm.bias is None else [writer.constant(f"{name}.bias", floats(norm.bias))]
        return writer.node("LayerNormalization", total, gain, *shift, epsilon=norm.eps)
    if not isinstance(norm, nn.RMSNorm):
        return total
    # divide by the root of the mean square; onnxruntime and OpenVINO fuse these nodes into one
    square = writer.node("Pow", total, writer.number(2))
    mean = writer.node("ReduceMean", square, writer.integers(-1))
    root = writer.node("Sqrt", writer.node("Add", mean, writer.number(norm.eps or 0.0)))
    gain = writer.constant(f"{name}.weight", floats(norm.weight) * np.float32(factor))
    return writer.node("Mul", writer.node("Div", total, root), gain)
