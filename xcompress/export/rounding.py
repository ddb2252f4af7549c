"""Weights rounded to 4 bits so that their products stay: GPTQ (Frantar et al., 2023, arXiv:2210.17323)."""

import numpy as np
from numpy.typing import NDArray

from xcompress.export.blocks import Floats, block_scales, rounded

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
