"""The products of a student, by the names of the modules they come from."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcompress.export.int4 import Blocks, Floats, block_of, compensated, int4_blocks
from xcompress.export.writer import CONTRIB, Writer
from xcompress.modeling.student import Layer, Student

Level = Literal["static", "token", "fp32"]

PAIR_STEPS = 127
"""What the sizes of two int8 weights in neighbouring rows come to at most, before they are rounded: x86 without int8
dot products adds two products in 16 bits, and 255 x 128 fits them."""
_INT4_ROOM = 127 / 125
"""How much larger scales are for weights in 4 bits, whose steps are rounded, too."""
GELU_LEAST = -0.17
"""GELU never gives less (-0.16997)."""
_TINY = 1e-9
_OUTLIERS = 0.995
"""Channels are smoothed where the largest value of all ..."""
_FAR = 1.5
"""... is so many times this quantile of the channels' largest values."""
_SMOOTHING = 0.7
"""A channel that reaches r times as far as the middle one is scaled down by r to this power; 0 would leave it, 1 make
all reach equally far. Of 0.4 to 0.8, simulated on three encoders with sentences that exports are verified on, 0.6 and
0.7 lost about the same on text on average, and 0.7 less on a token alone."""
_LEAST_REACH = 0.05
"""Of the middle channel's reach: channels that hardly move are not scaled up without end."""
_LOW_STEPS = 32
"""Of the 255 steps of a token's scale, those below 0 where inputs never fall below `least`."""


@dataclass(frozen=True)
class MatMul:
    """A product with a weight, x W + b; one that is used several times is one site."""

    name: str
    weight: Floats
    """(in, out)."""
    bias: Floats | None
    least: float | None = None
    """What no input falls below, where something is known."""


@dataclass(frozen=True)
class Range:
    """The least and the largest value of each channel of a site's inputs, (in,) each, on some text."""

    low: Floats
    high: Floats
    moments: Floats | None = None
    """X^T X (in, in) of the inputs X, where weights in 4 bits are to be fitted to them."""


@dataclass(frozen=True)
class Weights:
    """A weight in int8: W is about `values` times `scales` by output channel, with the rows multiplied by `smooth`."""

    values: NDArray[np.int8]
    scales: Floats
    blocks: Blocks | None = None
    """Stored in place of the values, which are made of them."""


@dataclass(frozen=True)
class Scaling:
    """How inputs become uint8: x / smooth is about (q - zero) * scale."""

    smooth: Floats | None
    scale: np.float32
    zero: np.uint8


