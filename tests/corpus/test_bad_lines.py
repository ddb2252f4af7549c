from pathlib import Path

import pytest

from xcompress.corpus import bad_lines as faults
from xcompress.corpus.bad_lines import BadLineError, Tally, columns_of
from xcompress.errors import InputError


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
    assert columns_of(line) == columns


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
        columns_of(line)


def tally(good: int, *bad: tuple[str, int], broken_off: str = "") -> Tally:
    made = Tally(Path("x.tsv"), good=good, broken_off=broken_off)
    for reason, line in bad:
        made.add(reason, line)
    return made


def test_the_most_common_reasons_are_named_with_a_line() -> None:
    bad = [(faults.NO_TAB, 3), (faults.NOT_UTF8, 5), (faults.NO_TAB, 7), (faults.EMPTY, 8), (faults.COLUMNS, 9)]
    assert str(tally(9, *bad)) == (
        "5 of 14 lines are bad: 2 no tab (such as line 3), 1 not UTF-8 (such as line 5), "
        "1 an empty side (such as line 8), and 1 more reasons"
    )
    assert str(tally(9, broken_off="cut off after line 9")) == "cut off after line 9"
    assert str(tally(9, bad[0], broken_off="cut off after line 9")).endswith(", and it is cut off after line 9")


def test_a_file_with_more_bad_lines_than_good_ones_is_refused() -> None:
    tally(2, (faults.NO_TAB, 1), (faults.NO_TAB, 2)).refuse()
    with pytest.raises(
        InputError, match=r"^x.tsv: 2 of 3 lines are bad: 2 no tab \(such as line 1\); write english<TA"
    ):
        tally(1, (faults.NO_TAB, 1), (faults.NO_TAB, 2)).refuse()
    with pytest.raises(InputError, match=r"^x.tsv: no line could be read, it is empty; copy the file again"):
        tally(0).refuse()
    with pytest.raises(InputError, match=r"no line could be read, cut off after line 0; copy"):
        tally(0, broken_off="cut off after line 0").refuse()
