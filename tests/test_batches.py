import pytest

from xcompress.batches import group_by_length


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([2, 9, 3, 2, 4], [[0, 3], [2, 4], [1]]),
        ([2, 2, 2, 2], [[0, 1, 2, 3]]),
        ([30], [[0]]),
        ([], []),
    ],
)
def test_a_batch_holds_as_many_rows_as_its_longest_allows(lengths: list[int], batches: list[list[int]]) -> None:
    assert list(group_by_length(lengths, lambda tokens: 8 // tokens)) == batches


def test_a_batch_may_hold_a_number_of_rows_of_any_length() -> None:
    assert list(group_by_length([5, 0, 3, 4000, 0], lambda _: 2)) == [[1, 4], [2, 0], [3]]
