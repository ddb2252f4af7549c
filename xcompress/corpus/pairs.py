"""Parallel pairs, and the tab-separated files that hold them."""

import gzip
import lzma
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from xcompress.errors import InputError
from xcompress.files import whole_file

_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Pair:
    """An English sentence, its translation, the translation's language (ISO 639-1) and where both come from."""

    source: str
    target: str
    language: str
    origin: str


def read_tsv(path: Path, language: str, origin: str = "") -> list[Pair]:
    """Read `english<TAB>translation` lines, UTF-8, plain or compressed by suffix (.gz, .xz); skip blank lines.

    :param origin: the name to keep with each pair; the file's name when empty.
    :raises InputError: when the file is missing or damaged, naming the line.
    """
    name = origin or path.name
    return [Pair(source, target, language, name) for source, target in _rows(path)]


def write_tsv(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs as `read_tsv` reads them, compressed by suffix; tabs and line breaks become spaces."""
    text = "".join(f"{_one_line(pair.source)}\t{_one_line(pair.target)}\n" for pair in pairs)
    with whole_file(path) as temporary:
        temporary.write_bytes(_compress(text.encode(), path.suffix))


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
                if text.strip():
                    yield _columns(text, f"{path}:{number}")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}:{number}: not UTF-8 ({error.reason}); convert the file to UTF-8") from error
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise InputError(f"{path}:{number + 1}: damaged or cut-off {path.suffix} file ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _columns(text: str, where: str) -> tuple[str, str]:
    columns = text.split("\t")
    if len(columns) != _COLUMNS:
        raise InputError(f"{where}: {len(columns)} columns, not {_COLUMNS}; write english<TAB>translation")
    return columns[0], columns[1]


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(IO[bytes], lzma.open(path, "rb"))
    return path.open("rb")


def _compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data, mtime=0)
    return lzma.compress(data) if suffix == ".xz" else data


def _one_line(text: str) -> str:
    return " ".join(text.split())
