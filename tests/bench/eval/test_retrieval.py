from collections.abc import Iterator

import numpy as np
import pytest

from xcompress.bench.eval.retrieval import Blocks, block_rows, nearest, nearest_by_margin


def blocks_of(candidates: np.ndarray, rows: int) -> Blocks:
    def blocks() -> Iterator[np.ndarray]:
        return (candidates[start : start + rows] for start in range(0, len(candidates), rows))

    return blocks


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def margin(queries: np.ndarray, candidates: np.ndarray, query: int, candidate: int, neighbours: int) -> float:
    """The ratio margin, term by term."""
    around_query = sorted(cosine(queries[query], one) for one in candidates)[-neighbours:]
    around_candidate = sorted(cosine(one, candidates[candidate]) for one in queries)[-neighbours:]
    halves = sum(around_query) / (2 * len(around_query)) + sum(around_candidate) / (2 * len(around_candidate))
    return cosine(queries[query], candidates[candidate]) / halves


@pytest.fixture
def vectors() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return (random.random((9, 4)) + 0.1).astype(np.float32), (random.random((23, 4)) + 0.1).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_blocks_against_a_loop(vectors: tuple[np.ndarray, np.ndarray], rows: int) -> None:
    queries, candidates = vectors
    expected = [max(range(23), key=lambda one: cosine(query, candidates[one])) for query in queries]
    assert nearest(queries, blocks_of(candidates, rows)).tolist() == expected


@pytest.mark.parametrize("rows", [1, 5, 100])
@pytest.mark.parametrize("neighbours", [1, 4, 50])
def test_margin_against_a_loop(vectors: tuple[np.ndarray, np.ndarray], rows: int, neighbours: int) -> None:
    queries, candidates = vectors
    expected = [
        max(range(23), key=lambda one: margin(queries, candidates, query, one, neighbours)) for query in range(9)
    ]
    assert nearest_by_margin(queries, blocks_of(candidates, rows), neighbours).tolist() == expected


def test_margin_passes_over_a_hub() -> None:
    """The hub is near all queries; the margin prefers candidates near one query and far from the others."""
    queries = np.array([[1, 0.3, 0], [1, 0, 0.3], [1, -0.3, 0]], dtype=np.float32)
    candidates = np.array([[1, 0, 0], [0.6, 0.6, 0], [0.6, 0, 0.6], [0.6, -0.6, 0]], dtype=np.float32)
    assert nearest(queries, blocks_of(candidates, 4)).tolist() == [0, 0, 0]
    assert nearest_by_margin(queries, blocks_of(candidates, 4), 3).tolist() == [1, 2, 3]


def test_of_equal_candidates_the_first_is_found_and_zeros_are_no_fault() -> None:
    candidates = np.array([[0, 0], [1, 0], [1, 0]], dtype=np.float32)
    assert nearest(np.array([[2, 0], [0, 0]], dtype=np.float32), blocks_of(candidates, 2)).tolist() == [1, 0]


def test_blocks_are_bounded() -> None:
    assert block_rows(1000) * 1000 <= 1 << 23
    assert block_rows(1 << 30) == 1
