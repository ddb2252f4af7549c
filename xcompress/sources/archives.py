"""Unpack zip archives safely, and join files that were split into parts."""

import errno
import lzma
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from filelock import FileLock

from xcompress import console
from xcompress.errors import InputError, first_line, short_repr
from xcompress.files import megabytes, whole_folder
from xcompress.paths import DEEPEST, leaves_folder
from xcompress.sources.packed import check_growth

MOST_FILES = 100_000
"""Entries of an archive that is unpacked."""
_BLOCK = 1 << 20
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    MemoryError,
)
"""What zipfile raises for damaged, encrypted and unknown content, and where LZMA asks for a dictionary of gigabytes."""


def unpack(archive: Path, target: Path, reference: str, kind: str = "zip archive") -> None:
    """Unpack a zip archive into a folder.

    :param reference: what the user asked for, for error messages.
    :param kind: what the archive is, for error messages.
    :raises InputError: when it is damaged, swells out of proportion (see `check_growth`), holds more than `MOST_FILES`,
        or holds a link, two entries of one name, a name that leaves the folder, or more than `DEEPEST` folders in each
        other.
    """
    unpacked = 0
    target.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            entries = opened.infolist()
            if len(entries) > MOST_FILES:
                raise InputError(f"{reference}: the {kind} holds over {MOST_FILES:,} files; do not use it")
            check_growth(archive.stat().st_size, sum(entry.file_size for entry in entries), reference)
            for entry in entries:
                _check_entry(entry, reference, kind)
                for block in _unpack_entry(opened, entry, target, reference, kind):
                    # what is read may be more than the list at the end of the archive says
                    unpacked += block
                    check_growth(archive.stat().st_size, unpacked, reference)
    except _DAMAGE as error:
        problem = first_line(error)
        raise InputError(f"{reference}: {archive.name} is not a readable {kind} ({problem}); fetch it again") from error


def _check_entry(entry: zipfile.ZipInfo, reference: str, kind: str) -> None:
    if not entry.filename:
        raise InputError(f"{reference}: the {kind} holds an entry without a name; do not use it")
    if entry.filename.count("/") > DEEPEST:
        raise InputError(f"{reference}: the {kind} holds over {DEEPEST} folders in each other; do not use it")
    # on Windows a backslash separates folders, and what follows a colon is another stream of the file
    if leaves_folder(entry.filename) or "\\" in entry.filename or ":" in entry.filename:
        raise InputError(f"{reference}: the {kind} holds {entry.filename!r}, which leaves its folder; do not use it")
    if stat.S_ISLNK(entry.external_attr >> 16):
        raise InputError(f"{reference}: the {kind} holds a link, {entry.filename!r}; do not use it")


def _unpack_entry(
    opened: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, reference: str, kind: str
) -> Iterator[int]:
    """Write one entry; yield the sizes of its blocks."""
    path = target / entry.filename
    try:
        if entry.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with opened.open(entry) as source, path.open("xb") as file:
            while block := source.read(_BLOCK):
                yield file.write(block)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(
            f"{reference}: the {kind} holds a file and another entry of one name, {entry.filename!r}; do not use it"
        ) from error
    except OSError as error:
        if error.errno is None:  # bz2 says so that the data is damaged
            raise zipfile.BadZipFile(first_line(error)) from error
        if error.errno not in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            raise
        raise InputError(
            f"{reference}: the {kind} holds {short_repr(entry.filename)}, which cannot be written "
            f"({error.strerror}); do not use it"
        ) from error


def make_once(folder: Path, make: Callable[[], None]) -> None:
    """Make a folder of the cache, unless it is there; one process at a time."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not folder.is_dir():
                make()


def join_parts(parts: Sequence[Path], folder: Path, reference: str) -> Path:
    """Join the parts of a file once, and unpack the result if it is a zip archive.

    :param parts: the parts in order, such as model.zip.001, model.zip.002.
    :param folder: where the result is kept; it is written whole or not at all.
    :param reference: what the user asked for, for error messages.
    :returns: the joined file, or the unpacked folder without levels that hold nothing but one folder.
    :raises InputError: when a part is not a file, or the archive is damaged or unsafe.
    """
    folders = [part for part in parts if not part.is_file()]
    if folders:
        raise InputError(f"{reference}: {folders[0]} is a folder, only files can be joined; name the parts in it")
    make_once(folder, lambda: _write_joined(parts, folder, reference))
    entries = list(folder.iterdir())
    if len(entries) == 1 and entries[0].is_file():
        return entries[0]
    while len(entries) == 1 and entries[0].is_dir():
        folder, entries = entries[0], list(entries[0].iterdir())
    return folder


def _write_joined(parts: Sequence[Path], folder: Path, reference: str) -> None:
    size = sum(part.stat().st_size for part in parts)
    console.say(f"joining {len(parts)} parts ({megabytes(size)}) in {folder}")
    with whole_folder(folder) as target:
        joined = target / joined_name(parts[0].name)
        with joined.open("wb") as output:
            for part in parts:
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, output, _BLOCK)
        if zipfile.is_zipfile(joined):
            archive = joined.replace(target.with_name(f"{target.name}.zip"))
            try:
                unpack(archive, target, reference)
            finally:
                archive.unlink()


def joined_name(first: str) -> str:
    """Drop the number from the name of the first part: model.zip.001 gives model.zip."""
    stem, dot, number = first.rpartition(".")
    return stem if dot and number.isdigit() else first
