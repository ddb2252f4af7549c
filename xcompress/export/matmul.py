"""The matrix products of a student, and how each is written at its precision level.

A level says how x W is computed:
- static: x in uint8 with a range measured on text, W in int8;
- token: x in uint8 with one scale per token, W in int8;
- fp32: in float32.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcompress.export.int4 import Floats, Int4Weights, quantize_rows, quantize_rows_gptq
from xcompress.export.writer import CONTRIB, Writer
from xcompress.modeling.four_bits import block_size_for
from xcompress.modeling.layers import Layer, RmsNormLayer
from xcompress.modeling.student import Student

Level = Literal["static", "token", "fp32"]
"""Each is more precise than the one before."""

PAIR_STEPS = 127
"""Limit of the sum of the magnitudes of two int8 weights in neighbouring rows, before rounding. x86 CPUs without int8
dot products add two products in 16 bits, and 255 x 128 fits."""
_INT4_ROOM = 127 / 125
"""Factor that widens the scales of 4-bit weights, because their steps are rounded, too."""
GELU_LEAST = -0.17
"""Lower bound of GELU (its minimum is -0.16997)."""
_TINY = 1e-9
_OUTLIER_QUANTILE = 0.995
_OUTLIER_RATIO = 1.5
"""Smooth the channels if the largest magnitude of any channel exceeds this many times the quantile above."""
_SMOOTHING = 0.7
"""Divide a channel whose magnitude is r times the median by r to this power: 0 changes nothing, 1 makes all channels
equal. Measured: of 0.4 to 0.8, simulated on three encoders with the sentences that exports are verified on, 0.6 and
0.7 lost about the same on text on average, and 0.7 lost less on single tokens."""
_LEAST_MAGNITUDE = 0.05
"""Lower bound of r, so that channels that hardly vary are not scaled up without limit."""
_NEGATIVE_STEPS = 32
"""Of the 255 steps of a token's scale, those below 0 where the inputs have a known lower bound."""


@dataclass(frozen=True)
class MatMul:
    """A product with a constant weight, x W + b. A recurrent layer has one, however often it is applied."""

    name: str
    """Name of the module it comes from, such as `unit.0.intermediate`."""
    weight: Floats
    """(in, out)."""
    bias: Floats | None
    least: float | None = None
    """Lower bound of all inputs, where one is known."""
    level: Level = "static"
    """Its level in int8, unless it needs a more precise one."""


@dataclass(frozen=True)
class Range:
    """The inputs of a MatMul on calibration text: the least and largest value of each channel, (in,) each."""

    low: Floats
    high: Floats
    moments: Floats | None = None
    """X^T X (in, in) of the inputs X; GPTQ needs it."""


@dataclass(frozen=True)
class Int8Weights:
    """A quantised weight: W, its rows multiplied by the smoothing, is about `values` * `scales`."""

    values: NDArray[np.int8]
    """(in, out)."""
    scales: Floats
    """(out,)."""
    int4: Int4Weights | None = None
    """Stored in place of the values, which are computed from it at load."""


@dataclass(frozen=True)
class InputScale:
    """How inputs become uint8: x / smooth is about (q - zero) * scale."""

    smooth: Floats | None
    """(in,) or None where no channel is smoothed."""
    scale: np.float32
    zero: np.uint8


