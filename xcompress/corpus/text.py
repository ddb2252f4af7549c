"""The lines of a text file that has to be in order: decoded, and with the line number in every complaint."""

from collections.abc import Iterator
from pathlib import Path

from xcompress.corpus.lines import LONGEST, BrokenOffError, read_lines
from xcompress.errors import InputError


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
