"""Parallel pairs, and the tab-separated files that they are read from."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from xcompress.console import warn
from xcompress.corpus.lines import LONGEST, BadLineError, BrokenOffError, Tally, check_first_line, read_lines
from xcompress.corpus.normalise import is_visible
from xcompress.errors import InputError
from xcompress.printable import counted

TOO_LONG = f"over {LONGEST:,} bytes"
NOT_UTF8 = "not UTF-8"
SURROGATES = "lone surrogates"
CONTROLS = "control characters"
NO_TAB = "no tab"
COLUMNS = "more than two columns"
EMPTY = "an empty side"
LINES = 4096
"""Lines that are parsed at a time."""
_THE = re.compile(rb"(?<![\w\x80-\xff])the(?![\w\x80-\xff])", re.I)
_SWAPPED_LINES, _SWAPPED_RATIO = 10, 3
"""More lines than these have `the` in the column of the translation, and so many times those with it in English."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class Pair:
    """An English sentence, its translation, the translation's language (ISO 639-1) and where both come from."""

    source: str
    target: str
    language: str
    origin: str


class BadLine(NamedTuple):
    """A line that is not a pair: why, and its number in the file."""

    reason: str
    number: int


def chunks_of_lines(
    path: Path, tally: Tally, advance: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield the lines of a file, `LINES` at a time, and the number of the first of them.

    :param tally: is told where a compressed file is damaged; the lines before that are yielded.
    :raises InputError: when the file cannot be read, or is none of text in UTF-8: see `check_first_line`.
    """
    first, lines = 1, list[bytes]()
    try:
        for line in read_lines(path, advance):
            if first == 1 and not lines:
                check_first_line(str(path), line)
            lines.append(line)
            if len(lines) == LINES:
                yield first, lines
                first, lines = first + LINES, []
    except BrokenOffError as error:
        tally.broken_off = str(error)
    if lines:
        yield first, lines


def parse_lines(
    lines: Sequence[bytes], first: int, language: str, origin: str
) -> tuple[Sequence[Pair], Sequence[BadLine]]:
    """Return the pairs of some lines, and the lines that are neither pairs nor blank.

    :param first: number of the first line.
    """
    pairs, bad = [], []
    for number, line in enumerate(lines, first):
        try:
            columns = split_line(line)
        except BadLineError as error:
            bad.append(BadLine(str(error), number))
            continue
        if columns:
            pairs.append(Pair(*columns, language, origin))
    return pairs, bad


def check_read(tally: Tally, layout: str = "english<TAB>translation, one pair per line") -> None:
    """Warn of what was left out of a file that was read to its end.

    :param layout: how good lines look, for the message.
    :raises InputError: when more than half of its lines are bad, or there is none.
    """
    bad = tally.bad.total()
    if not tally.good + bad:
        advice = "copy the file again" if tally.broken_off else f"write {layout}"
        raise InputError(f"{tally.path}: no line could be read, {tally.broken_off or 'it is empty'}; {advice}")
    if bad > tally.good:
        raise InputError(f"{tally.path}: {tally}; write {layout}, in UTF-8")
    if tally.broken_off or bad:
        warn(f"{tally.path}: {tally}; the rest is used")


def warn_of_swapped_columns(path: Path, lines: Sequence[bytes], language: str) -> None:
    """Warn where `the`, which hardly any other language has, is far more frequent in the column of the translation."""
    sides = [line.partition(b"\t") for line in lines]
    english, translated = (sum(bool(_THE.search(side[column])) for side in sides) for column in (0, 2))
    if translated > max(_SWAPPED_LINES, _SWAPPED_RATIO * english):
        shares = [f"{count / len(lines):.0%}" for count in (translated, english)]
        warn(
            f"{path}: the columns may be swapped: `the` is in {shares[0]} of the first {counted(len(lines), 'line')} in"
            f" the column of {language!r}, and in {shares[1]} in that of English; write english<TAB>translation"
        )


def split_line(line: bytes) -> tuple[str, str] | None:
    """Return the two sides of a line, without a byte-order mark, or None when it is blank.

    :raises BadLineError: when it is not a pair.
    """
    text = decode_line(line)
    if text is None:
        return None
    columns = text.split("\t")
    if len(columns) != 2:
        raise BadLineError(NO_TAB if len(columns) == 1 else COLUMNS)
    if not all(is_visible(side) for side in columns):
        raise BadLineError(EMPTY)
    return columns[0], columns[1]


def decode_line(line: bytes) -> str | None:
    """Return the text of a line, without a byte-order mark and its line break, or None when it is blank.

    :raises BadLineError: when it is too long, not UTF-8, or has control characters.
    """
    if len(line) > LONGEST:
        raise BadLineError(TOO_LONG)
    try:
        text = line.decode().rstrip("\r\n").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BadLineError(SURROGATES if _has_only_surrogates(line) else NOT_UTF8) from error
    if _CONTROL.search(text):
        raise BadLineError(CONTROLS)
    return text if is_visible(text) else None


def _has_only_surrogates(line: bytes) -> bool:
    """Tell whether encoded surrogates are all that is wrong with a line that is not UTF-8."""
    try:
        return bool(line.decode(errors="surrogatepass"))
    except UnicodeDecodeError:
        return False


def as_line(pair: Pair) -> bytes:
    """Return a pair as a line that `parse_lines` reads; tabs and line breaks become spaces."""
    source, target = (" ".join(side.split()) for side in (pair.source, pair.target))
    return f"{source}\t{target}\n".encode()
