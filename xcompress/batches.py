"""Batches of texts of similar length, so that little of a batch is padding, and threads that share batches."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor


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


def run_in_threads(run: Callable[[Sequence[int]], None], batches: Sequence[Sequence[int]], threads: int) -> None:
    """Call a function with each batch.

    :param threads: how many of its calls run at a time. Where no thread can start, this one makes them all.
    """
    if threads == 1:
        for rows in batches:
            run(rows)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        try:
            calls = pool.map(run, batches)
        except RuntimeError:  # the interpreter is about to end, or a limit on threads is reached
            calls = map(run, batches)
        for _ in calls:
            pass
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, the batches that wait are left out