@dataclass(frozen=True)
class Products:
    """Writes products, each site at its level."""

    default: Level | None = "fp32"
    """Level of sites that `levels` does not name; None chooses one by site."""
    levels: Mapping[str, Level] = field(default_factory=dict)
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """By site, for those at level static."""
    halved: bool = False
    """Whether float32 weights are stored as float16."""
    bits: Literal[4, 8] = 8
    """That int8 weights take in the file; where their shape forbids 4 they take 8."""

    def level(self, site: MatMul) -> Level:
        """Return a site's level. By default, inputs that reach far on one side alone are scaled by token."""
        chosen = self.levels.get(site.name, self.default)
        return chosen or ("static" if site.least is None else "token")

    def terms(self, writer: Writer, tokens: str, site: MatMul) -> list[str]:
        """Write a product; return names of values whose sum is x W + b."""
        level = self.level(site)
        if level == "static":
            return [self._static(writer, tokens, site)]
        bias = [] if site.bias is None else [writer.constant(f"{site.name}.bias", site.bias)]
        if level == "token":
            return [self._by_token(writer, tokens, site), *bias]
        return [writer.node("MatMul", tokens, self.stored(writer, site.name, site.weight)), *bias]

    def product(self, writer: Writer, tokens: str, site: MatMul) -> str:
        """Write a product; return the name of x W + b."""
        terms = self.terms(writer, tokens, site)
        return writer.node("Add", *terms) if len(terms) == 2 else terms[0]

    def stored(self, writer: Writer, name: str, weight: Floats) -> str:
        """Store a float32 weight, and return the name of its float32 values."""
        return writer.from_half(name, weight.astype(np.float16)) if self.halved else writer.constant(name, weight)

    def quantised(self, writer: Writer, tokens: str, site: MatMul) -> tuple[str, str, str]:
        """Write the quantisation of a static site's inputs; return the names of uint8 inputs, scale and zero."""
        scaling = scaling_of(self.ranges[site.name])
        scale = writer.constant(f"{site.name}.input_scale", scaling.scale)
        zero = writer.constant(f"{site.name}.input_zero", scaling.zero)
        if scaling.smooth is not None:
            tokens = writer.node("Mul", tokens, writer.constant(f"{site.name}.smooth", 1 / scaling.smooth))
        return writer.node("QuantizeLinear", tokens, scale, zero), scale, zero

    def weights(self, site: MatMul) -> Weights:
        """Return a site's int8 weights, at the level that it has."""
        found = self.ranges.get(site.name)
        smooth = scaling_of(self.ranges[site.name]).smooth if self.level(site) == "static" else None
        smooth = np.ones(len(site.weight), dtype=np.float32) if smooth is None else smooth
        weight = site.weight * smooth[:, None]
        if self.bits == 8:
            return int8_weights(weight)
        moments = None if found is None or found.moments is None else found.moments / np.outer(smooth, smooth)
        return int4_weights(weight, moments)

    def store_int8(self, writer: Writer, site: MatMul, factor: Floats | float = 1.0) -> tuple[str, str]:
        """Store a site's int8 weights, and their scales times a factor by output channel, once; return their names."""
        values, scales = f"{site.name}.values", f"{site.name}.scales"
        if not writer.has(scales):
            found = self.weights(site)
            writer.constant(scales, (found.scales * factor).astype(np.float32))
            if found.blocks is None:
                writer.constant(values, found.values)
            else:
                found.blocks.write(writer, values)
        return values, scales

    def _static(self, writer: Writer, tokens: str, site: MatMul) -> str:
        inputs, scale, zero = self.quantised(writer, tokens, site)
        names = self.store_int8(writer, site)
        bias = [] if site.bias is None else ["", writer.constant(f"{site.name}.bias", site.bias)]
        return writer.node("MatMulIntegerToFloat", inputs, names[0], scale, names[1], zero, *bias, domain=CONTRIB)

    def _by_token(self, writer: Writer, tokens: str, site: MatMul) -> str:
        """Write x W with a scale for each token: its largest value, or its largest absolute value."""
        lowest = site.least
        zero, steps = (128, 127) if lowest is None else (_LOW_STEPS, 255 - _LOW_STEPS)
        least_scale = _TINY if lowest is None else -lowest * steps / _LOW_STEPS
        reached = tokens if lowest is not None else writer.node("Abs", tokens)
        largest = writer.node("ReduceMax", reached, writer.integers(-1), keepdims=1)
        largest = writer.node("Max", largest, writer.number(least_scale))
        spread = writer.node("Mul", tokens, writer.node("Div", writer.number(steps), largest))
        zero_point = writer.constant(f"uint8_{zero}", np.uint8(zero))
        inputs = writer.node("QuantizeLinear", spread, writer.number(1), zero_point)
        values, scales = self.store_int8(writer, site, 1 / steps)
        terms = (inputs, values, writer.number(1), scales, zero_point)
        return writer.node("Mul", writer.node("MatMulIntegerToFloat", *terms, domain=CONTRIB), largest)


def int8_weights(weight: Floats) -> Weights:
    """Return int8 weights with a scale for each output channel: the largest |W| of two neighbouring rows / 127."""
    sizes = np.abs(np.pad(weight, ((0, 1), (0, 0))))
    scales = np.maximum((sizes[:-1] + sizes[1:]).max(0) / PAIR_STEPS, np.finfo(np.float32).tiny).astype(np.float32)
    return Weights(np.rint(weight / scales).astype(np.int8), scales)


