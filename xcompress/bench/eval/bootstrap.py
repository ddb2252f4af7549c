"""Bootstrap confidence intervals: a score on all rows, and on resamples drawn with replacement.

A score is an array (1 + DRAWS,): its value on all rows, then on each resample. The resamples depend only on the number
of rows, so they are the same for two models, and for two languages whose rows are translations of each other:
differences are paired, and means over languages keep the correlation of their errors. Means and differences are then
plain arithmetic on these arrays.

scipy.stats.bootstrap is not used because it draws new resamples for every score.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.results import Figure

DRAWS = 1000
SEED = 20170
PERCENTILES = (2.5, 97.5)
"""The ends of a 95 % interval."""
_CELLS = 1 << 21
"""Resamples x rows held in memory at once."""
_EQUAL = 1e-9
"""Correlations this close to 1 mean equal rankings."""

Scores = NDArray[np.float64]
"""(1 + DRAWS,): on all rows, then on each resample."""
Counts = NDArray[np.int64]


def percentage(hits: NDArray[np.bool_]) -> Scores:
    """Return the share of hits (N,) in percent."""
    return np.concatenate([100 * (drawn @ hits) / len(hits) for drawn in counts(len(hits))])


def spearman_scores(left: NDArray[np.floating], right: NDArray[np.floating]) -> Scores:
    """Return Spearman's rank correlation x 100 of two scores (N,), with the resamples centred on its value.

    A resample has fewer distinct rows, and so ranks more coarsely: where two rankings are nearly equal, most resamples
    correlate less than all rows do, and the interval of a mean over languages would not even contain the mean. So the
    resamples are shifted on Fisher's scale, z = artanh r, until their mean is the value on all rows.
    """
    scores = rank_correlations(left, right)
    if abs(scores[0]) > 100 - _EQUAL:
        return scores
    transformed = np.arctanh(np.clip(scores / 100, -1 + _EQUAL, 1 - _EQUAL))
    centered: Scores = 100 * np.tanh(transformed + transformed[0] - transformed[1:].mean())
    return np.concatenate([scores[:1], centered[1:]])


def rank_correlations(left: NDArray[np.floating], right: NDArray[np.floating]) -> Scores:
    """Return Spearman's rank correlation x 100 of two scores (N,), without centring the resamples.

    Each resample is ranked anew, with average ranks for ties, since drawing with replacement makes many. Where all
    values of one side are equal the correlation is undefined and counts as 0.
    """
    left_ranking, right_ranking = _Ranking(left), _Ranking(right)
    parts = []
    for drawn in counts(len(left)):
        # Pearson's correlation of the ranks
        first, second = left_ranking.centered(drawn), right_ranking.centered(drawn)
        covariance, first_square, second_square = (
            np.einsum("kn,kn,kn->k", drawn, a, b) for a, b in ((first, second), (first, first), (second, second))
        )
        norm = np.sqrt(first_square * second_square)
        parts.append(100 * np.divide(covariance, norm, out=np.zeros_like(norm), where=norm > 0))
    return np.concatenate(parts)


def to_figure(scores: Scores, reference: Scores | None = None) -> Figure:
    """Return the value with its interval and, with a reference, the drop with its interval."""
    low, high = np.percentile(scores[1:], PERCENTILES)
    if reference is None:
        return Figure(float(scores[0]), float(low), float(high))
    drop = reference - scores
    drop_low, drop_high = np.percentile(drop[1:], PERCENTILES)
    return Figure(float(scores[0]), float(low), float(high), float(drop[0]), float(drop_low), float(drop_high))


def counts(rows: int) -> Iterator[Counts]:
    """Yield how often each row is drawn, (k, rows) at a time: first once each, then as each resample holds it."""
    yield np.ones((1, rows), dtype=np.int64)
    random = np.random.default_rng((SEED, rows))
    at_once = max(1, _CELLS // rows)
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        drawn = random.integers(rows, size=(draws, rows)) + rows * np.arange(draws)[:, np.newaxis]
        yield np.bincount(drawn.ravel(), minlength=draws * rows).reshape(draws, rows)


class _Ranking:
    """The order of values (N,), sorted once; the ranks in any resample follow from it."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        distinct, self.place = np.unique(values, return_inverse=True)
        self.order = np.argsort(self.place, kind="stable")
        self.starts = np.searchsorted(self.place[self.order], np.arange(len(distinct)))

    def centered(self, drawn: Counts) -> NDArray[np.float64]:
        """Return the rank of each row less the mean rank, (k, N).

        The average rank of a value drawn c times, with b rows below it, is b + (c + 1) / 2.
        """
        held = np.add.reduceat(drawn[:, self.order], self.starts, axis=1)
        ranks = held.cumsum(axis=1) - (held - 1) / 2
        centered: NDArray[np.float64] = ranks[:, self.place] - (drawn.shape[1] + 1) / 2
        return centered
