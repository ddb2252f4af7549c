"""Principal axes of sentence vectors."""

import numpy as np
from numpy.typing import NDArray


def principal_axes(vectors: NDArray[np.floating], count: int, *, fix_signs: bool = True) -> NDArray[np.float32]:
    """Return the orthonormal axes on which vectors have the largest second moment, (count, D), the largest first.

    The axes are the top eigenvectors of M = sum over i of x_i x_i^T, and minimise sum over i of |x_i - A^T A x_i|^2.
    This is PCA without centring: cosines are measured about the origin, and a shift would change them.

    :param vectors: x_i, (N, D).
    :param count: number of axes, at most D.
    :param fix_signs: make the largest coordinate of each axis positive, as the sign of an eigenvector depends on the
        library. Without it, axes keep the library's sign.
    """
    exact = vectors.astype(np.float64)
    axes = np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :count].T
    if fix_signs:
        largest = np.abs(axes).argmax(1)
        axes = axes * np.sign(axes[np.arange(len(axes)), largest])[:, None]
    return axes.astype(np.float32)
