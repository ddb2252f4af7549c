from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

from xcompress.bench.eval.bootstrap import DRAWS, counts, percentage, rank_correlations, spearman_scores, to_figure


def rows_of(size: int) -> list[np.ndarray]:
    """List the rows of each resample."""
    return [np.repeat(np.arange(size), held) for drawn in counts(size) for held in drawn.T]


def test_draws_hold_as_many_rows_as_there_are_and_are_always_the_same() -> None:
    drawn = np.concatenate(list(counts(7)), axis=1)
    assert drawn.shape == (7, 1 + DRAWS)
    assert (drawn.sum(axis=0) == 7).all()
    assert (drawn[:, 0] == 1).all(), "first all rows"
    assert len(np.unique(drawn, axis=1).T) > DRAWS / 3
    assert (drawn == np.concatenate(list(counts(7)), axis=1)).all()


def test_few_rows_are_drawn_once_and_many_in_blocks_that_are_not_kept() -> None:
    assert counts(7) is counts(7)
    drawn = counts(30_000)
    assert isinstance(drawn, Iterator)
    sizes = [block.shape[1] for block in drawn]
    assert sum(sizes) == 1 + DRAWS
    assert max(sizes) * 30_000 <= 1 << 17


def test_percentages_against_a_loop() -> None:
    hits = np.array([True, False, True, True, False])
    expected = [100 * hits[rows].mean() for rows in rows_of(5)]
    assert percentage(hits) == pytest.approx(expected)
    assert percentage(hits)[0] == pytest.approx(60)


def test_spearman_against_ranking_every_draw() -> None:
    random = np.random.default_rng(1)
    left, right = random.normal(size=40), random.integers(0, 5, size=40).astype(float)
    found = rank_correlations(left, right)
    for row, rows in list(enumerate(rows_of(40)))[::50]:
        assert found[row] == pytest.approx(100 * spearmanr(left[rows], right[rows]).statistic), row
    ranks = rankdata(left[rows_of(40)[7]])
    assert len(set(ranks)) < 40, "drawn rows are ties"


def test_nothing_is_ranked_where_all_values_are_equal() -> None:
    assert (spearman_scores(np.ones(6), np.arange(6.0)) == 0).all()


def test_equal_and_opposite_rankings_are_sure() -> None:
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 9.0, 8.0, 7.0])
    for sign in (1, -1):
        found = to_figure(spearman_scores(values, sign * values**3))
        assert (found.value, found.low, found.high) == pytest.approx((100 * sign,) * 3)


def test_nearly_equal_rankings_lie_within_their_interval() -> None:
    """Uncentred resamples correlate less: the interval of a mean over languages would lie below the mean."""
    random = np.random.default_rng(5)
    pairs = [(values, values + 0.04 * random.normal(size=250)) for values in random.normal(size=(8, 250))]
    plain = to_figure(np.mean([rank_correlations(*both) for both in pairs], axis=0))
    centred = to_figure(np.mean([spearman_scores(*both) for both in pairs], axis=0))
    assert plain.high < plain.value == centred.value < 100
    assert centred.low < centred.value < centred.high < 100


def test_figures_by_hand() -> None:
    own = np.concatenate([[50.0], np.arange(1000.0)])
    base = own + 10
    alone, compared = to_figure(own), to_figure(own, base)
    assert (alone.value, alone.low, alone.high) == pytest.approx((50, 24.975, 974.025))
    assert (alone.drop, alone.drop_low, alone.drop_high) == (None, None, None)
    assert (compared.drop, compared.drop_low, compared.drop_high) == (10, 10, 10), "paired: the same rows for both"


def test_a_paired_drop_is_surer_than_two_intervals() -> None:
    random = np.random.default_rng(2)
    base = random.random(300) < 0.8
    own = base & (random.random(300) < 0.97)
    drop = to_figure(percentage(own), percentage(base))
    assert drop.drop_low is not None and drop.drop_high is not None
    assert 0 < drop.drop_low < drop.drop_high < (drop.high - drop.low) / 2


def test_intervals_of_percentages_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(3)
    found = [to_figure(percentage(random.random(100) < 0.7)) for _ in range(200)]
    covered = sum(one.low <= 70 <= one.high for one in found) / len(found)
    assert 0.90 <= covered <= 0.99


def test_intervals_of_correlations_hold_the_truth_as_often_as_they_say() -> None:
    """For two normal variables with correlation r, Spearman's rho is 6 / pi x arcsin(r / 2)."""
    truth = 600 / np.pi * np.arcsin(0.7 / 2)
    random = np.random.default_rng(4)
    pairs = random.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=(150, 100))
    found = [to_figure(spearman_scores(both[:, 0], both[:, 1])) for both in pairs]
    covered = sum(one.low <= truth <= one.high for one in found) / len(found)
    assert 0.88 <= covered <= 0.99
