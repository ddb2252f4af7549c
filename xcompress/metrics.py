"""Similarity and quality measures of sentence vectors."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

Vectors = NDArray[np.float32]
"""Sentence vectors, (N, D)."""
Encode = Callable[[Sequence[str]], Vectors]
"""Maps N texts to their vectors, (N, D)."""
Float = TypeVar("Float", bound=np.floating)
MAX_COSINES = 1 << 24
"""Maximum number of cosines that `nearest_rows` has in memory."""


def unit_length(vectors: NDArray[Float]) -> NDArray[Float]:
    """Scale each row of (N, D) to length 1, in its own precision; rows of zeros stay as they are."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    # The squares of very small and very large numbers leave the range. A power of two brings the largest number of each
    # row to 1 to 2, and changes no digit.
    powers = np.ldexp(np.ones_like(largest), np.frexp(largest)[1] - 1)
    scaled: NDArray[Float] = vectors / powers
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    scaled /= np.where(lengths > 0, lengths, 1)
    return scaled


def cosines(left: Vectors, right: Vectors) -> NDArray[np.float64]:
    """Return the cosine of row i of `left` with row i of `right`, both (N, D), 0 where one is all zeros; (N,)."""
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    lengths: NDArray[np.float64] = np.linalg.norm(wide_left, axis=1) * np.linalg.norm(wide_right, axis=1)
    return (wide_left * wide_right).sum(1) / np.where(lengths > 0, lengths, 1)  # type: ignore[no-any-return]


def cosine_matrix(left: Vectors, right: Vectors) -> Vectors:
    """Return the (N, M) cosines of the rows of `left` (N, D) with those of `right` (M, D)."""
    return unit_length(left) @ unit_length(right).T


def nearest_rows(vectors: Vectors, count: int, device: "torch.device") -> Iterator[list[int]]:
    """Yield, for each of N vectors (N, D), the rows of the `count` others of highest cosine, the highest first.

    There are N - 1 of them where `count` is larger.

    :param device: computes the cosines.
    """
    import torch

    count = min(count, len(vectors) - 1)
    # a block of rows at a time, so that the (N, N) cosines are never in memory at once
    block = max(1, MAX_COSINES // len(vectors))
    unit = torch.nn.functional.normalize(torch.from_numpy(vectors).to(device))
    for start in range(0, len(unit), block):
        cosines = unit[start : start + block] @ unit.T
        cosines[:, start:].fill_diagonal_(-torch.inf)  # none is near itself
        yield from cosines.topk(count).indices.tolist()


def spearman(left: NDArray[np.floating], right: NDArray[np.floating]) -> float:
    """Return 100 times Spearman's rank correlation of two score vectors (N,); NaN where all of one are equal."""
    from scipy.stats import ConstantInputWarning, spearmanr

    with warnings.catch_warnings(action="ignore", category=ConstantInputWarning):
        return 100 * float(spearmanr(left, right).statistic)


def retrieval_accuracy(sources: Vectors, targets: Vectors) -> float:
    """Return the percentage of sentences whose nearest neighbour by cosine is their translation.

    :param sources: (N, D).
    :param targets: (N, D); row i is the translation of row i of `sources`.
    :returns: the mean of both directions.
    """
    similarity = cosine_matrix(sources, targets)
    rows = np.arange(len(sources))
    forward = (similarity.argmax(1) == rows).mean()
    backward = (similarity.argmax(0) == rows).mean()
    return 50 * float(forward + backward)
