"""Nearest neighbours among more vectors than there is memory for their similarities: candidates come in blocks."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Blocks = Callable[[], Iterator[Vectors]]
"""Gives all candidates (M, D), some rows at a time, as often as it is called."""
NEIGHBOURS = 4
"""k of the margin score, as its authors chose it."""
_CELLS = 1 << 23
"""Similarities held in memory at once."""


def block_rows(queries: int) -> int:
    """Return how many candidates to give at a time."""
    return max(1, _CELLS // max(1, queries))


def nearest(queries: Vectors, blocks: Blocks) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest cosine; of equal ones, the first."""
    return _best(len(queries), _similarities(queries, blocks))


def nearest_by_margin(queries: Vectors, blocks: Blocks, neighbours: int = NEIGHBOURS) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest ratio margin.

    margin(x, y) = cos(x, y) / (mean of cos(x, z) over the k candidates nearest to x / 2 + mean of cos(z, y) over the k
    queries nearest to y / 2) (Artetxe and Schwenk, 2019). The blocks are gone through twice.

    :param neighbours: k, or as many as there are.
    """
    highest = np.empty((len(queries), 0), dtype=np.float32)
    around_candidates = []
    for similarity in _similarities(queries, blocks):
        highest = _top(np.concatenate([highest, similarity], axis=1), neighbours)
        around_candidates.append(_top(similarity.T, neighbours).mean(axis=1))
    around_queries = highest.mean(axis=1, keepdims=True)
    margins = (
        similarity / ((around_queries + around) / 2)
        for similarity, around in zip(_similarities(queries, blocks), around_candidates, strict=True)
    )
    return _best(len(queries), margins)


def _similarities(queries: Vectors, blocks: Blocks) -> Iterator[Vectors]:
    """Yield the cosines of all queries with each block, (N, block)."""
    normalised = _unit(queries)
    for block in blocks():
        yield normalised @ _unit(block).T


def _best(queries: int, blocks: Iterator[Vectors]) -> NDArray[np.int64]:
    """Return the column of each row's highest score over all blocks."""
    highest = np.full(queries, -np.inf, dtype=np.float32)
    found = np.zeros(queries, dtype=np.int64)
    start = 0
    for scores in blocks:
        column = scores.argmax(axis=1)
        score = scores[np.arange(queries), column]
        better = score > highest
        highest[better], found[better] = score[better], start + column[better]
        start += scores.shape[1]
    return found


def _top(scores: Vectors, count: int) -> Vectors:
    """Return the highest scores of each row, in no order."""
    kept = min(count, scores.shape[1])
    top: Vectors = np.partition(scores, -kept, axis=1)[:, -kept:]
    return top


def _unit(vectors: Vectors) -> Vectors:
    """Return vectors of length 1; zeros stay zeros."""
    single = vectors.astype(np.float32)
    lengths = np.linalg.norm(single, axis=1, keepdims=True)
    unit: Vectors = np.divide(single, lengths, out=np.zeros_like(single), where=lengths > 0)
    return unit
