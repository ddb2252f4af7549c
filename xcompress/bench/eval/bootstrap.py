"""Bootstrap confidence intervals: a score on all rows, and on resamples drawn with replacement.

A score is an array (1 + DRAWS,): its value on all rows, then on each resample. The resamples depend only on the number
of rows, so they are the same for two models, and for two languages whose rows are translations of each other:
differences are paired, and means over languages keep the correlation of their errors. Means and differences are then
plain arithmetic on these arrays.

scipy.stats.bootstrap is not used because it draws new resamples for every score.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.results import Figure

DRAWS = 1000
SEED = 20170
PERCENTILES = (2.5, 97.5)
"""The ends of a 95 % interval."""
_CELLS = 1 << 17
"""Rows x resamples of a block: its ranks take 1 MB, which stays in a processor's cache."""
_KEPT_CELLS = 1 << 21
"""Most rows x resamples that are kept, 4 MB, so that they are drawn once for all scores of a test set."""
_KEPT = 8
"""Numbers of rows whose resamples are kept at a time."""
_EQUAL = 1e-9
"""Correlations this close to 1 mean equal rankings."""

Scores = NDArray[np.float64]
"""(1 + DRAWS,): on all rows, then on each resample."""
Counts = NDArray[np.int16]


def percentage(hits: NDArray[np.bool_]) -> Scores:
    """Return the share of hits (N,) in percent."""
    return np.concatenate([100 * drawn[hits].sum(axis=0) / len(hits) for drawn in counts(len(hits))])


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
        weighted = drawn * first
        covariance, first_square, second_square = (
            np.einsum("nk,nk->k", a, b) for a, b in ((weighted, second), (weighted, first), (drawn * second, second))
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


def counts(rows: int) -> Iterable[Counts]:
    """Return how often each row is drawn, (rows, k) at a time: first once each, then as each resample holds it."""
    return _kept_counts(rows) if rows * DRAWS <= _KEPT_CELLS else _draw(rows)


@lru_cache(_KEPT)
def _kept_counts(rows: int) -> tuple[Counts, ...]:
    return tuple(_draw(rows))


def _draw(rows: int) -> Iterator[Counts]:
    yield np.ones((rows, 1), dtype=np.int16)
    random = np.random.default_rng((SEED, rows))
    at_once = max(1, _CELLS // rows)
    for start in range(0, DRAWS, at_once):
        draws = min(at_once, DRAWS - start)
        cells = random.integers(rows, size=(draws, rows)) * draws + np.arange(draws)[:, np.newaxis]
        yield np.bincount(cells.ravel(), minlength=rows * draws).reshape(rows, draws).astype(np.int16)


class _Ranking:
    """The order of values (N,), sorted once; the ranks in any resample follow from it."""

    def __init__(self, values: NDArray[np.floating]) -> None:
        self.order = np.argsort(values)
        ordered = values[self.order]
        self.below = np.searchsorted(ordered, values, side="left")
        self.up_to = np.searchsorted(ordered, values, side="right")

    def centered(self, drawn: Counts) -> NDArray[np.float64]:
        """Return twice the rank of each row less the mean rank, (N, k); whole numbers, so that sums are exact.

        The average rank of a value, with b rows below it and e rows up to it, is (b + e + 1) / 2.
        """
        rows, resamples = drawn.shape
        first = np.zeros((rows + 1, resamples), dtype=np.int32)  # rows drawn among the first n of the order
        np.cumsum(drawn[self.order], axis=0, out=first[1:])
        centered: NDArray[np.float64] = (first[self.below] + first[self.up_to] - rows).astype(np.float64)
        return centered
