"""Numbers of all pairs, in files: appended, read block by block, and brought together where they are equal.

Everything here takes the same memory for any number of pairs, and a time in proportion to it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 18
"""Rows that are read at a time."""
PART = 1 << 20
"""Numbers that `partition` has in memory at a time, about."""
_ENTRY = np.dtype([("value", "<u8"), ("row", "<i8")])

Numbers = NDArray[np.uint64]
Rows = NDArray[np.int64]


class ColumnFile:
    """Rows of a fixed size in a file that is open only while it is read or written."""

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self.path, self.dtype = path, dtype

    def __len__(self) -> int:
        return self.path.stat().st_size // self.dtype.itemsize if self.path.exists() else 0

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows after the last one."""
        with self.path.open("ab") as stream:
            np.ascontiguousarray(rows, self.dtype).tofile(stream)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the rows in their order, `BLOCK` at a time."""
        for row in range(0, len(self), BLOCK):
            yield np.fromfile(self.path, self.dtype, BLOCK, offset=row * self.dtype.itemsize)

    def column(self, name: str) -> Iterator[NDArray[Any]]:
        """Yield one number of each row, block by block."""
        for block in self.blocks():
            yield block[name]


def part_bits(count: int) -> int:
    """Return the number of first bits by which `count` numbers fall into parts of about `PART`."""
    return max(-(-count // PART) - 1, 0).bit_length()


def partition(column: Callable[[], Iterable[Numbers]], bits: int, scratch: Path) -> Iterator[tuple[Numbers, Rows]]:
    """Yield numbers in 2^bits parts by their first bits, from the lowest to the highest, with the row of each.

    Equal numbers are in the same part, in the order of their rows. The numbers should be hashes, so that the parts are
    of similar length.

    Sorting with numpy or polars takes about as long, and all numbers in memory: see benchmarks/scale.md.

    :param column: returns the numbers in the order of their rows, block by block; called twice.
    :param scratch: a temporary file, 16 bytes a number; removed at the end.
    """
    # Count the numbers of each part.
    counts = np.zeros(1 << bits, np.int64)
    for block in column():
        counts += np.bincount(_first_bits(block, bits), minlength=len(counts))
    ends = np.cumsum(counts)

    # Write each number where its part is.
    places, row = ends - counts, 0
    with scratch.open("wb", buffering=0) as stream:
        for block in column():
            parts = _first_bits(block, bits)
            order = np.argsort(parts, kind="stable")
            _write_entries(stream, block[order], row + order, parts[order], places)
            row += len(block)

    # Read the parts.
    for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
        entries = np.fromfile(scratch, _ENTRY, count, offset=(end - count) * _ENTRY.itemsize)
        yield entries["value"], entries["row"]
    scratch.unlink()


def in_row_order(
    entries: Iterable[tuple[Rows, NDArray[np.integer]]], count: int, scratch: Path
) -> Iterator[NDArray[np.uint64]]:
    """Yield the numbers of the rows 0 ... count - 1 in that order, `PART` at a time.

    :param entries: rows in ascending order and a number for each, as `partition` gives them; each row once in all.
    :param scratch: a temporary file, 16 bytes a number; removed at the end.
    """
    places = np.arange(0, count, PART)
    with scratch.open("wb", buffering=0) as stream:
        for rows, numbers in entries:
            _write_entries(stream, numbers, rows, rows // PART, places)
    for start in range(0, count, PART):
        found = np.fromfile(scratch, _ENTRY, min(PART, count - start), offset=start * _ENTRY.itemsize)
        block = np.empty(len(found), np.uint64)
        block[found["row"] - start] = found["value"]
        yield block
    scratch.unlink()


def _write_entries(stream: IO[bytes], numbers: NDArray[np.integer], rows: Rows, parts: Rows, places: Rows) -> None:
    """Write numbers with their rows at the places of their parts, and move these places on.

    :param parts: the part of each number, in ascending order.
    :param places: the entry in the file where the next number of each part goes.
    """
    entries = np.empty(len(rows), _ENTRY)
    entries["value"], entries["row"] = numbers, rows
    counts = np.bincount(parts, minlength=len(places))
    starts = np.cumsum(counts) - counts
    for part in np.flatnonzero(counts).tolist():
        stream.seek(int(places[part]) * _ENTRY.itemsize)
        stream.write(entries[starts[part] : starts[part] + counts[part]].tobytes())
    places += counts


def _first_bits(numbers: Numbers, bits: int) -> NDArray[np.int64]:
    return (numbers >> np.uint64(1) >> np.uint64(63 - bits)).astype(np.int64)


class Threshold(NamedTuple):
    """The highest of the lowest numbers, by number and row."""

    number: int
    row: int

    def mask(self, numbers: Numbers, rows: Rows) -> NDArray[np.bool_]:
        """Return a mask (n,) of the numbers up to this one."""
        mask: NDArray[np.bool_] = (numbers < self.number) | ((numbers == self.number) & (rows <= self.row))
        return mask


def lowest(blocks: Callable[[], Iterable[tuple[Numbers, Rows]]], count: int) -> Threshold | None:
    """Find the `count` lowest numbers, of equal ones those of the first rows; None where there are no more.

    :param blocks: returns hashes and their rows, block by block; called twice.
    """
    # Count the numbers by their first 16 bits, and collect those where the limit falls.
    counts = np.zeros(1 << 16, np.int64)
    for numbers, _ in blocks():
        counts += np.bincount(_first_bits(numbers, 16), minlength=len(counts))
    ends = np.cumsum(counts)
    if ends[-1] <= count:
        return None
    if count == 0:
        return Threshold(0, -1)
    part = int(np.searchsorted(ends, count))
    found = [
        (numbers[mask], rows[mask]) for numbers, rows in blocks() if (mask := _first_bits(numbers, 16) == part).any()
    ]
    numbers, rows = (np.concatenate(side) for side in zip(*found, strict=True))
    last = np.lexsort((rows, numbers))[count - int(ends[part] - counts[part]) - 1]
    return Threshold(int(numbers[last]), int(rows[last]))


def write_npy(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], blocks: Iterable[NDArray[Any]]) -> None:
    """Write an .npy block by block, as `numpy.save` does with an array in memory."""
    with path.open("wb") as stream:
        _write_header(stream, dtype, shape)
        for block in blocks:
            np.ascontiguousarray(block, dtype).tofile(stream)


@contextmanager
def growing_npy(path: Path, dtype: np.dtype[Any]) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Yield a function that appends numbers to a new .npy, (N,), whose length is not known before."""
    with path.open("wb") as stream:
        _write_header(stream, dtype, (0,))
        start = stream.tell()
        yield lambda block: np.ascontiguousarray(block, dtype).tofile(stream)
        count = (stream.tell() - start) // dtype.itemsize
        stream.seek(0)
        _write_header(stream, dtype, (count,))  # as long as the first: numpy leaves space for any number of digits


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
