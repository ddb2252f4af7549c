"""Bootstrap intervals: a score on all rows, and on rows drawn with replacement.

A score is kept as an array (1 + DRAWS,): on all rows first, then on every draw. The rows that a draw holds depend on
the number of rows alone. So the draws of two subjects, and of two languages whose rows are translations of each other,
hold the same rows: differences are paired, and means over languages keep what their errors have in common. Means and
differences are then plain arithmetic on these arrays.

scipy.stats.bootstrap is not used, as it draws anew for every score.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.results import Figure

DRAWS = 1000
SEED = 20170
PERCENTILES = (2.5, 97.5)
"""Of the draws: the ends of a 95 % interval."""
_CELLS = 1 << 21
"""Draws x rows held in memory at once."""
_EQUAL = 1e-9
"""A correlation this close to 1 is one of equal rankings."""

Scores = NDArray[np.float64]
"""(1 + DRAWS,): on all rows, and on every draw."""
Counts = NDArray[np.int64]


def percentage(hits: NDArray[np.bool_]) -> Scores:
    """Return how many of the rows (N,) are hits, in percent."""
    return np.concatenate([100 * (drawn @ hits) / len(hits) for drawn in counts(len(hits))])


def spearman(left: NDArray[np.floating], right: NDArray[np.floating]) -> Scores:
    """Return Spearman's rank correlation times 100 of two scores (N,), the draws centred on its value.

    A draw has fewer distinct rows than there are, and so ranks more coarsely: where two rankings are nearly equal, most
    draws correlate less than all rows do, and the interval of a mean over languages would not even hold the mean. So
    the draws are moved, on Fisher's scale z = artanh r, until their mean is the value on all rows.
    """
    scores = rank_correlations(left, right)
    if abs(scores[0]) > 100 - _EQUAL:
        return scores
    transformed = np.arctanh(np.clip(scores / 100, -1 + _EQUAL, 1 - _EQUAL))
    moved: Scores = 100 * np.tanh(transformed + transformed[0] - transformed[1:].mean())
    return np.concatenate([scores[:1], moved[1:]])


def rank_correlations(left: NDArray[np.floating], right: NDArray[np.floating]) -> Scores:
    """Return Spearman's rank correlation times 100 of two scores (N,), the draws as they come.

    Every draw is ranked anew, ties by their average rank, as drawing with replacement makes many. Where all values of
    one side are equal nothing is ranked, and the correlation counts as 0.
    """
    sides = _Ranking(left), _Ranking(right)
    return np.concatenate([100 * _correlation(drawn, *sides) for drawn in counts(len(left))])


def figure(own: Scores, base: Scores | None = None) -> Figure:
    """Return the value with its interval and, against a reference, the drop with its own."""
    low, high = np.percentile(own[1:], PERCENTILES)
    if base is None:
        return Figure(float(own[0]), float(low), float(high))
    drop = base - own
    drop_low, drop_high = np.percentile(drop[1:], PERCENTILES)
    return Figure(float(own[0]), float(low), float(high), float(drop[0]), float(drop_low), float(drop_high))


def counts(rows: int) -> Iterator[Counts]:
    """Yield how often each row is held, (k, rows) at a time: first once each, then as every draw has it."""
    yield np.ones((1, rows), dtype=np.int64)
    random = np.random.default_rng((SEED, rows))
    at_once = max(1, _CELLS // rows)
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        drawn = random.integers(rows, size=(draws, rows)) + rows * np.arange(draws)[:, np.newaxis]
        yield np.bincount(drawn.ravel(), minlength=draws * rows).reshape(draws, rows)


class _Ranking:
    """The order of values (N,), from which the ranks in any draw follow without sorting again."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        distinct, self.place = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.place, kind="stable")
        self.starts = np.searchsorted(self.place[self.order], np.arange(len(distinct)))

    def centred(self, drawn: Counts) -> NDArray[np.float64]:
        """Return the rank of each row less the mean rank, (k, N).

        Of a value held c times, with b rows below it, the average rank is b + (c + 1) / 2.
        """
        held = np.add.reduceat(drawn[:, self.order], self.starts, axis=1)
        ranks = held.cumsum(axis=1) - (held - 1) / 2
        centred: NDArray[np.float64] = ranks[:, self.place] - (drawn.shape[1] + 1) / 2
        return centred


def _correlation(drawn: Counts, left: _Ranking, right: _Ranking) -> NDArray[np.float64]:
    """Return Pearson's correlation of the ranks in each draw, (k,)."""
    first, second = left.centred(drawn), right.centred(drawn)
    together, one, other = (
        np.einsum("kn,kn,kn->k", drawn, a, b) for a, b in ((first, second), (first, first), (second, second))
    )
    size = np.sqrt(one * other)
    correlation: NDArray[np.float64] = np.divide(together, size, out=np.zeros_like(size), where=size > 0)
    return correlation
