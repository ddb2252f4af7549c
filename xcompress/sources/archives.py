"""Zip archives unpacked with care, and archives that come in pieces put together."""

import shutil
import stat
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from filelock import FileLock

from xcompress import console
from xcompress.errors import InputError
from xcompress.files import whole_folder

_BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def leaves(name: str) -> bool:
    """Tell whether a name in an archive leads out of the folder that it is unpacked into."""
    return name.startswith("/") or "\\" in name or ":" in name or ".." in PurePosixPath(name).parts


def unpack(archive: Path, target: Path, reference: str, what: str = "zip archive") -> None:
    """Unpack a zip archive into a folder.

    :param reference: what the user asked for, for error texts.
    :param what: what the archive is, for error texts.
    :raises InputError: when it is damaged, or holds a link or a name that leaves the folder.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            for entry in opened.infolist():
                if leaves(entry.filename):
                    raise InputError(
                        f"{reference}: the {what} holds {entry.filename!r}, which leaves its folder; do not use it"
                    )
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise InputError(f"{reference}: the {what} holds a link, {entry.filename!r}; do not use it")
            opened.extractall(target)
    except _BROKEN_ZIP as error:
        raise InputError(f"{reference}: {archive.name} is not a readable {what} ({error}); fetch it again") from error


def joined(pieces: Sequence[Path], place: Path, reference: str) -> Path:
    """Put the pieces of a file together, once, and unpack it if it is a zip archive.

    :param pieces: the pieces in order, such as model.zip.001, model.zip.002.
    :param place: the folder for the result; it is made whole or not at all.
    :param reference: what the user asked for, for error texts.
    :returns: the unpacked folder, without levels that hold one folder alone; or the file, where it is no archive.
    :raises InputError: when a piece is no file, or the archive is damaged or unsafe.
    """
    folders = [piece for piece in pieces if not piece.is_file()]
    if folders:
        raise InputError(f"{reference}: {folders[0]} is a folder, only files can be joined; name the pieces in it")
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(place.parent / f".{place.name}.lock"):
            if not place.is_dir():
                _join(pieces, place, reference)
    return _inside(place)


def _join(pieces: Sequence[Path], place: Path, reference: str) -> None:
    size = sum(piece.stat().st_size for piece in pieces)
    console.say(f"joining {len(pieces)} pieces ({size / 1e6:.1f} MB) in {place}")
    with whole_folder(place) as target:
        whole = target / name_of_joined(pieces[0].name)
        with whole.open("wb") as stream:
            for piece in pieces:
                with piece.open("rb") as part:
                    shutil.copyfileobj(part, stream, 1 << 20)
        if zipfile.is_zipfile(whole):
            archive = whole.replace(target.with_name(f"{target.name}.zip"))
            try:
                unpack(archive, target, reference)
            finally:
                archive.unlink()


def name_of_joined(first: str) -> str:
    """Drop the number from the name of the first piece: model.zip.001 gives model.zip."""
    stem, dot, number = first.rpartition(".")
    return stem if dot and number.isdigit() else first


def _inside(place: Path) -> Path:
    """Return the one file that is there, else the first folder down that holds more than one folder."""
    entries = list(place.iterdir())
    if len(entries) == 1 and entries[0].is_file():
        return entries[0]
    while len(entries) == 1 and entries[0].is_dir():
        place, entries = entries[0], list(entries[0].iterdir())
    return place
