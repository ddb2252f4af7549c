"""Files that are either whole or absent, and hashes of what is in them."""

import errno
import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from xcompress.errors import InputError

_NOT_WRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_of(value: object) -> str:
    """Return the first 16 hex digits of the SHA-256 of a JSON-serialisable value; key order does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it into place on success, remove it on failure.

    :raises InputError: when the disk is full or the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; on success it replaces `path`, on failure it is removed.

    :raises InputError: when the disk is full or the place cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _explained(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            _swap(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(temporary: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    if path.exists():
        path.replace(old)
    temporary.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half-written; call it only while no other process writes in the folder."""
    for pattern in (".*.tmp", ".*.old"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a failure to write into an InputError; libraries that write for us do not all raise OSError."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in _NOT_WRITABLE or "No space left" in str(error):
            why = os.strerror(number) if number else "No space left on device"
            raise InputError(
                f"{path}: cannot be written ({why}); free space or choose another folder, then run again"
            ) from error
        raise


def release(mapped: object) -> None:
    """Give the pages of a memory map, or of an array on one, that were read back to the system.

    They are read again when needed; without this they count as the process's memory until memory is short. An array
    that is not mapped is left alone.
    """
    pages = getattr(mapped, "_mmap", mapped)
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file, whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write indented JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON is what it is
    """Read a JSON file.

    :raises InputError: when the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); delete it and run again") from error
