"""Principal axes of sentence vectors."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


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
