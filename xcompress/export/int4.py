"""Quantise weights to 4 bits in blocks, one by one or with GPTQ (Frantar et al., 2023, arXiv:2210.17323)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from xcompress.export.writer import Writer

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

_STEP_PARTS = 8
"""Steps are stored in eighths of an int8 weight: a value of at most 8 steps stays within 127, so a step is at most 127
eighths."""
_DAMPING = 0.01
"""Fraction of the mean diagonal of X^T X that is added to the diagonal, to make it invertible (GPTQ, section 4)."""


def block_scales(blocks: NDArray[np.floating]) -> NDArray[np.float16]:
    """Return the scale of each block (..., block): its number of largest magnitude becomes -8."""
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    return (extreme[..., 0] / -8).astype(np.float16)


def round_to_int4(numbers: NDArray[np.floating], scales: NDArray[np.float16]) -> NDArray[np.int8]:
    """Return the values in -8 ... 7 that are nearest to numbers / scales."""
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    values: NDArray[np.int8] = np.clip(np.rint(numbers / steps), -8, 7).astype(np.int8)
    return values


def quantize_rows(rows: Floats, block: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Round each number of a table by itself.

    :returns: values (V, W) in -8 ... 7 and scales (V, W / block); a number is about its value times its scale.
    """
    blocks = rows.reshape(len(rows), -1, block)
    scales = block_scales(blocks)
    return round_to_int4(blocks, scales[..., None]).reshape(rows.shape), scales


def quantize_rows_gptq(rows: Floats, moments: Floats, block: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Round one column after the other, and correct the later columns for the error of each (GPTQ).

    This minimises the change of products with inputs X: when column i is off by e, each later column j changes by
    -e U_ij / U_ii, with U the upper Cholesky factor of the inverse of X^T X.

    :param rows: (V, W), one row of weights per output.
    :param moments: X^T X (W, W) of inputs X.
    :param block: columns that share a scale; divides W.
    :returns: values (V, W) in -8 ... 7 and scales (V, W / block).
    """
    # the Cholesky factor U (W, W) of the inverse of the damped moments
    damping = _DAMPING * float(moments.diagonal().mean()) or 1.0
    damped = moments.astype(np.float64) + damping * np.eye(len(moments))
    factor: Doubles = np.linalg.cholesky(np.linalg.inv(damped)).T

    remaining = rows.astype(np.float64)
    values = np.zeros(rows.shape, dtype=np.int8)
    scales = np.zeros((len(rows), rows.shape[1] // block), dtype=np.float16)
    for number, start in enumerate(range(0, rows.shape[1], block)):
        columns, later = slice(start, start + block), slice(start + block, None)
        scales[:, number] = block_scales(remaining[:, columns])
        values[:, columns], errors = _quantize_block(remaining[:, columns], scales[:, number], factor[columns, columns])
        remaining[:, later] -= errors @ factor[columns, later]
    return values, scales


def _quantize_block(weights: Doubles, scales: NDArray[np.float16], factor: Doubles) -> tuple[NDArray[np.int8], Doubles]:
    """Round the columns of one block; return the values, and the errors divided by the factor's diagonal."""
    remaining, values, errors = weights.copy(), np.zeros(weights.shape, dtype=np.int8), np.zeros(weights.shape)
    for column in range(weights.shape[1]):
        values[:, column] = round_to_int4(remaining[:, column], scales)
        error = remaining[:, column] - values[:, column] * scales.astype(np.float64)
        errors[:, column] = error / factor[column, column]
        remaining[:, column + 1 :] -= np.outer(errors[:, column], factor[column, column + 1 :])
    return values, errors


def pack_int4(first: NDArray[np.int8], second: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Pack two arrays of values in -8 ... 7 into bytes: value + 8, the first in the low half."""
    low, high = ((values + 8).astype(np.uint8) for values in (first, second))
    return np.bitwise_or(low, np.left_shift(high, 4), dtype=np.uint8)


def unpack_int4(packed: NDArray[np.uint8]) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Return the two arrays that `pack_int4` packed."""
    return (packed & 15).astype(np.int8) - np.int8(8), (packed >> 4).astype(np.int8) - np.int8(8)


@dataclass(frozen=True)
class Int4Weights:
    """Weights (out, in) in int8, stored as 4-bit values with one step per block of inputs."""

    values: NDArray[np.int8]
    """(out, in), in -8 ... 7."""
    steps: NDArray[np.int8]
    """(out, in / block), in eighths."""

    @classmethod
    def from_steps(cls, values: NDArray[np.int8], steps: Floats) -> "Int4Weights":
        """Round steps (out, in / block) of at most 127 / 8 to eighths."""
        return cls(values, np.rint(steps * _STEP_PARTS).astype(np.int8))

    @property
    def block(self) -> int:
        """The number of values that share a step."""
        return int(self.values.shape[1] // self.steps.shape[1])

    def to_int8(self) -> NDArray[np.int8]:
        """Return round(value * step), (out, in)."""
        weights = self.values * (np.repeat(self.steps, self.block, 1) / np.float32(_STEP_PARTS))
        return np.rint(weights).astype(np.int8)

    def write(self, writer: Writer, name: str) -> str:
        """Store values and steps, and write the nodes that turn them into int8; runtimes run these once, at load.

        A convolution with one weight per channel multiplies the blocks by their steps and stays in int8. Constants
        that a runtime folds at load all stay in memory until it has folded the last one, so float32 would cost memory.

        :returns: the name of the weights (in, out).
        """
        root, blocks = writer.root, self.values.reshape(-1, self.block)
        # two values a byte, moved to 0 ... 15 by adding 8
        packed = writer.constant(f"{name}.packed", pack_int4(*np.split(blocks, 2, 1))[None])
        low = root.node("BitwiseAnd", packed, writer.constant("uint8_15", np.uint8(15)))
        high = root.node("BitShift", packed, writer.constant("uint8_4", np.uint8(4)), direction="RIGHT")
        raised = root.node("Cast", root.node("Concat", low, high, axis=2), to=TensorProto.INT8)
        # (value - 8) * step / 8, each factor given as tensor, scale and zero point
        zero, one = writer.constant("int8_0", np.int8(0)), writer.number(1)
        steps = writer.constant(f"{name}.steps", self.steps.reshape(-1, 1, 1))
        eight = writer.constant("int8_8", np.int8(8))
        factors = [raised, one, eight, steps, one, zero, writer.number(_STEP_PARTS), zero]
        weights = root.node("QLinearConv", *factors, group=len(blocks))
        return root.node("Transpose", root.node("Reshape", weights, writer.integers(*self.values.shape)), name=name)
