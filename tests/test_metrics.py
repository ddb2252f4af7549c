import numpy as np
import pytest
import torch

from xcompress import metrics
from xcompress.metrics import cosine_matrix, cosines, nearest_rows, retrieval_accuracy, spearman, unit_length


def test_cosines_are_row_by_row_and_ignore_length() -> None:
    left, right = np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([[5.0, 5.0], [-6.0, -8.0]])
    assert cosines(left, right) == pytest.approx([2**-0.5, -1.0])


@pytest.mark.filterwarnings("error")
def test_the_cosine_with_zeros_is_0_as_in_the_matrix() -> None:
    left, right = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    assert cosines(left, right).tolist() == np.diag(cosine_matrix(left, right)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_of_any_length_are_scaled_to_1(dtype: type[np.floating]) -> None:
    limits, rows = np.finfo(dtype), np.random.default_rng(1).normal(size=(3, 5)).astype(dtype)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for scale in (1, 1e-25, 1e25, limits.max / 8, limits.tiny):
        np.testing.assert_allclose(unit_length(rows * dtype(scale)), expected, atol=1e-6)
    np.testing.assert_allclose(unit_length(rows), expected, rtol=0, atol=1e-7)
    assert unit_length(rows).dtype == dtype
    assert unit_length(np.zeros((2, 3), dtype)).tolist() == np.zeros((2, 3)).tolist()
    assert unit_length(np.zeros((2, 0), dtype)).shape == (2, 0)


def test_spearman_sees_order_only_and_averages_ties() -> None:
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 100.0, 1000.0])) == pytest.approx(100)
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(94.868, abs=1e-3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scores", [[1.0, 1.0, 1.0], [3.0, np.nan, 1.0]])
def test_equal_scores_and_nan_have_no_rank_correlation_and_no_warning(scores: list[float]) -> None:
    assert np.isnan(spearman(np.array(scores), np.array([1.0, 2.0, 3.0])))
    assert np.isnan(spearman(np.array([1.0, 2.0, 3.0]), np.array(scores)))


def test_retrieval_is_the_mean_of_both_directions() -> None:
    sources = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    targets = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.4]])
    # forward: rows 0 and 1 are found, row 2 lies next to target 0; backward: all are found
    assert retrieval_accuracy(sources, targets) == pytest.approx(50 * (2 / 3 + 1))


def test_the_nearest_rows_are_those_of_all_cosines(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = np.random.default_rng(1).normal(size=(23, 5)).astype(np.float32)
    expected = cosine_matrix(vectors, vectors)
    np.fill_diagonal(expected, -np.inf)
    order = np.argsort(-expected, axis=1)
    for most in (1, 50, 10_000):  # one row at a time, two, all
        monkeypatch.setattr(metrics, "MAX_COSINES", most)
        assert list(nearest_rows(vectors, 4, torch.device("cpu"))) == order[:, :4].tolist()
    assert [len(rows) for rows in nearest_rows(vectors, 40, torch.device("cpu"))] == [22] * 23, "none is near itself"