def int4_weights(weight: Floats, moments: Floats | None = None) -> Weights:
    """Return int8 weights that can be made of 4 bits each, or those of `int8_weights` where the shape forbids it.

    :param weight: (in, out).
    :param moments: (in, in) of inputs, for which products are to stay; without them the weights are, one by one.
    """
    block = block_of(len(weight))
    if block is None:
        return int8_weights(weight)
    largest = np.maximum(np.abs(weight).max(0), np.finfo(np.float32).tiny)
    rows = np.ascontiguousarray((weight / largest).T)
    values, steps = int4_blocks(rows, block) if moments is None else compensated(rows, moments, block)
    near: Floats = np.multiply(values, np.repeat(steps, block, 1), dtype=np.float32)
    scales = int8_weights(near.T).scales * np.float32(_INT4_ROOM)
    blocks = Blocks.of(values, steps / scales[:, None])
    return Weights(blocks.weights().T, scales * largest, blocks)


def scaling_of(found: Range) -> Scaling:
    """Choose scale and zero so that 0 ... 255 cover the range, smoothed first where some channels are far beyond."""
    smooth = _smoothing(np.maximum(np.abs(found.low), np.abs(found.high)))
    low, high = (found.low, found.high) if smooth is None else (found.low / smooth, found.high / smooth)
    least, most = min(0.0, float(low.min())), max(_TINY, float(high.max()))
    scale = np.float32((most - least) / 255)
    return Scaling(smooth, scale, np.uint8(round(-least / scale)))


def _smoothing(reach: Floats) -> Floats | None:
    """Return what to divide the channels by, given each one's largest value."""
    if not reach.max() > _FAR * max(float(np.quantile(reach, _OUTLIERS)), _TINY):
        return None
    relative = np.maximum(reach / max(float(np.median(reach)), _TINY), _LEAST_REACH)
    smooth: Floats = np.power(relative, _SMOOTHING, dtype=np.float32)
    return smooth


def matmuls(student: Student) -> dict[str, MatMul]:
    """Return every product with a weight, from the first to the last.

    The scale of the attention scores, 1 / sqrt(H / heads), lies in the queries' weights.
    """
    found = [_site("embeddings.projection", student.embeddings.projection)]
    for number, layer in enumerate(student.unit):
        if isinstance(layer, Layer):
            found += _layer_sites(f"unit.{number}", layer)
    return {site.name: site for site in [*found, _site("head", student.head)] if site is not None}


def _layer_sites(name: str, layer: Layer) -> Iterator[MatMul | None]:
    width = layer.attention.in_features
    scale = np.ones(3 * width, dtype=np.float32)
    scale[:width] = 1 / math.sqrt(width // layer.heads)
    yield _site(f"{name}.attention", layer.attention, scale)
    yield _site(f"{name}.attention_output", layer.attention_output)
    yield _site(f"{name}.intermediate", layer.intermediate)
    yield _site(f"{name}.output", layer.output, least=GELU_LEAST)


def _site(
    name: str, linear: nn.Linear | None, scale: Floats | float = 1.0, *, least: float | None = None
) -> MatMul | None:
    if linear is None:
        return None
    weight = np.ascontiguousarray(floats(linear.weight).T * scale, dtype=np.float32)
    bias = None if linear.bias is None else (floats(linear.bias) * scale).astype(np.float32)
    return MatMul(name, weight, bias, least)


def floats(weight: Tensor) -> Floats:
    """Return a weight as a float32 array."""
    return weight.detach().to(torch.float32).cpu().numpy()


def int8_bytes(found: Mapping[str, MatMul]) -> dict[str, int]:
    """Return how many bytes each site's int8 weights take."""
    return {name: site.weight.size for name, site in found.items()}
