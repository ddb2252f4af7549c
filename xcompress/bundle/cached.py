"""Folders in the cache that are made from a bundle once; they may be deleted at any time."""

from collections.abc import Callable
from pathlib import Path

from xcompress.errors import XCompressError
from xcompress.files import check_encoding, scratch_folder, sha256_of, whole_folder
from xcompress.paths import cache_folder

_HASHES = "sha256"
"""A file with the hashes of the others."""
_PATIENCE = 60
"""Seconds to wait for another process that makes the same folder."""


def cached_folder(kind: str, name: str, make: Callable[[Path], None]) -> Path | None:
    """Return a folder of the cache; make it if it is missing or damaged, or wait for another process that does.

    :param kind: the folder around it.
    :param name: says all that its content depends on.
    :param make: writes the content into a folder. What it raises leaves nothing behind.
    :returns: None where the content cannot be made, or the cache cannot be written.
    """
    try:
        folder = cache_folder() / kind / name
        check_encoding(folder)
        if not _is_whole(folder):
            with scratch_folder(folder.with_name(f"{name}.made"), _PATIENCE):
                if not _is_whole(folder):  # else another process has made it meanwhile
                    with whole_folder(folder) as place:
                        make(place)
                        (place / _HASHES).write_text(_hashes(place), encoding="utf-8")
    except (ImportError, OSError, XCompressError):  # ImportError: without platformdirs there is no cache
        return None
    return folder


def _is_whole(folder: Path) -> bool:
    try:
        return (folder / _HASHES).read_text(encoding="utf-8") == _hashes(folder)
    except (OSError, ValueError):
        return False


def _hashes(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.name != _HASHES)
    return "\n".join(f"{sha256_of(file)}  {file.name}" for file in files)
