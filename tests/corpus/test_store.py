import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import ROOT
from xcompress.corpus import store
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.store import PairFile, hashes_path, offsets_path, text_hash, write_lines
from xcompress.errors import InputError


def pairs(count: int) -> list[Pair]:
    return [Pair(f"Row {n}" + "x" * (n % 7), f"Zeile {n} ü", "de", "x.tsv") for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_lines(tmp_path / "x.tsv", map(as_line, pairs(100)))
    return tmp_path / "x.tsv"


def test_every_row_by_number_slice_and_in_turn(path: Path) -> None:
    stored, expected = PairFile(path, "de"), pairs(100)
    assert len(stored) == 100
    assert [stored[row] for row in (17, 99, 0, -1)] == [expected[row] for row in (17, 99, 0, -1)]
    assert stored[np.int64(5)] == expected[5]
    assert stored[95:200:2] == expected[95:200:2]
    assert list(stored) == expected and expected[3] in stored
    for row in (100, -101):
        with pytest.raises(IndexError):
            stored[row]


def test_pages_are_given_back_without_changing_what_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_ROWS_PER_RELEASE", 3)
    stored = PairFile(path, "de")
    assert [stored[row] for row in range(100)] == pairs(100)


def test_files_are_opened_at_the_first_read(tmp_path: Path) -> None:
    stored = PairFile(tmp_path / "none.tsv", "de")
    with pytest.raises(InputError, match=r"none\.tsv: cannot be read"):
        len(stored)


def test_an_index_over_several_blocks_finds_every_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_LINES", 7)
    write_lines(path, map(as_line, pairs(30)))
    stored, rows = PairFile(path, "de"), np.array([3, 29, 3, 0])
    assert [stored[row] for row in range(30)] == pairs(30)
    for side in ("source", "target"):
        texts = [getattr(pairs(30)[row], side).encode() for row in rows]
        assert stored.hashes(side, rows).tobytes() == b"".join(map(text_hash, texts))


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.unlink(),
        lambda file: file.write_bytes(b"\x93NUMPY"),
        lambda file: file.write_bytes(b"PK\3\4"),
        lambda file: np.save(file, np.zeros((2, 99), np.uint64)),
    ],
    ids=["missing", "cut off", "a zip", "of another file"],
)
@pytest.mark.parametrize("index", [offsets_path, hashes_path])
def test_an_index_that_is_damaged_is_refused(
    path: Path, index: Callable[[Path], Path], damage: Callable[[Path], object]
) -> None:
    damage(index(path))
    with pytest.raises(InputError, match=r"x\.tsv: cannot be read \(x\.tsv\.\w+\.npy.*\); delete .+ and run again"):
        PairFile(path, "de").hashes("source", np.array([3]))
        PairFile(path, "de")[3]


def test_an_empty_file_has_no_pairs(tmp_path: Path) -> None:
    write_lines(tmp_path / "x.tsv", [])
    assert list(PairFile(tmp_path / "x.tsv", "de")) == [] == PairFile(tmp_path / "x.tsv", "de")[:]


def test_a_line_that_is_no_pair_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"Row 7\t", b"Row 7 ").replace(b"Row 9xx\t", b"Row 9 \xff\t"))
    for row in (7, 9):
        with pytest.raises(InputError, match=rf"x\.tsv:{row + 1}: not english<TAB>translation; delete"):
            PairFile(path, "de")[row]


def test_a_pair_file_can_be_pickled(path: Path) -> None:
    stored = PairFile(path, "de")
    assert stored[3] == pickle.loads(pickle.dumps(stored))[3]


def test_writing_and_reading_take_no_memory_for_the_length(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    # a process of its own, as other tests leave threads and caches that allocate; the first file only warms up
    code = """
import sys, tracemalloc
from pathlib import Path
from tests.corpus.test_store import pairs
from xcompress.corpus import columns
from xcompress.corpus.pairs import as_line
from xcompress.corpus.store import PairFile, write_lines
columns.BLOCK = 1000
path = Path(sys.argv[1])
for times in (1, 150, 300):
    tracemalloc.start()
    write_lines(path, (as_line(pair) for number in range(times) for pair in pairs(100)))
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    stored = PairFile(path, "de")
    assert [stored[row].source for row in range(0, 100 * times, 100)] == ["Row 0"] * times
    print(written, tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()
"""
    command = [sys.executable, "-c", code, str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    (half, _), (written, peak) = (map(int, line.split()) for line in printed.splitlines()[1:])
    assert written - half < 15_000 * 24 / 4, "the numbers of a line take 24 bytes"
    assert peak < 200_000 < path.stat().st_size
