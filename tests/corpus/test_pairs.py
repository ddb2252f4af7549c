import gzip
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xcompress.corpus import pairs as faults
from xcompress.corpus.lines import LONGEST, BadLineError, Tally
from xcompress.corpus.pairs import (
    Pair,
    as_line,
    check_read,
    chunks_of_lines,
    parse_lines,
    split_line,
    warn_of_swapped_columns,
)
from xcompress.errors import InputError

PAIRS = [
    Pair("The door is open.", "Die Tür ist offen.", "de", "x.tsv"),
    Pair("Good night.", "Gute Nacht.", "de", "x.tsv"),
]
GOOD = b"".join(map(as_line, PAIRS))
PACK = {".tsv": bytes, ".gz": gzip.compress, ".xz": lambda data: lzma.compress(data, preset=0)}


def read_tsv(path: Path, language: str, origin: str = "", tally: Tally | None = None) -> Iterator[Pair]:
    """Yield the pairs of a file, as the corpus step reads them."""
    tally = tally or Tally(path)
    for first, lines in chunks_of_lines(path, tally):
        pairs, bad = parse_lines(lines, first, language, origin or path.name)
        tally.good += len(pairs)
        for line in bad:
            tally.add(*line)
        yield from pairs
    check_read(tally)


@pytest.mark.parametrize("suffix", PACK)
def test_pairs_written_as_lines_are_read_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(PACK[suffix](GOOD))
    assert list(read_tsv(path, "de", "x.tsv")) == PAIRS
    assert {pair.origin for pair in read_tsv(path, "de")} == {path.name}


def test_blank_lines_crlf_and_a_byte_order_mark(tmp_path: Path) -> None:
    path, tally = tmp_path / "x.tsv", Tally(tmp_path / "x.tsv")
    path.write_bytes("\ufeffThe door is open.\tDie Tür ist offen.\r\n\n \nGood night.\tGute Nacht.".encode())
    assert list(read_tsv(path, "de", tally=tally)) == PAIRS
    assert (tally.good, tally.bad) == (2, {})


def test_lines_are_numbered_through_all_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.corpus.pairs.LINES", 3)
    (tmp_path / "x.tsv").write_bytes(b"a\tb\n" * 8)
    chunks = chunks_of_lines(tmp_path / "x.tsv", Tally(tmp_path / "x.tsv"))
    assert [(first, len(lines)) for first, lines in chunks] == [(1, 3), (4, 3), (7, 2)]


def test_tabs_in_a_text_do_not_make_columns() -> None:
    assert as_line(Pair("a\tb\nc\u2028d", "e", "de", "o")) == b"a b c d\te\n"


