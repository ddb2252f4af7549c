"""Read text files line by line: plain or compressed, with the line number in every message, and bad lines counted."""

import codecs
import csv
import gzip
import lzma
import os
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from xcompress.errors import InputError
from xcompress.printable import counted
from xcompress.sources.packed import open_packed

LONGEST = 20_000
"""Bytes of the longest line that is read, its line break included, unless a reader is given another limit."""
DEVICE = "is a device, not a regular file; name a file"
"""What is wrong with a path such as /dev/zero."""
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh91AY&SY": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\3\4": "zip",
}
"""How packed files begin, and no text; a pipe has no suffix, and not every suffix is unpacked."""
_LINES_PER_REPORT = 2000
_REASONS_SHOWN = 3


class BrokenOffError(Exception):
    """A compressed file ends early or is damaged; the message says after which line."""


class BadLineError(Exception):
    """A line that is not as it should be; the message is the reason, such as "no tab"."""


@dataclass
class Tally:
    """Counts good and bad lines while a file is read; blank lines do not count."""

    path: Path
    good: int = 0
    bad: Counter[str] = field(default_factory=Counter)
    """Bad lines by reason."""
    first: dict[str, int] = field(default_factory=dict)
    """The number of the first bad line, by reason."""
    broken_off: str = ""
    """Where and how a compressed file is damaged."""

    def add(self, reason: str, number: int) -> None:
        """Count a bad line."""
        self.bad[reason] += 1
        self.first.setdefault(reason, number)

    def __str__(self) -> str:
        """Say in one line how many lines are bad, why, and where the file breaks off."""
        reasons = [
            f"{count:,} {reason} (such as line {self.first[reason]})" for reason, count in self.bad.most_common()
        ]
        hidden = len(reasons) - _REASONS_SHOWN
        shown = reasons[:_REASONS_SHOWN] + ([f"and {hidden} more"] if hidden > 0 else [])
        bad = self.bad.total()
        lines = f"{bad:,} of {counted(self.good + bad, 'line')} {'is' if bad == 1 else 'are'} bad: {', '.join(shown)}"
        return ", and it is ".join(part for part in (lines if bad else "", self.broken_off) if part)


def read_lines(
    path: Path, advance: Callable[[int], None] = lambda _: None, *, longest: int = LONGEST
) -> Iterator[bytes]:
    """Yield the lines of a file, compressed by suffix (.gz, .xz) or plain.

    Of a line over `longest` bytes, the first `longest` + 1 are yielded and the rest is skipped.

    :param advance: called now and then with the number of bytes of the file read since the last call.
    :param longest: bytes of the longest line that is read whole, its line break included.
    :raises BrokenOffError: where a compressed file is damaged, after all complete lines before the damage.
    :raises InputError: when the file is missing, is a device or cannot be read, or unpacks out of proportion to its
        size.
    """
    number = 0
    try:
        with path.open("rb") as file:
            _refuse_device(file, path)
            reported, has_position = 0, file.seekable()  # a pipe has none
            for number, line in enumerate(bounded_lines(open_packed(file, path), longest), 1):
                yield line
                if has_position and number % _LINES_PER_REPORT == 0:
                    reported, before = file.tell(), reported
                    advance(reported - before)
            if has_position:
                advance(file.tell() - reported)
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        how = "cut off" if isinstance(error, EOFError) else "damaged"
        raise BrokenOffError(f"{how} after line {number} ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); correct the path") from error


def _refuse_device(file: IO[bytes], path: Path) -> None:
    """Refuse a device, such as /dev/zero, which may never end; a pipe and a terminal do."""
    mode = os.fstat(file.fileno()).st_mode
    if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not file.isatty()):
        raise InputError(f"{path}: {DEVICE}")


def bounded_lines(stream: IO[bytes], longest: int = LONGEST) -> Iterator[bytes]:
    """Yield the lines of a stream, cut after `longest` + 1 bytes."""
    readline, most = stream.readline, longest + 1
    while line := readline(most):
        yield line
        if len(line) == most:
            while line and not line.endswith(b"\n"):  # skip the rest, a bit at a time
                line = readline(1 << 16)


def text_lines(
    path: Path, advance: Callable[[int], None] = lambda _: None, *, longest: int = LONGEST, cut: bool = False
) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or compressed by suffix (.gz, .xz), as `decode_lines` does.

    No other character than a line feed ends a line.

    :param advance: see `read_lines`.
    :raises InputError: naming the line that is not UTF-8 or is too long, or after which the file is damaged.
    """
    try:
        yield from decode_lines(str(path), read_lines(path, advance, longest=longest), longest=longest, cut=cut)
    except BrokenOffError as error:
        raise InputError(f"{path}: cannot be read ({error}); copy the file again") from error


def decode_lines(name: str, lines: Iterable[bytes], *, longest: int = LONGEST, cut: bool = False) -> Iterator[str]:
    """Yield lines as text, with their line breaks.

    A byte order mark at the start of a line is removed: files that were joined have one in the middle.

    :param name: of the file or stream, for error messages.
    :param lines: results of `read_lines` or `bounded_lines`.
    :param longest: bytes of the longest line that they read whole.
    :param cut: use the start of a longer line instead of refusing it.
    :raises InputError: naming the line that is not UTF-8 or is too long, or when CR alone ends the lines.
    """
    try:
        for number, line in enumerate(lines, 1):
            if number == 1:
                check_first_line(name, line)
            if number <= 2 and b"\0" in line:  # UTF-16 has one beside the first line feed
                raise UnicodeDecodeError("utf-8", line, line.index(b"\0"), len(line), "it holds NUL, as UTF-16 does")
            if len(line) <= longest:
                text = line.decode()
            elif cut:
                text, _ = codecs.utf_8_decode(line)  # leaves out the bytes of a character that was cut
            else:
                raise InputError(f"{name}:{number}: longer than {longest:,} bytes; expected one sentence per line")
            yield text.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(f"{name}:{number}: not UTF-8 ({error.reason}); convert the file") from error


def check_first_line(name: str, line: bytes) -> None:
    """Refuse a file that is packed, in UTF-16, or has CR alone at the ends of its lines.

    :param name: of the file or stream, for error messages.
    :raises InputError: when the first line shows that.
    """
    if packed := next((kind for begin, kind in _PACKED.items() if line.startswith(begin)), None):
        raise InputError(f"{name}: packed with {packed}; unpack it first")
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InputError(f"{name}:1: not UTF-8 (it is UTF-16); convert the file")
    if b"\r" in line.rstrip(b"\r") and not line.endswith(b"\n"):
        raise InputError(f"{name}: its lines end in CR alone; convert the file to LF")


def table_rows(path: Path, kind: Literal["csv", "tsv"], *, strict: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row of a UTF-8 file; only .csv has quotes.

    :param strict: raise an error at an open quote, which swallows the rest of the file otherwise.
    :raises InputError: naming the line that cannot be read.
    """
    if kind == "tsv":
        for number, line in enumerate(text_lines(path), 1):
            yield number, line.rstrip("\r\n").split("\t")
        return
    reader = csv.reader(text_lines(path), strict=strict)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: not valid CSV ({error}); correct its quotes") from error
