"""Vectors of unlike widths meet: the wider ones are reduced to their principal axes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xcompress.distill.targets import Vectors
from xcompress.errors import InputError

BLOCK = 8192


def principal_axes(
    vectors: NDArray[np.floating] | Vectors, width: int, key: str = "widths: pca"
) -> NDArray[np.float32]:
    """Find the axes on which vectors have the largest second moment, (width, D), orthonormal, the largest first.

    They are the top eigenvectors of M = sum over i of x_i x_i^T, and minimise sum over i of |x_i - A^T A x_i|^2. This
    is PCA without centring: cosines are taken about the origin, and a shift would change them.

    :param vectors: rows x_i, (N, D).
    :param key: the recipe's key that asks for it, for error texts.
    :raises InputError: when the vectors are narrower than `width`, or fewer.
    """
    count, dimension = vectors.shape
    if width > dimension:
        raise InputError(f"{key} cannot widen vectors of width {dimension} to {width}; ask for {dimension} or fewer")
    if count < width:
        raise InputError(
            f"{key} needs {width} sentences or more for {width} axes, and there are {count}; add text, or ask for fewer"
        )
    moment = np.zeros((dimension, dimension), dtype=np.float64)
    for block in _blocks(vectors):
        moment += block.T @ block
    axes = np.linalg.eigh(moment)[1][:, ::-1][:, :width].T
    return _signed(axes).astype(np.float32)


def _blocks(vectors: NDArray[np.floating] | Vectors) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(vectors), BLOCK):
        stop = min(start + BLOCK, len(vectors))
        block = vectors.rows(range(start, stop)) if isinstance(vectors, Vectors) else vectors[start:stop]
        yield block.astype(np.float64)


def _signed(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make the largest coordinate of each axis positive: an eigenvector's sign is the library's whim."""
    largest = np.abs(axes).argmax(1)
    signs: NDArray[np.float64] = np.sign(axes[np.arange(len(axes)), largest])
    return axes * signs[:, None]
