"""Batches of texts of similar length, so that little of a batch is padding."""

from collections.abc import Callable, Iterator, Sequence


def group_by_length(lengths: Sequence[int], most_rows: Callable[[int], int]) -> Iterator[list[int]]:
    """Yield the numbers of rows in batches of similar length, the shortest rows first, equal ones in their order.

    :param lengths: length of each row.
    :param most_rows: returns how many rows a batch may have whose longest row has this length; one row always fits.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and len(batch) >= most_rows(lengths[row]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
