import numpy as np
import pytest

from xcompress.metrics import cosine_matrix, cosines, spearman
from xcompress.modeling import centering
from xcompress.modeling.centering import centering_map, common_direction, mean_cosine


def cone(count: int = 600, width: int = 32) -> np.ndarray:
    """Return vectors of a narrow cone, in groups of six similar ones."""
    generator = np.random.default_rng(3)
    scales = np.linspace(1, 0.3, width)
    topics = np.repeat(generator.normal(size=(count // 6, width)), 6, axis=0)
    rows = (topics + 0.6 * generator.normal(size=(count, width))) * scales
    return (rows + 1.5 * np.linspace(0.2, 1, width)).astype(np.float32)


def test_cosines_of_unlike_sentences_come_near_zero_and_similar_ones_keep_their_order() -> None:
    fitted, unseen = np.split(cone(2400), 2)
    matrix, direction = centering_map(fitted), common_direction(fitted)
    assert matrix.shape == (32, 32) and matrix.dtype == np.float32
    assert mean_cosine(unseen) > 0.5
    assert abs(mean_cosine(unseen @ matrix.T)) < 0.15

    # The nearest quarter of all pairs, against the map that only takes out the common direction.
    pairs = np.triu_indices(len(unseen), 1)
    before = cosine_matrix(unseen, unseen)[pairs]
    near = before > np.quantile(before, 0.75)
    of_map, of_direction = (
        spearman(cosine_matrix(changed, changed)[pairs][near], before[near])
        for changed in (unseen @ matrix.T, unseen - np.outer(unseen @ direction, direction))
    )
    assert of_map > of_direction


@pytest.fixture
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit each step to an eighth of the sentences, and so to a 64th of the cosines."""
    monkeypatch.setattr(centering, "GROUPS", 8)


@pytest.mark.usefixtures("few_groups")
def test_the_map_is_the_same_each_time_and_does_not_depend_on_the_lengths_of_the_vectors() -> None:
    rows = cone()
    lengths = np.random.default_rng(1).uniform(0.1, 10, size=(len(rows), 1))
    matrix = centering_map(rows)
    np.testing.assert_array_equal(centering_map(rows), matrix)
    np.testing.assert_allclose(centering_map(rows * lengths), matrix, atol=1e-2)


@pytest.mark.usefixtures("few_groups")
@pytest.mark.parametrize("rows", [cone()[:2], cone()[:7], np.ones((9, 4), dtype=np.float32)])
def test_few_or_equal_vectors_give_a_finite_map(rows: np.ndarray) -> None:
    assert np.isfinite(centering_map(rows)).all()


def test_the_mean_cosine_leaves_out_that_of_a_vector_with_itself() -> None:
    rows = cone()[:50]
    table = cosine_matrix(rows, rows)
    assert mean_cosine(rows) == pytest.approx(table[~np.eye(50, dtype=bool)].mean(), abs=1e-6)


def test_without_the_common_direction_cosines_keep_their_order_better_than_without_the_mean() -> None:
    """Vectors with a . u = 1 but for noise, whose other coordinates have unequal variances and a mean of their own."""
    generator = np.random.default_rng(5)
    rest = (generator.normal(size=(3000, 15)) * np.linspace(0.5, 0.05, 15) + np.linspace(0.4, 0, 15)).astype(np.float32)
    rows = np.hstack([np.full((3000, 1), 2.0, dtype=np.float32), rest])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    direction, mean = common_direction(rows), rows.mean(0)
    assert direction.dtype == np.float32
    assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-6)
    assert (rows @ direction).std() < (rows @ (mean / np.linalg.norm(mean))).std()

    before = cosines(rows[:1500], rows[1500:])
    of_direction, of_mean = (
        spearman(cosines(changed[:1500], changed[1500:]), before)
        for changed in (rows - np.outer(rows @ direction, direction), rows - mean)
    )
    assert of_direction > of_mean


def test_the_common_direction_does_not_depend_on_the_lengths_of_the_vectors() -> None:
    rows = cone()
    lengths = np.random.default_rng(1).uniform(0.1, 10, size=(len(rows), 1))
    np.testing.assert_allclose(common_direction(rows * lengths), common_direction(rows), atol=1e-6)
