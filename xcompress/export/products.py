"""How a product with a weight is computed: in float32, or in int8 with one of two ways to scale what goes in.

    static  the input's range was measured on text (calibration); where some channels reach far beyond the others, all
            are brought closer together, and their weights changed by as much (SmoothQuant, Xiao et al., 2023)
    token   each token's vector has a scale of its own, found while running: more precise, and slower

In both a vector does not depend on what else is in its batch. Weights are int8 with a scale per output channel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from xcompress.export.writer import CONTRIB, Writer

Level = Literal["static", "token", "fp32"]
Floats = NDArray[np.float32]

PAIR_STEPS = 127
"""What the sizes of two int8 weights in neighbouring rows come to at most, before they are rounded: x86 without int8
dot products adds two products in 16 bits, and 255 x 128 fits them."""
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
class Site:
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


@dataclass(frozen=True)
class Weights:
    """A weight in int8: W is about `values` times `scales` by output channel, with the rows multiplied by `smooth`."""

    values: NDArray[np.int8]
    scales: Floats


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

    def level(self, site: Site) -> Level:
        """Return a site's level. By default, inputs that reach far on one side alone are scaled by token."""
        chosen = self.levels.get(site.name, self.default)
        return chosen or ("static" if site.least is None else "token")

    def terms(self, writer: Writer, tokens: str, site: Site) -> list[str]:
        """Write a product; return names of values whose sum is x W + b."""
        level = self.level(site)
        if level == "static":
            return [self._static(writer, tokens, site)]
        bias = [] if site.bias is None else [writer.constant(f"{site.name}.bias", site.bias)]
        if level == "token":
            return [_by_token(writer, tokens, site), *bias]
        return [writer.node("MatMul", tokens, self.stored(writer, site.name, site.weight)), *bias]

    def product(self, writer: Writer, tokens: str, site: Site) -> str:
        """Write a product; return the name of x W + b."""
        terms = self.terms(writer, tokens, site)
        return writer.node("Add", *terms) if len(terms) == 2 else terms[0]

    def stored(self, writer: Writer, name: str, weight: Floats) -> str:
        """Store a float32 weight, and return the name of its float32 values."""
        if not self.halved:
            return writer.constant(name, weight)
        if not writer.has(f"{name}.half"):
            half = writer.constant(f"{name}.half", weight.astype(np.float16))
            writer.root.node("Cast", half, name=name, to=TensorProto.FLOAT)
        return name

    def quantised(self, writer: Writer, tokens: str, site: Site) -> tuple[str, str, str]:
        """Write the quantisation of a static site's inputs; return the names of uint8 inputs, scale and zero."""
        scaling = scaling_of(self.ranges[site.name])
        scale = writer.constant(f"{site.name}.input_scale", scaling.scale)
        zero = writer.constant(f"{site.name}.input_zero", scaling.zero)
        if scaling.smooth is not None:
            tokens = writer.node("Mul", tokens, writer.constant(f"{site.name}.smooth", 1 / scaling.smooth))
        return writer.node("QuantizeLinear", tokens, scale, zero), scale, zero

    def weights(self, site: Site) -> Weights:
        """Return the int8 weights of a static site."""
        smooth = scaling_of(self.ranges[site.name]).smooth
        return int8_weights(site.weight if smooth is None else site.weight * smooth[:, None])

    def _static(self, writer: Writer, tokens: str, site: Site) -> str:
        inputs, scale, zero = self.quantised(writer, tokens, site)
        names = store_weights(writer, site, self.weights(site))
        bias = [] if site.bias is None else ["", writer.constant(f"{site.name}.bias", site.bias)]
        return writer.node("MatMulIntegerToFloat", inputs, names[0], scale, names[1], zero, *bias, domain=CONTRIB)


def _by_token(writer: Writer, tokens: str, site: Site) -> str:
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
    weights = int8_weights(site.weight)
    values, scales = store_weights(writer, site, weights, 1 / steps)
    product = writer.node("MatMulIntegerToFloat", inputs, values, writer.number(1), scales, zero_point, domain=CONTRIB)
    return writer.node("Mul", product, largest)


def int8_weights(weight: Floats) -> Weights:
    """Return int8 weights with a scale for each output channel: the largest |W| of two neighbouring rows / 127."""
    sizes = np.abs(np.pad(weight, ((0, 1), (0, 0))))
    scales = np.maximum((sizes[:-1] + sizes[1:]).max(0) / PAIR_STEPS, np.finfo(np.float32).tiny).astype(np.float32)
    return Weights(np.rint(weight / scales).astype(np.int8), scales)


def store_weights(writer: Writer, site: Site, weights: Weights, factor: Floats | float = 1.0) -> tuple[str, str]:
    """Store values, and scales times a factor by output channel; return their names."""
    values = writer.constant(f"{site.name}.values", weights.values)
    return values, writer.constant(f"{site.name}.scales", (weights.scales * factor).astype(np.float32))


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
