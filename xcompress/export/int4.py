"""Weights rounded to 4 bits so that their products stay: GPTQ (Frantar et al., 2023, arXiv:2210.17323)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from xcompress.export.writer import Writer

Floats = NDArray[np.float32]

BLOCKS = (32, 16)
"""How many numbers of a row share a scale: the first of these that divides its width."""
_PARTS = 8
"""Of an int8 weight, in which steps are stored; 8 steps are at most 127, so a step is at most 127 of them."""


def block_scales(blocks: NDArray[np.floating]) -> NDArray[np.float16]:
    """Return the scale of each block (..., block): its largest number in size is -8 of them."""
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    return (extreme[..., 0] / -8).astype(np.float16)


def rounded(numbers: NDArray[np.floating], scales: NDArray[np.float16]) -> NDArray[np.int8]:
    """Return the values in -8 ... 7 that come nearest to numbers, times a scale each."""
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    values: NDArray[np.int8] = np.clip(np.rint(numbers / steps), -8, 7).astype(np.int8)
    return values


def int4_blocks(rows: Floats, block: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return values (V, W) in -8 ... 7 and scales (V, W / block); value times scale is about the number."""
    blocks = rows.reshape(len(rows), -1, block)
    scales = block_scales(blocks)
    return rounded(blocks, scales[..., None]).reshape(rows.shape), scales


def packed(first: NDArray[np.int8], second: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return two arrays of values in -8 ... 7 as one of bytes, value + 8 of the first in the low halves."""
    low, high = ((values + 8).astype(np.uint8) for values in (first, second))
    return np.bitwise_or(low, np.left_shift(high, 4), dtype=np.uint8)


def block_of(width: int) -> int | None:
    """Return how many of so many numbers share a scale, or None where they cannot be stored in 4 bits."""
    return next((size for size in BLOCKS if width % size == 0), None)


@dataclass(frozen=True)
class Blocks:
    """Weights (out, in) in int8 as values in 4 bits times a step, one for each block of inputs."""

    values: NDArray[np.int8]
    """(out, in), in -8 ... 7."""
    steps: NDArray[np.int8]
    """(out, in / block), in eighths."""

    @classmethod
    def of(cls, values: NDArray[np.int8], steps: Floats) -> "Blocks":
        """Store steps (out, in / block) of at most 127 / 8."""
        return cls(values, np.rint(steps * _PARTS).astype(np.int8))

    @property
    def block(self) -> int:
        """How many values share a step."""
        return int(self.values.shape[1] // self.steps.shape[1])

    def weights(self) -> NDArray[np.int8]:
        """Return round(value * step), (out, in)."""
        found = self.values * (np.repeat(self.steps, self.block, 1) / np.float32(_PARTS))
        return np.rint(found).astype(np.int8)

    def write(self, writer: Writer, name: str) -> str:
        """Store values and steps, and write what makes int8 of them; runtimes do so once, when they open a graph.

        A convolution with one weight for each channel multiplies blocks by their steps, and never leaves int8: what a
        runtime works out when it opens a graph stays in memory until all of it is done.

        :returns: the name of the weights (in, out).
        """
        root, blocks = writer.root, self.values.reshape(-1, self.block)
        both = writer.constant(f"{name}.packed", packed(*np.split(blocks, 2, 1))[None])
        low = root.node("BitwiseAnd", both, writer.constant("uint8_15", np.uint8(15)))
        high = root.node("BitShift", both, writer.constant("uint8_4", np.uint8(4)), direction="RIGHT")
        raised = root.node("Cast", root.node("Concat", low, high, axis=2), to=TensorProto.INT8)
        found = root.node("QLinearConv", *self._factors(writer, name, raised), group=len(blocks))
        return root.node("Transpose", root.node("Reshape", found, writer.integers(*self.values.shape)), name=name)

    def _factors(self, writer: Writer, name: str, raised: str) -> list[str]:
        """Name what is multiplied, each with its scale and zero, and those of the product."""
        zero, one = writer.constant("int8_0", np.int8(0)), writer.number(1)
        steps = writer.constant(f"{name}.steps", self.steps.reshape(-1, 1, 1))
        raised_zero = writer.constant("int8_8", np.int8(8))
        return [raised, one, raised_zero, steps, one, zero, writer.number(_PARTS), zero]


_DAMPING = 0.01
"""Of the mean of the moments' diagonal, added to it so that they can be inverted (there, section 4)."""

Doubles = NDArray[np.float64]


def compensated(rows: Floats, moments: Floats, block: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Round one column after the other, and make up for what each is off by in those that follow.

    What changes products of inputs X least: where column i is off by e, each later column j changes by -e U_ij / U_ii,
    with U the upper Cholesky factor of the inverse of X^T X.

    :param rows: (V, W), one row of weights for each output.
    :param moments: X^T X (W, W) of inputs X.
    :param block: how many columns share a scale; divides W.
    :returns: values (V, W) in -8 ... 7 and scales (V, W / block).
    """
    left, factor = rows.astype(np.float64), _factor(moments)
    values = np.zeros(rows.shape, dtype=np.int8)
    scales = np.zeros((len(rows), rows.shape[1] // block), dtype=np.float16)
    for start in range(0, rows.shape[1], block):
        part = slice(start, start + block)
        scales[:, start // block] = block_scales(left[:, part])
        values[:, part], errors = _block(left[:, part], scales[:, start // block], factor[part, part])
        left[:, part.stop :] -= errors @ factor[part, part.stop :]
    return values, scales


def _block(left: Doubles, scales: NDArray[np.float16], factor: Doubles) -> tuple[NDArray[np.int8], Doubles]:
    """Round the columns of one block; return values, and what each is off by over the factor's diagonal."""
    left, values, errors = left.copy(), np.zeros(left.shape, dtype=np.int8), np.zeros(left.shape)
    for column in range(left.shape[1]):
        values[:, column] = rounded(left[:, column], scales)
        off = left[:, column] - values[:, column] * scales.astype(np.float64)
        errors[:, column] = off / factor[column, column]
        left[:, column + 1 :] -= np.outer(errors[:, column], factor[column, column + 1 :])
    return values, errors


def _factor(moments: Floats) -> Doubles:
    """Return the upper Cholesky factor of the inverse of damped moments."""
    damping = _DAMPING * float(moments.diagonal().mean()) or 1.0
    damped = moments.astype(np.float64) + damping * np.eye(len(moments))
    factor: Doubles = np.linalg.cholesky(np.linalg.inv(damped)).T
    return factor
