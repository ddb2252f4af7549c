import gzip
import lzma
from pathlib import Path

import pytest

from xcompress.corpus.pairs import Pair, read_tsv, write_tsv
from xcompress.errors import InputError

PAIRS = [
    Pair("The door is open.", "Die Tür ist offen.", "de", "x.tsv"),
    Pair("Good night.", "Gute Nacht.", "de", "x.tsv"),
]


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.tsv.xz"])
def test_written_pairs_are_read_back(tmp_path: Path, name: str) -> None:
    write_tsv(tmp_path / name, PAIRS)
    assert read_tsv(tmp_path / name, "de", "x.tsv") == PAIRS
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(Path(name).suffix)
    assert not opened or opened(tmp_path / name).read().startswith(b"The door")


def test_blank_lines_crlf_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes("\ufeffThe door is open.\tDie Tür ist offen.\r\n\n \nGood night.\tGute Nacht.".encode())
    assert read_tsv(path, "de") == PAIRS


def test_tabs_in_a_text_do_not_make_columns(tmp_path: Path) -> None:
    write_tsv(tmp_path / "x.tsv", [Pair("a\tb\nc", "d", "de", "o")])
    assert read_tsv(tmp_path / "x.tsv", "de")[0].source == "a b c"


def test_a_line_with_other_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("a\tb\n\na\tb\tc\n")
    with pytest.raises(InputError, match=r"x\.tsv:3: 3 columns"):
        read_tsv(tmp_path / "x.tsv", "de")


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(b"a\tb\nT\xfcr\tx\n")
    with pytest.raises(InputError, match=r"x\.tsv:2: not UTF-8"):
        read_tsv(tmp_path / "x.tsv", "de")


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_archives(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.tsv{suffix}"
    path.write_bytes(b"not compressed")
    with pytest.raises(InputError, match="damaged"):
        read_tsv(path, "de")
    write_tsv(path, PAIRS * 500)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged"):
        read_tsv(path, "de")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_tsv(tmp_path / "none.tsv", "de")