@pytest.mark.parametrize(
    ("pairs", "is_swapped"),
    [
        ([("Die Tür ist offen.", "The door is open.")] * 20, True),
        ([("Die Tür ist offen.", "The door is open.")] * 10, False),
        ([("Die Tür ist offen.", "The door is open.")] * 20 + [("The door", "Die Tür")] * 7, False),
        ([("The door is open.", "Die Tür ist offen.")] * 20, False),
        ([("Why is it so?", "Ta\u0323i sao la\u0323i the\u0302\u0301?")] * 20, False),
        ([("Un the\u0301, s'il vous plai\u0302t", "Tea, please")] * 20, False),
    ],
)
def test_swapped_columns_are_suspected(
    pairs: list[tuple[str, str]], is_swapped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_of_swapped_columns(Path("x.tsv"), [f"{left}\t{right}\n".encode() for left, right in pairs], "de")
    said = " ".join(capsys.readouterr().err.split())
    assert is_swapped == ("`the` is in 100% of the first 20 lines in the column of 'de', and in 0%" in said)
    assert is_swapped or not said


def test_bad_lines_are_left_out_with_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.tsv"
    path.write_bytes(GOOD + b"T\xfcr\tx\nno tab\n" + GOOD)
    assert list(read_tsv(path, "de")) == PAIRS * 2
    said = "".join(capsys.readouterr().err.split())
    assert said.count("warning") == 1
    assert "2of6linesarebad:1notUTF-8(suchasline3),1notab(suchasline4)" in said


def test_a_good_file_gives_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.tsv").write_bytes(GOOD)
    assert list(read_tsv(tmp_path / "x.tsv", "de")) == PAIRS and not capsys.readouterr().err


def test_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes("\n".join(f"{pair.source}\t{pair.target}" for pair in PAIRS).encode("utf-16-be"))
    with pytest.raises(InputError, match=r"x\.tsv: 2 of 2 lines are bad: .*UTF-8.*; write english<TAB>translation"):
        list(read_tsv(tmp_path / "x.tsv", "de"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gzip.compress(GOOD), "packed with gzip; unpack it first"),
        (GOOD.decode().encode("utf-16"), "not UTF-8 (it is UTF-16); convert the file"),
        (GOOD.replace(b"\n", b"\r"), "its lines end in CR alone; convert the file to LF"),
    ],
    ids=["packed", "UTF-16", "CR"],
)
def test_a_file_that_is_no_such_text_is_named(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(InputError) as caught:
        list(read_tsv(tmp_path / "x.tsv", "de"))
    assert str(caught.value).endswith(says)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_file_that_is_cut_off_is_used_up_to_there(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tally = tmp_path / f"x{suffix}", Tally(tmp_path / "x")
    path.write_bytes(PACK[suffix](GOOD * 500)[:-20])
    read = list(read_tsv(path, "de", "x.tsv", tally))
    assert read == (PAIRS * 500)[: len(read)] and len(read) > 10
    assert tally.broken_off.startswith(f"cut off after line {len(read)} ") and not tally.bad
    assert f"cut off after line {len(read)}" in capsys.readouterr().err
    path.write_bytes(b"not compressed")
    with pytest.raises(InputError, match="no line could be read, damaged after line 0"):
        list(read_tsv(path, "de"))


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        list(read_tsv(tmp_path / "none.tsv", "de"))
    (tmp_path / "x.tsv").write_bytes(b"\n\n")
    with pytest.raises(InputError, match="no line could be read"):
        list(read_tsv(tmp_path / "x.tsv", "de"))


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        (b"a\tb\n", ("a", "b")),
        (b"a\tb", ("a", "b")),
        (b"a \t b\r\r\n", ("a ", " b")),
        ("\u202bשלום\u202c\tעולם\u200f\n".encode(), ("\u202bשלום\u202c", "עולם\u200f")),
        ("\ufeffa\t\ufeffb\n".encode(), ("a", "\ufeffb")),
        (b"\n", None),
        (b" \t \r\n", None),
        ("\ufeff\u200b\n".encode(), None),
    ],
)
def test_good_and_blank_lines(line: bytes, columns: tuple[str, str] | None) -> None:
    assert split_line(line) == columns


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"T\xfcr\tdoor\n", faults.NOT_UTF8),
        (b"a\tb\xf0\x9f\x98\n", faults.NOT_UTF8),
        (b"a\xc0\x80\tb\n", faults.NOT_UTF8),
        (b"a\t\xed\xa0\x80b\n", faults.SURROGATES),
        (b"a\xed\xa0\xbd\xed\xb8\x80\tb\n", faults.SURROGATES),
        (b"\xed\xa0\x80\tT\xfcr\n", faults.NOT_UTF8),
        (b"a\0\tb\n", faults.CONTROLS),
        (b"a\tb\x1b[0m\n", faults.CONTROLS),
        (b"a\rb\tc\n", faults.CONTROLS),
        ("a\u0085\tb\n".encode(), faults.CONTROLS),
        (b"a b\n", faults.NO_TAB),
        (b"a\tb\tc\n", faults.COLUMNS),
        (b"a\t\n", faults.EMPTY),
        (b" \tb\n", faults.EMPTY),
        ("\u200b\ufeff\tb\n".encode(), faults.EMPTY),
        (b"a\t" + b"b" * 19_999, faults.TOO_LONG),
    ],
)
def test_bad_lines(line: bytes, reason: str) -> None:
    with pytest.raises(BadLineError, match=f"^{reason}$"):
        split_line(line)


TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=20).map(
    lambda text: f"a{text}z"
)
HARMLESS = st.sampled_from(["", "\ufeff", "\u200f", "\u202b", "\u2067", "\u200b", "\u200d", "\u061c", " "])
SIDE = st.tuples(HARMLESS, TEXT, HARMLESS).map("".join)
ROW = st.tuples(SIDE, SIDE)
CONTROL = st.sampled_from([chr(code) for code in (*range(9), *range(14, 32), 127, 133, 159)])
BROKEN = st.sampled_from([b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\x80", b"\xf5\x80\x80\x80"])
SURROGATE = st.integers(0xD800, 0xDFFF).map(lambda code: chr(code).encode(errors="surrogatepass"))
BLANK = st.sampled_from([b"", b" ", b"\t", "\ufeff".encode(), b" \t "])


def good(row: tuple[str, str]) -> bytes:
    return "\t".join(row).encode()


LINES = {
    "good": ROW.map(good),
    "blank": BLANK,
    faults.NOT_UTF8: st.tuples(ROW, BROKEN).map(lambda made: good(made[0]) + made[1]),
    faults.SURROGATES: st.tuples(ROW, SURROGATE).map(lambda made: made[1] + good(made[0])),
    faults.CONTROLS: st.tuples(ROW, CONTROL).map(lambda made: good((made[0][0], f"b{made[1]}{made[0][1]}"))),
    faults.TOO_LONG: st.tuples(ROW, st.integers(LONGEST, 70_000)).map(lambda made: good(made[0]) + b"x" * made[1]),
    faults.NO_TAB: SIDE.map(str.encode),
    faults.COLUMNS: st.tuples(ROW, SIDE).map(lambda made: good(made[0]) + f"\t{made[1]}".encode()),
    faults.EMPTY: st.tuples(HARMLESS, SIDE, st.booleans()).map(lambda made: good(made[:2] if made[2] else made[1::-1])),
}
ANY_LINE = st.sampled_from(["good", *LINES]).flatmap(lambda kind: LINES[kind].map(lambda line: (kind, line)))


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_LINE, max_size=12), st.sampled_from([b"\n", b"\r\n"]), st.sampled_from(sorted(PACK)), st.booleans())
def test_every_good_line_is_read_and_every_bad_one_counted(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, bytes]],
    end: bytes,
    suffix: str,
    ends: bool,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"mixed{suffix}"
    path.write_bytes(PACK[suffix](end.join(line for _, line in lines) + (end if ends else b"")))
    expected = [tuple(line.decode().removeprefix("\ufeff").split("\t")) for kind, line in lines if kind == "good"]
    bad = [kind for kind, _ in lines if kind not in ("good", "blank")]
    tally, read = Tally(path), []
    try:
        for pair in read_tsv(path, "de", tally=tally):
            read.append((pair.source, pair.target))
        refused = False
    except InputError as error:
        refused = "\n" not in str(error) and str(path) in str(error)
    assert read == expected
    assert tally.good == len(expected) and tally.bad == {kind: bad.count(kind) for kind in bad}
    assert refused == (len(bad) > len(expected) or not lines or {kind for kind, _ in lines} == {"blank"})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(sorted(PACK)), st.booleans(), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, suffix: str, packed: bool, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / f"junk{suffix}"
    path.write_bytes((PACK[suffix](junk * 5) if packed else junk)[:cut])
    try:
        assert all(pair.source and pair.target for pair in read_tsv(path, "de"))
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
