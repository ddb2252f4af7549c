"""The lines of a text file that has to be in order: decoded, and with the line number in every complaint."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, cast

from xcompress.errors import InputError

LONGEST = 20_000
"""Bytes of the longest line that is read, its line break included."""
_DAMAGE = (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
_CHUNK = 1 << 16
_LINES_PER_REPORT = 2000


class BrokenOffError(Exception):
    """A compressed file that ends or turns to nonsense after some line; the message says after which."""


def read_lines(path: Path, advance: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Yield the lines of a file, compressed by suffix (.gz, .xz) or plain.

    Of a line over `LONGEST` bytes the first `LONGEST` + 1 are given, and the rest is passed over.

    :param advance: told now and then how many bytes of the file have been read since it was last told.
    :raises BrokenOffError: where a compressed file is damaged, after all whole lines before the damage.
    :raises InputError: when the file is missing or cannot be read.
    """
    number = 0
    try:
        with path.open("rb") as file:
            for line in _bounded(_unpacked(file, path.suffix), file, advance):
                number += 1
                yield line
    except _DAMAGE as error:
        how = "cut off" if isinstance(error, EOFError) else "damaged"
        raise BrokenOffError(f"{how} after line {number} ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); correct the path") from error


def _bounded(stream: IO[bytes], file: IO[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    told = count = 0
    while line := stream.readline(LONGEST + 1):
        yield line
        if len(line) > LONGEST:
            _pass_over(stream, line)
        count += 1
        if count % _LINES_PER_REPORT == 0:
            told, before = file.tell(), told
            advance(told - before)
    advance(file.tell() - told)


def _pass_over(stream: IO[bytes], line: bytes) -> None:
    """Read on to the end of a line of which only the start was read."""
    while line and not line.endswith(b"\n"):
        line = stream.readline(_CHUNK)


def _unpacked(file: IO[bytes], suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.open(file, "rb"))
    return cast(IO[bytes], lzma.open(file, "rb")) if suffix == ".xz" else file


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or compressed by suffix (.gz, .xz), line breaks kept.

    A byte order mark at the start is passed over.

    :raises InputError: naming the line that is not UTF-8 or is too long, or after which the file is damaged.
    """
    try:
        for number, line in enumerate(read_lines(path), 1):
            yield _decoded(f"{path}:{number}", line).removeprefix("\ufeff" if number == 1 else "")
    except BrokenOffError as error:
        raise InputError(f"{path}: cannot be read ({error}); copy the file again") from error


def _decoded(where: str, line: bytes) -> str:
    if len(line) > LONGEST:
        raise InputError(f"{where}: longer than {LONGEST:,} bytes; this is no file of one sentence a line")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 ({error.reason}); convert the file") from error
