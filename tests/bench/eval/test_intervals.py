from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import binomtest, rankdata, spearmanr

from xcompress.bench.eval.intervals import (
    DRAWS,
    apart,
    bootstrap_figure,
    counts,
    rank_correlations,
    share_figure,
    spearman_scores,
)


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
    drawn = counts(3000)
    assert isinstance(drawn, Iterator)
    blocks = list(drawn)
    sizes = [block.shape[1] for block in blocks]
    assert sum(sizes) == 1 + DRAWS
    assert max(sizes) * 3000 <= 1 << 17
    assert all(map(np.array_equal, blocks, counts(3000))), "the same rows for another model"


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


def test_equal_and_opposite_rankings_of_few_rows_are_not_sure() -> None:
    values = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 9.0, 8.0, 7.0])
    equal, opposite = (bootstrap_figure([spearman_scores(values, sign * values**3)]) for sign in (1, -1))
    assert (equal.value, equal.high) == (-opposite.value, -opposite.low) == pytest.approx((100, 100))
    assert (equal.low, -opposite.high) == pytest.approx((82, 82), abs=1)
    lows = [bootstrap_figure([spearman_scores(np.arange(rows), np.arange(rows))]).low for rows in (2, 3, 5, 20, 250)]
    assert -100 < lows[0] < lows[1] < -80 and -40 < lows[2] < 0 and 99 < lows[3] < 99.9 < lows[4] < 100


def test_models_that_rank_few_rows_alike_leave_room_for_a_drop() -> None:
    random = np.random.default_rng(9)
    for rows, width in ((8, 18), (14, 1.8)):
        values = random.normal(size=rows)
        scores, others = (spearman_scores(values, other) for other in random.normal(size=(2, rows)))
        figure = bootstrap_figure([scores], [apart(scores, scores, rows)])
        assert figure.drop == 0
        assert (figure.drop_low, figure.drop_high) == pytest.approx((-width, width), rel=0.05)
        assert apart(others, scores, rows) is others


@pytest.mark.parametrize("rows", [4, 5, 8, 20])
def test_equal_rankings_are_rare_where_the_truth_is_below_their_interval(rows: int) -> None:
    low = bootstrap_figure([spearman_scores(np.arange(rows), np.arange(rows))]).low
    pearson = 2 * np.sin(np.pi / 6 * low / 100)  # of two normal variables with this rank correlation
    pairs = np.random.default_rng(8).multivariate_normal([0, 0], [[1, pearson], [pearson, 1]], size=(4000, rows))
    left, right = pairs.argsort(axis=1).argsort(axis=1).transpose(2, 0, 1)
    assert (left == right).all(axis=1).mean() <= 0.025


def test_nearly_equal_rankings_lie_within_their_interval() -> None:
    """Uncentred resamples correlate less: the interval of a mean over languages would lie below the mean."""
    random = np.random.default_rng(5)
    pairs = [(values, values + 0.04 * random.normal(size=250)) for values in random.normal(size=(8, 250))]
    plain = bootstrap_figure([rank_correlations(*both) for both in pairs])
    centred = bootstrap_figure([spearman_scores(*both) for both in pairs])
    assert plain.high < plain.value == centred.value < 100
    assert centred.low < centred.value < centred.high < 100


def test_figures_by_hand() -> None:
    own = np.concatenate([[50.0], np.arange(1000.0)])
    base = own + 10
    alone, compared = bootstrap_figure([own]), bootstrap_figure([own], [base])
    assert (alone.value, alone.low, alone.high) == pytest.approx((50, 24.975, 974.025))
    assert (alone.drop, alone.drop_low, alone.drop_high) == (None, None, None)
    assert (compared.drop, compared.drop_low, compared.drop_high) == (10, 10, 10), "paired: the same rows for both"


def test_one_row_that_most_languages_lose_is_no_loss_beyond_chance() -> None:
    rows, languages = 100, 28
    reference = [np.ones(rows, dtype=bool) for _ in range(languages)]
    own = [np.ones(rows, dtype=bool) for _ in range(languages)]
    for hits in own[:25]:
        hits[7] = False
    reference[0][3] = False  # the first language gains another row
    figure = share_figure(own, reference)
    assert figure.drop == pytest.approx(100 * 24 / (rows * languages))
    assert figure.drop_low is not None and figure.drop_low < 0
    for hits in own:
        hits[20:30] = False  # ten rows are no chance any more
    sure = share_figure(own, reference)
    assert sure.drop_low is not None and sure.drop_low > 0


def test_a_paired_drop_is_surer_than_two_intervals() -> None:
    random = np.random.default_rng(2)
    base = random.random(1000) < 0.8
    own = base & (random.random(1000) < 0.99)
    drop = share_figure([own], [base])
    assert drop.drop_low is not None and drop.drop_high is not None
    assert 0 < drop.drop_low < drop.drop_high < (drop.high - drop.low) / 2


