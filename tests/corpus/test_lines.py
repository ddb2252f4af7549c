import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from xcompress.corpus.lines import LONGEST, BrokenOffError, read_lines
from xcompress.errors import InputError

PACK: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("suffix", PACK)
def test_lines_of_plain_and_compressed_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.tsv{suffix}"
    path.write_bytes(PACK[suffix](b"\xef\xbb\xbfone\n\ntwo\r\n\xef\xbb\xbfthree"))
    assert list(read_lines(path)) == [b"\xef\xbb\xbfone\n", b"\n", b"two\r\n", b"\xef\xbb\xbfthree"]


def test_the_longest_line_is_read_whole_and_a_longer_one_is_cut(tmp_path: Path) -> None:
    fits, over, far_over = b"a" * (LONGEST - 1) + b"\n", b"b" * LONGEST + b"\n", b"c" * 200_000 + b"\n"
    (tmp_path / "x").write_bytes(fits + over + far_over + b"next\n" + b"d" * 30_000)
    lines = list(read_lines(tmp_path / "x"))
    assert [line[:1] for line in lines] == [b"a", b"b", b"c", b"n", b"d"]
    assert lines[0] == fits and lines[3] == b"next\n"
    assert [len(line) for line in lines[1:3] + lines[4:]] == [LONGEST + 1] * 3


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_line_larger_than_memory_takes_none(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(PACK[suffix](b"a" * 30_000_000 + b"\nnext\n"))
    tracemalloc.start()
    assert [len(line) for line in read_lines(path)] == [LONGEST + 1, 5]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # of which .xz takes 8 MB for itself


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_is_cut_off_gives_the_lines_before(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    whole = [f"this is line {n * n % 9973} of {n}\n".encode() for n in range(5000)]
    packed = PACK[suffix](b"".join(whole))
    path.write_bytes(packed[: len(packed) // 2])
    read: list[bytes] = []
    with pytest.raises(BrokenOffError, match=r"^cut off after line (\d+)") as stopped:
        read.extend(read_lines(path))
    read = []
    with pytest.raises(BrokenOffError):
        for line in read_lines(path):
            read.append(line)
    assert 1000 < len(read) < 4500 and read == whole[: len(read)]
    assert f"after line {len(read)} " in str(stopped.value)


def test_a_damaged_file_gives_the_lines_before(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"".join(f"line {n * n % 9973}\n".encode() for n in range(50_000))))
    packed[len(packed) // 2 : len(packed) // 2 + 64] = bytes(64)
    (tmp_path / "x.gz").write_bytes(packed)
    lines = read_lines(tmp_path / "x.gz")
    assert next(lines) == b"line 0\n"
    with pytest.raises(BrokenOffError, match=r"^(damaged|cut off) after line \d\d+"):
        list(lines)


def test_what_is_not_compressed_at_all_is_damaged_from_the_start(tmp_path: Path) -> None:
    for name in ("x.gz", "x.xz"):
        (tmp_path / name).write_bytes(b"not compressed")
        with pytest.raises(BrokenOffError, match="damaged after line 0"):
            list(read_lines(tmp_path / name))


@pytest.mark.parametrize("suffix", PACK)
def test_progress_adds_up_to_the_size_of_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(PACK[suffix](b"".join(f"line {n * n}\n".encode() for n in range(30_000))))
    told: list[int] = []
    list(read_lines(path, told.append))
    assert sum(told) == path.stat().st_size and len(told) == 16


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            list(read_lines(path))
