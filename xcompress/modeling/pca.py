"""Principal axes of sentence vectors, and the direction that all of them share."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

NEAR_ZERO = 0.1
"""Largest mean cosine of vectors without their common direction."""
MOST_DOUBLINGS = 40
"""Of the ridge; then the direction is that of the mean."""


def principal_axes(
    blocks: Iterable[NDArray[np.floating]], count: int, *, fix_signs: bool = True
) -> NDArray[np.float32]:
    """Return the orthonormal axes on which vectors have the largest second moment, (count, D), the largest first.

    The axes are the top eigenvectors of M = sum over i of x_i x_i^T, and minimise sum over i of |x_i - A^T A x_i|^2.
    This is PCA without centring: cosines are measured about the origin, and a shift would change them.

    :param blocks: the vectors x_i in blocks of rows, (n, D). M is summed block by block in float64, so that vectors on
        disk need not be in memory; another division into blocks changes its last digits.
    :param count: number of axes, at most D.
    :param fix_signs: make the largest coordinate of each axis positive, as the sign of an eigenvector depends on the
        library. Without it, axes keep the library's sign.
    """
    moment: NDArray[np.float64] | None = None
    for block in blocks:
        exact = block.astype(np.float64)
        moment = exact.T @ exact if moment is None else moment + exact.T @ exact
    if moment is None:
        raise ValueError("no vectors")
    axes = np.linalg.eigh(moment)[1][:, ::-1][:, :count].T
    if fix_signs:
        largest = np.abs(axes).argmax(1)
        axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    return axes.astype(np.float32)


def common_direction(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the direction that all vectors share, (D,), of unit length.

    The vectors of many encoders lie in a narrow cone, so that sentences with nothing in common have a high cosine
    (Ethayarajh, 2019). The direction is that of (C + r I)^-1 m, with m the mean and C the covariance of the vectors
    scaled to unit length. But for the ridge r, it is the a with the least variance of a . u where a . m = 1. Where
    a . u is the same for all vectors, taking the direction out lowers their products by the same amount, and their
    order stays. Along the mean, which a large r gives, they differ more. So r starts at the mean of the diagonal of C,
    and is doubled until the mean cosine is at most `NEAR_ZERO` without the direction.

    :param vectors: of real sentences, (N, D), N several times D.
    """
    units = _unit_length(vectors.astype(np.float64))
    mean = units.mean(axis=0)
    covariance = (units - mean).T @ (units - mean) / len(units)
    ridge = np.trace(covariance) / len(covariance) + np.finfo(np.float64).eps  # more than 0 where all are equal
    direction: NDArray[np.float64] = mean
    for _ in range(MOST_DOUBLINGS):
        direction = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mean)
        direction /= np.linalg.norm(direction)
        rest = _unit_length(units - np.outer(units @ direction, direction))
        if np.square(rest.mean(axis=0)).sum() <= NEAR_ZERO:
            break
        ridge *= 2
    return direction.astype(np.float32)


def _unit_length(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo(np.float64).tiny)
