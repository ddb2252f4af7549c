"""Unpack zip archives safely, and join files that were split into parts."""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from filelock import FileLock

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import megabytes, whole_folder


def leaves_folder(name: str) -> bool:
    """Tell whether a name in an archive leads out of the folder that it is unpacked into."""
    return name.startswith("/") or "\\" in name or ":" in name or ".." in PurePosixPath(name).parts


def unpack(archive: Path, target: Path, reference: str, kind: str = "zip archive") -> None:
    """Unpack a zip archive into a folder.

    :param reference: what the user asked for, for error messages.
    :param kind: what the archive is, for error messages.
    :raises InputError: when it is damaged, or holds a link or a name that leaves the folder.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                if leaves_folder(entry.filename):
                    raise InputError(
                        f"{reference}: the {kind} holds {entry.filename!r}, which leaves its folder; do not use it"
                    )
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise InputError(f"{reference}: the {kind} holds a link, {entry.filename!r}; do not use it")
            opened.extractall(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"{reference}: {archive.name} is not a readable {kind} ({error}); fetch it again") from error


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
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{folder.name}.lock"):
            if not folder.is_dir():
                _write_joined(parts, folder, reference)

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
                    shutil.copyfileobj(stream, output, 1 << 20)
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
