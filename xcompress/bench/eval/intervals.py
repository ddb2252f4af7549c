"""Scores with 95 % intervals, their means over languages, and the drop against a reference.

Correlations are bootstrapped. A score is an array (1 + DRAWS,): its value on all rows, then on resamples drawn with
replacement. The resamples depend only on the number of rows, so they are the same for two models, and for two languages
whose rows are translations of each other: differences are paired, and means over languages keep the correlation of
their errors. Means and differences are then plain arithmetic on these arrays. scipy.stats.bootstrap is not used because
it draws new resamples for every score.

Where two rankings are equal, or all rows are hits, so are those of every resample, and the interval of a bootstrap
would have no width. Equal rankings have Fisher's interval, those of two models a drop with its width on both sides, and
shares of hits Wilson's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.results import Figure, Interval

DRAWS = 1000
SEED = 20170
PERCENTILES = (2.5, 97.5)
"""The ends of a 95 % interval."""
Z = NormalDist().inv_cdf(0.975)
"""Standard deviations from the middle of a 95 % interval to its ends."""
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
Hits = NDArray[np.bool_]
"""(N,): whether each row is right."""


def share_figure(hits: Sequence[Hits], reference: Sequence[Hits] | None = None) -> Figure:
    """Return the mean share of hits in percent with its interval and, with a reference, the drop with its interval.

    The drop is the share of rows lost, which only the reference has right, less that of rows gained. The arms of their
    intervals are added as errors with the correlation r: drop - low = sqrt((lost - its low)^2 + (gained's high -
    gained)^2 - 2 r (lost - its low) (gained's high - gained)) (Zou and Donner, 2008).

    :param hits: of each language or direction. Those of the same length are taken for the same rows.
    :param reference: in the same order, on the same rows.
    """
    share, own_rows, _ = _mean_share(hits)
    value, low, high = _wilson(share, _cautious_rows(hits, share, own_rows))
    if reference is None:
        return Figure(value, low, high)
    pairs = list(zip(hits, reference, strict=True))
    share_lost, rows_lost, lost_by = _mean_share([base & ~own for own, base in pairs])
    share_gained, rows_gained, gained_by = _mean_share([own & ~base for own, base in pairs])
    # few lost or gained rows tell little of how much languages share them: take the fewer independent rows for both
    rows = min(filter(None, (rows_lost, rows_gained)), default=sum(map(len, hits)))
    lost, lost_low, lost_high = _wilson(share_lost, rows)
    gained, gained_low, gained_high = _wilson(share_gained, rows)
    norm = sqrt((lost_by @ lost_by) * (gained_by @ gained_by))
    correlation = float(lost_by @ gained_by) / norm if norm else 0.0

    def arm(one: float, other: float) -> float:
        return sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))

    drop = lost - gained
    drop_low = drop - arm(lost - lost_low, gained_high - gained)
    drop_high = drop + arm(lost_high - lost, gained - gained_low)
    return Figure(value, low, high, drop, drop_low, drop_high)


def _cautious_rows(hits: Sequence[Hits], share: float, rows: float | None) -> float:
    """Return independent rows of a mean share that are fewer where few rows are wrong.

    These tell little of how much languages share their errors. So w wrong rows in a language count w times, and once
    that languages of the same length share them all: 1 / rows is the mean. Of one language it is as it was.

    :param rows: as the rows that are wrong tell; None where none or all are.
    """
    languages = Counter(map(len, hits))
    if_shared = sum(count**2 / length for length, count in languages.items()) / len(hits) ** 2
    wrong = min(share, 1 - share) * sum(map(len, hits)) / len(hits)
    return (wrong + 1) / (if_shared + (wrong / rows if rows else 0))


def _mean_share(parts: Sequence[Hits]) -> tuple[float, float | None, NDArray[np.float64]]:
    """Return the mean share P of hits, its rows, and how far each row moves it.

    Its rows are the number of independent rows that would give its variance, P (1 - P) / variance, as for samples drawn
    in clusters; None where the variance is 0.
    """
    by_length: dict[int, NDArray[np.int64]] = {}
    for part in parts:
        by_length[len(part)] = by_length.get(len(part), 0) + part.astype(np.int64)
    moves = np.concatenate([(sums - sums.mean()) / (rows * len(parts)) for rows, sums in by_length.items()])
    share, variance = float(np.mean([part.sum() / len(part) for part in parts])), float(moves @ moves)
    return share, share * (1 - share) / variance if variance else None, moves


def _wilson(share: float, rows: float) -> Interval:
    """Return a share in percent with Wilson's interval."""
    middle = (share + Z**2 / (2 * rows)) / (1 + Z**2 / rows)
    arm = Z / (1 + Z**2 / rows) * sqrt(share * (1 - share) / rows + (Z / (2 * rows)) ** 2)
    low, high = max(0.0, middle - arm), min(1.0, middle + arm)
    return 100 * share, 100 * min(share, low), 100 * max(share, high)


def spearman_scores(left: NDArray[np.floating], right: NDArray[np.floating]) -> Scores:
    """Return Spearman's rank correlation x 100 of two scores (N,), with the resamples centred on its value.

    A resample has fewer distinct rows, and so ranks more coarsely: where two rankings are nearly equal, most resamples
    correlate less than all rows do, and the interval of a mean over languages would not even contain the mean. So the
    resamples are shifted on Fisher's scale, z = artanh r, until their mean is the value on all rows.
    """
    scores = rank_correlations(left, right)
    if abs(scores[0]) > 100 - _EQUAL:
        signed: Scores = np.sign(scores[0]) * _of_equal_rankings(len(left))
        return signed
    transformed = np.arctanh(np.clip(scores / 100, -1 + _EQUAL, 1 - _EQUAL))
    centered: Scores = 100 * np.tanh(transformed + transformed[0] - transformed[1:].mean())
    return np.concatenate([scores[:1], centered[1:]])


def _of_equal_rankings(rows: int) -> Scores:
    """Return scores of two equal rankings: their resamples are equal, too, however few the rows are.

    Half of the draws are 100. The others lie on Fisher's scale below the next lower correlation, that of two neighbours
    swapped, with the standard error sqrt((1 + r^2 / 2) / (N - 3)) (Bonett and Wright, 2000) at r = 1. The errors are
    the same for all numbers of rows, so that a mean of such scores reaches 100, too.
    """
    next_lower = np.arctanh(max(0.0, 1 - 12 / (rows * (rows**2 - 1))))
    errors = np.random.default_rng(SEED).normal(size=DRAWS) * sqrt(1.5 / max(1, rows - 3))
    scores: Scores = 100 * np.concatenate([[1.0], np.where(errors < 0, np.tanh(next_lower + errors), 1.0)])
    return scores


def apart(reference: Scores, scores: Scores, rows: int) -> Scores:
    """Return the reference's scores; where a model ranks the rows as it does, with room for a drop in the resamples.

    Other rows may tell the two apart: a model that agrees with the reference to r loses or gains up to 1 - r.
    """
    if not np.array_equal(reference, scores):
        return reference
    lacking = np.sort(100 - _of_equal_rankings(rows)[1:])
    return np.concatenate([reference[:1], reference[1:] + lacking - lacking[::-1]])


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


def bootstrap_figure(scores: Sequence[Scores], reference: Sequence[Scores] | None = None) -> Figure:
    """Return the mean of scores with its interval and, with a reference, the drop with its interval."""
    mean: Scores = np.mean(scores, axis=0)
    low, high = np.percentile(mean[1:], PERCENTILES)
    if reference is None:
        return Figure(float(mean[0]), float(low), float(high))
    drop: Scores = np.mean(reference, axis=0) - mean
    drop_low, drop_high = np.percentile(drop[1:], PERCENTILES)
    return Figure(float(mean[0]), float(low), float(high), float(drop[0]), float(drop_low), float(drop_high))


def counts(rows: int) -> Iterable[Counts]:
    """Yield how often each row is drawn, in blocks (rows, k) of k resamples; the first is each row once."""
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
