"""Archives and compressed files that swell: refused in one line with little memory, disk and time."""

import bz2
import gzip
import io
import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.limits import frugal
from xcompress.corpus.lines import BrokenOffError, read_lines
from xcompress.errors import InputError
from xcompress.files import size_of
from xcompress.sources import archives
from xcompress.sources.archives import unpack
from xcompress.sources.packed import ALWAYS, TIMES, check_growth, open_packed


def zeros(megabytes: int, pack: Callable[[], object]) -> bytes:
    """Compress a million zeros again and again, without holding them."""
    packer, block = pack(), bytes(1_000_000)
    return b"".join([*(packer.compress(block) for _ in range(megabytes)), packer.flush()])  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    return {
        ".gz": zeros(130, lambda: zlib.compressobj(9, wbits=31)),
        ".xz": zeros(130, lambda: lzma.LZMACompressor(preset=0)),
    }


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_swells_is_refused_while_it_is_read(suffix: str, bombs: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(bombs[suffix])
    with frugal(300), pytest.raises(InputError, match="unpacks to more than") as caught:
        list(read_lines(path))
    assert "\n" not in str(caught.value)


def test_many_streams_in_a_file_count_together(tmp_path: Path) -> None:
    path = tmp_path / "bomb.xz"
    path.write_bytes(lzma.compress(bytes(10_000_000), preset=0) * 12)
    with frugal(300), pytest.raises(InputError, match="unpacks to more than"):
        list(read_lines(path))


def test_xz_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "greedy.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(b"a\n" * 1000, filters=filters))
    packed[16] = 40  # the size of the dictionary in the block's header: 4 GB
    packed[20:24] = struct.pack("<I", zlib.crc32(packed[12:20]))
    path.write_bytes(packed)
    with frugal(), pytest.raises(BrokenOffError, match="Memory usage limit"):
        list(read_lines(path))


def test_concatenated_and_padded_xz_streams_are_read(tmp_path: Path) -> None:
    path = tmp_path / "two.xz"
    path.write_bytes(lzma.compress(b"one\n") + bytes(8) + lzma.compress(b"two\n", preset=9) + bytes(4))
    assert list(read_lines(path)) == [b"one\n", b"two\n"]
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n"))
    assert list(read_lines(path)) == [b"one\n", b"two\n"]


def test_the_bound_is_a_size_and_a_ratio() -> None:
    check_growth(1, ALWAYS, "x")
    check_growth(1_000_000_000, ALWAYS + TIMES * 1_000_000_000, "x")
    with pytest.raises(InputError, match=r"unpacks to more than 100\.0 MB and 100 times its size"):
        check_growth(1, ALWAYS + TIMES + 1, "x")


def test_a_plain_file_is_itself(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"x")
    with (tmp_path / "x.txt").open("rb") as file:
        assert open_packed(file, tmp_path / "x.txt") is file


METHODS = {"deflate": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2, "lzma": zipfile.ZIP_LZMA}


@pytest.mark.parametrize("method", METHODS)
def test_a_zip_that_swells_is_refused(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.sources.packed.ALWAYS", 1_000_000)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", METHODS[method]) as archive, archive.open("zeros", "w") as entry:
        for _ in range(3):
            entry.write(bytes(1_000_000))
    with frugal(), pytest.raises(InputError, match="unpacks to more than"):
        unpack(path, tmp_path / "out", "x")
    assert not (tmp_path / "out").exists() or size_of(tmp_path / "out") == 0


def test_a_zip_whose_list_lies_about_sizes_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.sources.packed.ALWAYS", 1_000_000)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(30_000_000))
    packed = bytearray(path.read_bytes())
    place = packed.rindex(b"PK\1\2") + 24
    packed[place : place + 4] = struct.pack("<I", 1000)
    path.write_bytes(packed)
    with frugal(), pytest.raises(InputError, match=r"not a readable|unpacks to more"):
        unpack(path, tmp_path / "out", "x")
    assert size_of(tmp_path / "out") < 3_000_000


def test_entries_that_share_their_bytes_are_counted_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.sources.packed.ALWAYS", 1_000_000)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(50_000))
        first = archive.infolist()[0]
        for number in range(60):
            copy = zipfile.ZipInfo(f"a{number}")
            for name in ("CRC", "compress_size", "file_size", "header_offset", "compress_type", "flag_bits"):
                setattr(copy, name, getattr(first, name))
            archive.filelist.append(copy)
    (tmp_path / "bomb.zip").write_bytes(stream.getvalue())
    with frugal(), pytest.raises(InputError, match="unpacks to more than"):
        unpack(tmp_path / "bomb.zip", tmp_path / "out", "x")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "a/b"], "another entry of one name"),
        (["a/b", "a"], "another entry of one name"),
        (["a", "a/"], "another entry of one name"),
        (["a/", "a"], "another entry of one name"),
        (["a", "a"], "another entry of one name"),
        (["a", "./a"], "another entry of one name"),
        (["."], "another entry of one name"),
        (["x" * 300], "cannot be written"),
        ([("x" * 200 + "/") * 90 + "x"], "cannot be written"),
        (["x/" * 101 + "x"], "over 100 folders in each other"),
    ],
)
def test_names_that_no_folder_can_hold_are_refused(names: list[str], says: str, tmp_path: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        warnings.simplefilter("ignore")
        for name in names:
            archive.writestr(name, "" if name.endswith("/") else "x")
    with pytest.raises(InputError, match=says) as caught:
        unpack(tmp_path / "odd.zip", tmp_path / "out", "x")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 9)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(10):
            archive.writestr(f"{number}", "x")
    with pytest.raises(InputError, match="over 9 files"):
        unpack(tmp_path / "many.zip", tmp_path / "out", "x")


@pytest.mark.parametrize("method", METHODS)
def test_every_damaged_zip_is_one_line(method: str, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", METHODS[method]) as archive:
        archive.writestr("a/b", b"some text that is long enough " * 9)
    whole = stream.getvalue()
    for place in range(len(whole)):
        for value in (0, 255, whole[place] ^ 1):
            (tmp_path / "odd.zip").write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            try:
                unpack(tmp_path / "odd.zip", tmp_path / f"out{place}-{value}", "x")
            except InputError as error:
                assert "\n" not in str(error)


def test_bzip2_text_is_not_read_as_packed(tmp_path: Path) -> None:
    path = tmp_path / "x.bz2"
    path.write_bytes(bz2.compress(bytes(10_000_000)))
    assert sum(map(len, read_lines(path))) == path.stat().st_size