@dataclass(frozen=True)
class MatMulWriter:
    """Writes each MatMul of a graph at its level."""

    default: Level | None = "fp32"
    """Level of each MatMul that `levels` does not name; None: its own."""
    levels: Mapping[str, Level] = field(default_factory=dict)
    """Levels by name."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Input ranges by name; those at level static need one."""
    half: bool = False
    """Store float32 weights as float16."""
    bits: Literal[4, 8] = 8
    """Bits per int8 weight in the file. Weights whose shape does not allow 4 take 8."""
    standard: bool = False
    """Use operators of the ONNX standard alone: an int8 product is a MatMul of DequantizeLinear nodes, which engines
    fuse."""

    def level(self, matmul: MatMul) -> Level:
        """Return the level of a MatMul."""
        return self.levels.get(matmul.name, self.default) or matmul.level

    def write(self, writer: Writer, inputs: str, matmul: MatMul) -> str:
        """Write a product; return the name of x W + b."""
        terms = self.write_terms(writer, inputs, matmul)
        return writer.node("Add", *terms) if len(terms) == 2 else terms[0]

    def write_terms(self, writer: Writer, inputs: str, matmul: MatMul) -> list[str]:
        """Write a product; return the names of one or two values whose sum is x W + b.

        A layer adds the residual to a product: given the bias by itself, one Sum adds all three.
        """
        level = self.level(matmul)
        if level == "static":
            return [self._write_static(writer, inputs, matmul)]
        bias = [] if matmul.bias is None else [writer.constant(f"{matmul.name}.bias", matmul.bias)]
        if level == "token":
            return [self._write_by_token(writer, inputs, matmul), *bias]
        if self.half:
            weight = writer.half_constant(matmul.name, matmul.weight.astype(np.float16))
        else:
            weight = writer.constant(matmul.name, matmul.weight)
        return [writer.node("MatMul", inputs, weight), *bias]

    def _write_static(self, writer: Writer, inputs: str, matmul: MatMul) -> str:
        """Write x W + b with the measured input range, as one operator."""
        quantized, scale, zero = self.quantize_input(writer, inputs, matmul)
        values, scales = self.store_int8(writer, matmul)
        bias = [] if matmul.bias is None else [writer.constant(f"{matmul.name}.bias", matmul.bias)]
        return self._write_product(writer, (quantized, scale, zero), (values, scales), *bias)

    def _write_by_token(self, writer: Writer, inputs: str, matmul: MatMul) -> str:
        """Write x W with a scale per token: its largest value if there is a lower bound, else its largest magnitude.

        The operators take one scale for all tokens. So x * steps / largest is quantised with scale 1, the scales of W
        are divided by the steps, and the product is multiplied by the largest of each token.
        """
        steps = token_steps(matmul)
        zero = 255 - steps
        if matmul.least is None:
            floor = _TINY
            magnitudes = writer.node("Abs", inputs)
        else:
            floor = -matmul.least * steps / _NEGATIVE_STEPS  # with it, no input is below 0 in uint8
            magnitudes = inputs
        largest = writer.node("ReduceMax", magnitudes, writer.integers(-1), keepdims=1)
        largest = writer.node("Max", largest, writer.number(floor))
        scaled = writer.node("Mul", inputs, writer.node("Div", writer.number(steps), largest))
        zero_point = writer.constant(f"uint8_{zero}", np.uint8(zero))
        quantized = writer.node("QuantizeLinear", scaled, writer.number(1), zero_point)
        values, scales = self.store_int8(writer, matmul, 1 / steps)
        product = self._write_product(writer, (quantized, writer.number(1), zero_point), (values, scales))
        return writer.node("Mul", product, largest)

    def _write_product(self, writer: Writer, inputs: tuple[str, str, str], weights: tuple[str, str], *bias: str) -> str:
        """Write the product of uint8 inputs (values, scale, zero point) and int8 weights (values, scales)."""
        quantized, scale, zero = inputs
        if not self.standard:
            values, scales = weights
            optional = ("", *bias) if bias else ()
            operands = (quantized, values, scale, scales, zero, *optional)
            return writer.node("MatMulIntegerToFloat", *operands, domain=CONTRIB)
        left = writer.node("DequantizeLinear", quantized, scale, zero)
        product = writer.node("MatMul", left, writer.node("DequantizeLinear", *weights, axis=1))
        return writer.node("Add", product, *bias) if bias else product

    def quantize_input(self, writer: Writer, inputs: str, matmul: MatMul) -> tuple[str, str, str]:
        """Quantise inputs with the measured range; return the names of the uint8 inputs, their scale and zero point."""
        input_scale = scale_for(self.ranges[matmul.name])
        scale = writer.constant(f"{matmul.name}.input_scale", input_scale.scale)
        zero = writer.constant(f"{matmul.name}.input_zero", input_scale.zero)
        if input_scale.smooth is not None:
            inputs = writer.node("Mul", inputs, writer.constant(f"{matmul.name}.smooth", 1 / input_scale.smooth))
        return writer.node("QuantizeLinear", inputs, scale, zero), scale, zero

    def store_int8(self, writer: Writer, matmul: MatMul, factor: Floats | float = 1.0) -> tuple[str, str]:
        """Store the int8 weights once; return the names of their values and scales.

        :param factor: multiplies the scales, one number or one per output channel.
        """
        values, scales = f"{matmul.name}.values", f"{matmul.name}.scales"
        if not writer.has(scales):
            weights = self.quantize_weight(matmul)
            writer.constant(scales, (weights.scales * factor).astype(np.float32))
            if weights.int4 is None:
                writer.constant(values, weights.values)
            else:
                weights.int4.write(writer, values)
        return values, scales

    def quantize_weight(self, matmul: MatMul) -> Int8Weights:
        """Return the int8 weights of a MatMul at its level; at level static their rows are smoothed."""
        smooth = np.ones(len(matmul.weight), dtype=np.float32)
        if self.level(matmul) == "static" and (measured := scale_for(self.ranges[matmul.name]).smooth) is not None:
            smooth = measured
        weight = matmul.weight * smooth[:, None]
        if self.bits == 8:
            return int8_weights(weight)
        seen = self.ranges.get(matmul.name)
        moments = None if seen is None or seen.moments is None else seen.moments / np.outer(smooth, smooth)
        return int4_weights(weight, moments)


