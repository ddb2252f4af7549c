import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.corpus import columns
from xcompress.corpus.columns import ColumnFile, lowest, part_bits, partition, write_npy

NUMBERS = np.dtype(np.uint64)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "BLOCK", 50)
    monkeypatch.setattr(columns, "PART", 64)


def hashes(count: int, distinct: int) -> NDArray[np.uint64]:
    generator = np.random.default_rng(count)
    numbers = generator.integers(0, 2**64, distinct, dtype=np.uint64, endpoint=False)
    return numbers[generator.integers(0, distinct, count)]


def in_file(path: Path, numbers: NDArray[np.uint64]) -> ColumnFile:
    file = ColumnFile(path, NUMBERS)
    for block in np.array_split(numbers, 3):
        file.append(block)
    return file


def test_rows_are_read_as_they_were_appended(tmp_path: Path) -> None:
    numbers = hashes(170, 170)
    file = in_file(tmp_path / "x", numbers)
    assert len(file) == 170 and [len(block) for block in file.blocks()] == [50, 50, 50, 20]
    assert (np.concatenate(list(file.blocks())) == numbers).all()
    assert len(ColumnFile(tmp_path / "none", NUMBERS)) == 0


@pytest.mark.parametrize("count", [1, 64, 65, 1000])
def test_parts_have_equal_numbers_together_in_the_order_of_rows(count: int, tmp_path: Path) -> None:
    numbers, bits = hashes(count, 90), part_bits(count)
    file = in_file(tmp_path / "x", numbers)
    parts = list(partition(file.blocks, bits, tmp_path / "scratch"))
    assert len(parts) == 2**bits and count / 2**bits <= columns.PART
    values, rows = (np.concatenate(side) for side in zip(*parts, strict=True))
    assert sorted(rows.tolist()) == list(range(count)) and (numbers[rows] == values).all()
    for (before, _), (after, _) in pairwise(parts):
        assert not len(before) or not len(after) or before.max() < after.min()
    assert all((np.diff(rows) > 0).all() for _, rows in parts)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("count", [0, 1, 7, 299, 300, 400])
def test_the_lowest_are_those_of_a_sort(count: int) -> None:
    numbers, rows = hashes(300, 100), np.arange(300)

    def blocks() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        for start in range(0, 300, 70):
            yield numbers[start : start + 70], rows[start : start + 70]

    threshold = lowest(blocks, count)
    assert (threshold is None) == (count >= 300)
    if threshold:
        kept = np.flatnonzero(threshold.mask(numbers, rows))
        assert kept.tolist() == sorted(np.argsort(numbers, kind="stable")[:count].tolist())


def test_an_npy_is_the_one_that_numpy_saves(tmp_path: Path) -> None:
    for numbers in (hashes(120, 9), hashes(3, 3)[:0]):
        np.save(tmp_path / "a.npy", numbers)
        write_npy(tmp_path / "b.npy", NUMBERS, (len(numbers),), np.array_split(numbers, 4))
        assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_memory_does_not_grow_with_the_numbers(tmp_path: Path) -> None:
    files = [in_file(tmp_path / f"{count}", hashes(count, count)) for count in (1_000, 20_000, 80_000)]
    # a process of its own, as other tests leave threads and caches that allocate; the first file only warms up
    code = """
import sys, tracemalloc
from pathlib import Path
import numpy as np
from xcompress.corpus import columns
columns.BLOCK, columns.PART = 50, 64
for path in sys.argv[1:]:
    file = columns.ColumnFile(Path(path), np.dtype(np.uint64))
    tracemalloc.start()
    parts = columns.partition(file.blocks, columns.part_bits(len(file)), Path(path + ".parts"))
    found = sum(len(np.unique(values)) for values, _ in parts)
    print(found / len(file), tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""
    command = [sys.executable, "-c", code, *(str(file.path) for file in files)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (_, _), (share, small), (_, large) = (map(float, line.split()) for line in printed.splitlines())
    assert share > 0.6
    assert large < small + 8 * 20_000, "a number takes eight bytes"
