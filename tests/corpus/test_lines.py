import bz2
import gzip
import io
import lzma
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from tests.helpers.limits import frugal
from xcompress.corpus import pairs
from xcompress.corpus.lines import LONGEST, BrokenOffError, Tally, bounded_lines, decode_lines, read_lines, text_lines
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


def test_a_reader_may_be_given_another_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 29 + b"\n" + b"b" * 30 + b"\nnext\n" + b"c" * LONGEST)
    cut = [b"a" * 29 + b"\n", b"b" * 30 + b"\n", b"next\n", b"c" * 31]
    assert list(read_lines(tmp_path / "x", longest=30)) == cut
    with (tmp_path / "x").open("rb") as file:
        assert list(bounded_lines(file, 30)) == cut


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_line_larger_than_memory_takes_none(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(PACK[suffix](b"a" * 30_000_000 + b"\nnext\n"))
    tracemalloc.start()
    assert [len(line) for line in read_lines(path)] == [LONGEST + 1, 5]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000  # of which .xz takes 8 MB for itself


def test_a_stream_of_one_endless_line_takes_no_memory() -> None:
    class Endless(io.RawIOBase):
        left = 400_000_000

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            count = min(len(buffer), self.left)
            buffer[:count] = b"x" * count
            self.left -= count
            return count

    with frugal(100):
        assert [len(line) for line in bounded_lines(io.BufferedReader(Endless()))] == [LONGEST + 1]


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


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lines_come_through_a_pipe(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    content = PACK[suffix](b"one\n" * 3000)
    writer = Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    assert list(read_lines(pipe)) == [b"one\n"] * 3000
    writer.join()


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="needs /dev/zero")
@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: is a device, not a regular file; name a file$"):
        next(read_lines(Path(name)))


def test_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path / "none.tsv", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            list(read_lines(path))


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_lines_are_decoded_and_keep_their_breaks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.txt{suffix}"
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    path.write_bytes(pack(b"\xef\xbb\xbfgr\xc3\xbcn\r\n\nend"))
    assert list(text_lines(path)) == ["grün\r\n", "\n", "end"]


def test_a_byte_order_mark_within_joined_files_is_removed(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes("\ufeffa\tb\n\ufeffc\t\ufeffd\n".encode())
    assert list(text_lines(tmp_path / "x.tsv")) == ["a\tb\n", "c\t\ufeffd\n"]


def test_other_separators_end_no_line(tmp_path: Path) -> None:
    line = "a\u2028b\u2029c\x85d\x0ce\x0bf\x1cg\rh\n"
    (tmp_path / "x.txt").write_bytes(line.encode())
    assert list(text_lines(tmp_path / "x.txt")) == [line]


def test_the_start_of_a_long_line_is_used_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes("aß\nabcdß and more\nend".encode())
    assert list(text_lines(tmp_path / "x.txt", longest=4, cut=True)) == ["aß\n", "abcd", "end"]
    assert list(decode_lines("x", ["abß".encode()[:3]], longest=2, cut=True)) == ["ab"]
    with pytest.raises(InputError, match=r"^standard input:1: not UTF-8 \(invalid start byte\); convert the file$"):
        list(decode_lines("standard input", [b"a\xffbc"], longest=3, cut=True))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"one\ngr\xfcn\n", "x.txt:2: not UTF-8"),
        (b"one\n" + b"a" * (LONGEST + 5), "x.txt:2: longer than 20,000 bytes"),
    ],
)
def test_bad_lines_of_text_are_named(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(InputError, match=re.escape(says)):
        list(text_lines(tmp_path / "x.txt"))


NO_TEXT = {
    "gzip": gzip.compress(b"one"),
    "bzip2": bz2.compress(b"one"),
    "xz": lzma.compress(b"one"),
    "zstd": b"\x28\xb5\x2f\xfd\4\0",
    "zip": b"PK\3\4\n\xff",
}


@pytest.mark.parametrize("kind", NO_TEXT)
def test_packed_text_is_named(kind: str) -> None:
    with pytest.raises(InputError, match=f"^standard input: packed with {kind}; unpack it first$"):
        list(decode_lines("standard input", bounded_lines(io.BytesIO(NO_TEXT[kind]))))


def test_utf_16_is_named() -> None:
    with pytest.raises(InputError, match=r"^x\.txt:1: not UTF-8 \(it is UTF-16\); convert the file$"):
        list(decode_lines("x.txt", bounded_lines(io.BytesIO("one".encode("utf-16")))))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
@pytest.mark.parametrize("text", ["one\n", "\nэто\n", "это\nэто\n", "one"])
def test_utf_16_without_a_byte_order_mark_is_named(encoding: str, text: str) -> None:
    lines = decode_lines("x", bounded_lines(io.BytesIO(text.encode(encoding))))
    with pytest.raises(InputError, match=r"^x:[12]: not UTF-8 \(it holds NUL, as UTF-16 does\); convert the file$"):
        list(lines)


def test_lines_that_end_in_cr_alone_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"one\rtwo\r")
    with pytest.raises(InputError, match=r"x\.txt: its lines end in CR alone; convert the file to LF$"):
        list(text_lines(tmp_path / "x.txt"))
    (tmp_path / "x.txt").write_bytes(b"one\r")
    assert list(text_lines(tmp_path / "x.txt")) == ["one\r"]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_text_files_are_named(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    packed = pack("".join(f"line {n * n}\n" for n in range(3000)).encode())
    (tmp_path / f"x{suffix}").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError, match=rf"x\{suffix}: cannot be read \(cut off after line \d+ .*copy the file again"):
        list(text_lines(tmp_path / f"x{suffix}"))


def tally(good: int, *bad: tuple[str, int], broken_off: str = "") -> Tally:
    made = Tally(Path("x.tsv"), good=good, broken_off=broken_off)
    for reason, line in bad:
        made.add(reason, line)
    return made


def test_the_most_common_reasons_are_named_with_a_line() -> None:
    bad = [(pairs.NO_TAB, 3), (pairs.NOT_UTF8, 5), (pairs.NO_TAB, 7), (pairs.EMPTY, 8), (pairs.COLUMNS, 9)]
    assert str(tally(9, *bad)) == (
        "5 of 14 lines are bad: 2 no tab (such as line 3), 1 not UTF-8 (such as line 5), "
        "1 an empty side (such as line 8), and 1 more"
    )
    assert str(tally(2999, bad[0])) == "1 of 3,000 lines is bad: 1 no tab (such as line 3)"
    assert str(tally(9, broken_off="cut off after line 9")) == "cut off after line 9"
    assert str(tally(9, bad[0], broken_off="cut off after line 9")).endswith(", and it is cut off after line 9")


def test_a_file_with_more_bad_lines_than_good_ones_is_refused() -> None:
    pairs.check_read(tally(2, (pairs.NO_TAB, 1), (pairs.NO_TAB, 2)))
    with pytest.raises(
        InputError, match=r"^x.tsv: 2 of 3 lines are bad: 2 no tab \(such as line 1\); write english<TA"
    ):
        pairs.check_read(tally(1, (pairs.NO_TAB, 1), (pairs.NO_TAB, 2)))
    with pytest.raises(InputError, match=r"^x.tsv: no line could be read, it is empty; write english<TAB>translation"):
        pairs.check_read(tally(0))
    with pytest.raises(InputError, match=r"no line could be read, cut off after line 0; copy"):
        pairs.check_read(tally(0, broken_off="cut off after line 0"))