def token_steps(matmul: MatMul) -> int:
    """Return how many of the 255 steps of a token's scale are above 0, at level token."""
    return 127 if matmul.least is None else 255 - _NEGATIVE_STEPS


def int8_weights(weight: Floats) -> Int8Weights:
    """Quantise a weight (in, out) to int8 with a scale per output channel: max(|W_i| + |W_i+1|) / 127."""
    magnitudes = np.abs(np.pad(weight, ((0, 1), (0, 0))))
    pairs = (magnitudes[:-1] + magnitudes[1:]).max(0)
    scales = np.maximum(pairs / PAIR_STEPS, np.finfo(np.float32).tiny).astype(np.float32)
    return Int8Weights(np.rint(weight / scales).astype(np.int8), scales)


def int4_weights(weight: Floats, moments: Floats | None = None) -> Int8Weights:
    """Quantise a weight (in, out) to int8 values that are stored in 4 bits; to plain int8 where its shape forbids it.

    :param moments: X^T X (in, in) of the inputs X, to round with GPTQ; without it each weight is rounded by itself.
    """
    block = block_size_for(len(weight))
    if block is None:
        return int8_weights(weight)
    largest = np.maximum(np.abs(weight).max(0), np.finfo(np.float32).tiny)
    rows = np.ascontiguousarray((weight / largest).T)
    values, steps = quantize_rows(rows, block) if moments is None else quantize_rows_gptq(rows, moments, block)
    rounded: Floats = np.multiply(values, np.repeat(steps, block, 1), dtype=np.float32)
    scales = int8_weights(rounded.T).scales * np.float32(_INT4_ROOM)
    int4 = Int4Weights.from_steps(values, steps / scales[:, None])
    return Int8Weights(int4.to_int8().T, scales * largest, int4)


def scale_for(seen: Range) -> InputScale:
    """Choose scale and zero point so that 0 ... 255 cover the range, after smoothing outlier channels.

    Smoothing moves the scale of a channel into the weights (Xiao et al., 2023, arXiv:2211.10438).
    """
    magnitudes = np.maximum(np.abs(seen.low), np.abs(seen.high))
    smooth: Floats | None = None
    if magnitudes.max() > _OUTLIER_RATIO * max(float(np.quantile(magnitudes, _OUTLIER_QUANTILE)), _TINY):
        relative = np.maximum(magnitudes / max(float(np.median(magnitudes)), _TINY), _LEAST_MAGNITUDE)
        smooth = np.power(relative, _SMOOTHING, dtype=np.float32)
    low, high = (seen.low, seen.high) if smooth is None else (seen.low / smooth, seen.high / smooth)
    least, most = min(0.0, float(low.min())), max(_TINY, float(high.max()))
    scale = np.float32((most - least) / 255)
    return InputScale(smooth, scale, np.uint8(round(-least / scale)))


def matmuls(student: Student) -> dict[str, MatMul]:
    """Return every MatMul by name, in the order in which they are computed.

    The scale of the attention scores, 1 / sqrt(H / heads), is multiplied into the weights of the queries, except where
    a norm follows.
    """
    products: list[MatMul] = []

    def add(
        name: str,
        linear: nn.Linear | None,
        scale: Floats | float = 1.0,
        *,
        least: float | None = None,
        level: Level = "static",
    ) -> None:
        if linear is None:
            return
        weight = np.ascontiguousarray(floats(linear.weight).T * scale, dtype=np.float32)
        bias = None if linear.bias is None else (floats(linear.bias) * scale).astype(np.float32)
        products.append(MatMul(name, weight, bias, least, level))

    add("embeddings.projection", student.embeddings.projection)
    for name, layer in student.layers().items():
        width = layer.attention.in_features
        scale = np.ones(layer.attention.out_features, dtype=np.float32)
        if not isinstance(layer, RmsNormLayer):
            scale[:width] = 1 / math.sqrt(width // layer.heads)
        add(f"{name}.attention", layer.attention, scale)
        add(f"{name}.attention_output", layer.attention_output)
        add(f"{name}.intermediate", layer.intermediate)
        # Behind GELU some numbers of some tokens are large. A gate makes them of either sign.
        least = GELU_LEAST if isinstance(layer, Layer) and not layer.gate else None
        add(f"{name}.output", layer.output, least=least, level="token")
    add("head", student.head)
    return {matmul.name: matmul for matmul in products}


def floats(weight: Tensor) -> Floats:
    """Return a weight as a float32 array."""
    return weight.detach().to(torch.float32).cpu().numpy()