def test_the_drop_of_one_language_has_the_standard_error_of_a_paired_difference() -> None:
    """That is sqrt((lost + gained) / N) where as many rows are lost as gained: no row is both."""
    kind = np.arange(40_000) % 4
    found = share_figure([(kind == 0) | (kind == 2)], [kind < 2])
    arm = 100 * 1.96 * np.sqrt(0.5 / len(kind))
    assert (found.drop, found.drop_low, found.drop_high) == pytest.approx((0, -arm, arm), rel=1e-3)


def test_intervals_of_percentages_hold_the_truth_as_often_as_they_say() -> None:
    """With a bootstrap, two of three intervals held 99 %."""
    random = np.random.default_rng(3)
    for share in (0.7, 0.99):
        found = [share_figure([random.random(100) < share]) for _ in range(500)]
        assert 0.90 <= np.mean([one.low <= 100 * share <= one.high for one in found]) <= 0.99, share


@pytest.mark.parametrize("shared", [1, 0.8, 0])
def test_intervals_of_means_hold_the_truth_where_few_rows_are_wrong(shared: float) -> None:
    """Of 100 rows one is wrong, in eight languages at once or in each apart."""
    random = np.random.default_rng(8)
    held = []
    for _ in range(500):
        wrong, own = random.random(100) < 0.01, random.random((8, 100)) < 0.01
        found = share_figure(list(~np.where(random.random((8, 100)) < shared, wrong, own)))
        held.append(found.low <= 99 <= found.high)
    assert np.mean(held) >= 0.9


def test_intervals_of_means_and_drops_hold_the_truth_as_often_as_they_say() -> None:
    """Eight languages in both directions, where the reference has 99 % and the subject 98 %; hard rows are shared."""
    random = np.random.default_rng(6)
    means, drops, single = [], [], []
    for _ in range(300):
        hard, own = random.random(100), random.random((16, 100))
        base = [row > 0.01 for row in np.where(hard < 0.2, own / 5, own)]
        subject = [each & (random.random(100) < 0.98 / 0.99) for each in base]
        truth = 100 * (0.2 * 0.95 + 0.8 * 0.99)
        lost = truth * (1 - 0.98 / 0.99)
        mean, one = share_figure(subject, base), share_figure(subject[:1], base[:1])
        means.append(mean.low <= truth - lost <= mean.high)
        drops.append((mean.drop_low or 0) <= lost <= (mean.drop_high or 0))
        single.append((one.drop_low or 0) <= lost <= (one.drop_high or 0))
    assert np.mean(means) >= 0.93
    assert np.mean(drops) >= 0.93
    assert np.mean(single) >= 0.93


@pytest.mark.parametrize(("right", "rows"), [(100, 100), (99, 100), (0, 7), (430, 1000), (1, 2)])
def test_intervals_of_single_shares_are_those_of_wilson(right: int, rows: int) -> None:
    found, expected = share_figure([np.arange(rows) < right]), binomtest(right, rows).proportion_ci(method="wilson")
    assert found.value == 100 * right / rows
    assert (found.low, found.high) == pytest.approx((100 * expected.low, 100 * expected.high))


def test_means_over_languages_that_err_on_the_same_rows_are_no_surer() -> None:
    random = np.random.default_rng(7)
    rows, others = random.random(200) < 0.9, random.random((7, 200)) < 0.9
    alone, same = share_figure([rows]), share_figure([rows] * 8)
    assert (same.low, same.high) == pytest.approx((alone.low, alone.high))
    apart = share_figure([rows, *others])
    assert apart.high - apart.low < (alone.high - alone.low) / 2
    assert share_figure([rows[:150], *others]).low < apart.value, "of another length: other rows"


def test_rows_that_two_models_have_right_alike_leave_room_for_a_drop() -> None:
    for hits in (np.ones(100, dtype=bool), np.arange(100) < 60):
        found = share_figure([hits], [hits])
        assert found.drop == 0
        assert (found.drop_low, found.drop_high) == pytest.approx((-3.699, 3.699), abs=0.001)


def test_intervals_of_correlations_hold_the_truth_as_often_as_they_say() -> None:
    """For two normal variables with correlation r, Spearman's rho is 6 / pi x arcsin(r / 2)."""
    truth = 600 / np.pi * np.arcsin(0.7 / 2)
    random = np.random.default_rng(4)
    pairs = random.multivariate_normal([0, 0], [[1, 0.7], [0.7, 1]], size=(150, 100))
    found = [bootstrap_figure([spearman_scores(both[:, 0], both[:, 1])]) for both in pairs]
    covered = sum(one.low <= truth <= one.high for one in found) / len(found)
    assert 0.88 <= covered <= 0.99
