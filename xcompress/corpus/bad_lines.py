"""What can be wrong with a line of parallel text, and the tally of a file's bad lines."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from xcompress.corpus.lines import LONGEST
from xcompress.corpus.normalise import is_visible
from xcompress.errors import InputError

TOO_LONG = f"over {LONGEST:,} bytes"
NOT_UTF8 = "not UTF-8"
SURROGATES = "lone surrogates"
CONTROLS = "control characters"
NO_TAB = "no tab"
COLUMNS = "more than two columns"
EMPTY = "an empty side"
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")
_NAMED = 3


class BadLineError(Exception):
    """A line that is no pair; the message is the reason, one of this module's."""


@dataclass
class Tally:
    """Counts the lines of one file while it is read; blank lines do not count."""

    path: Path
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    """The number of the first line with a fault, by reason."""
    broken_off: str = ""
    """Where a compressed file is damaged, and how."""

    def add(self, reason: str, number: int) -> None:
        """Count a bad line."""
        self.bad[reason] += 1
        self.first.setdefault(reason, number)

    def __str__(self) -> str:
        """Say in one line how many lines are bad, why, and where the file breaks off."""
        named = [f"{count} {reason} (such as line {self.first[reason]})" for reason, count in self.bad.most_common()]
        more = [f"and {len(named) - _NAMED} more reasons"] if len(named) > _NAMED else []
        bad, lines = self.bad.total(), self.good + self.bad.total()
        counted = f"{bad} of {lines} lines are bad: {', '.join(named[:_NAMED] + more)}" if bad else ""
        return ", and it is ".join(part for part in (counted, self.broken_off) if part)

    def refuse(self) -> None:
        """Refuse a file that is more bad than good.

        :raises InputError: when more than half of its lines are bad, or it has none.
        """
        if not self.good + self.bad.total():
            raise InputError(
                f"{self.path}: no line could be read, {self.broken_off or 'it is empty'}; copy the file again"
            )
        if self.bad.total() > self.good:
            raise InputError(f"{self.path}: {self}; write english<TAB>translation, a pair a line, in UTF-8")


def columns_of(line: bytes) -> tuple[str, str] | None:
    """Return the two sides of a line, without a byte-order mark, or None when it is blank.

    :raises BadLineError: when it is no pair.
    """
    if len(line) > LONGEST:
        raise BadLineError(TOO_LONG)
    text = _decoded(line).rstrip("\r\n")
    if _CONTROL.search(text):
        raise BadLineError(CONTROLS)
    if not is_visible(text):
        return None
    columns = text.split("\t")
    if len(columns) != 2:
        raise BadLineError(NO_TAB if len(columns) == 1 else COLUMNS)
    if not all(is_visible(side) for side in columns):
        raise BadLineError(EMPTY)
    return columns[0].removeprefix("\ufeff"), columns[1]


def _decoded(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadLineError(SURROGATES if _only_surrogates(line) else NOT_UTF8) from error


def _only_surrogates(line: bytes) -> bool:
    try:
        return bool(line.decode(errors="surrogatepass"))
    except UnicodeDecodeError:
        return False
