"""Parallel pairs, and the tab-separated files that users bring them in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xcompress.console import warn
from xcompress.corpus.bad_lines import BadLineError, Tally, columns_of
from xcompress.corpus.lines import BrokenOffError, read_lines


@dataclass(frozen=True, slots=True)
class Pair:
    """An English sentence, its translation, the translation's language (ISO 639-1) and where both come from."""

    source: str
    target: str
    language: str
    origin: str


def read_tsv(
    path: Path,
    language: str,
    origin: str = "",
    tally: Tally | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Pair]:
    """Yield the pairs of `english<TAB>translation` lines, UTF-8, plain or compressed by suffix (.gz, .xz).

    Blank lines are skipped. Bad lines, and what follows the damage of a compressed file, are left out with a warning.

    :param origin: the name to keep with each pair; the file's name when empty.
    :param tally: counts the lines.
    :param advance: told now and then how many more bytes of the file have been read.
    :raises InputError: when the file cannot be read, has no line, or, at its end, when most of its lines are bad.
    """
    tally = tally or Tally(path)
    for source, target in _columns(path, tally, advance):
        yield Pair(source, target, language, origin or path.name)
    tally.refuse()
    if tally.broken_off or tally.bad:
        warn(f"{path}: {tally}; the rest is used")


def as_line(pair: Pair) -> bytes:
    """Return a pair as `read_tsv` reads it; tabs and line breaks become spaces."""
    return f"{_one_line(pair.source)}\t{_one_line(pair.target)}\n".encode()


def _columns(path: Path, tally: Tally, advance: Callable[[int], None]) -> Iterator[tuple[str, str]]:
    try:
        for number, line in enumerate(read_lines(path, advance), 1):
            try:
                columns = columns_of(line)
            except BadLineError as error:
                tally.add(str(error), number)
                continue
            if columns:
                tally.good += 1
                yield columns
    except BrokenOffError as error:
        tally.broken_off = str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
