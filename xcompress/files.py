"""Write files and folders atomically; hash, read and write common formats."""

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
    """Return the first 16 hex digits of the SHA-256 of a value's JSON; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def size_of(folder: Path) -> int:
    """Return the total size in bytes of the files in a folder and its subfolders."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def megabytes(size: float) -> str:
    """Format a size in bytes as megabytes (10^6 bytes) with one decimal, such as `22.5 MB`."""
    return f"{size / 1e6:.1f} MB"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success, remove it on failure.

    :raises InputError: when the disk is full or `path` is not writable.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _explain_write_error(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield temporary
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; it replaces `path` on success and is removed on failure.

    :raises InputError: when the disk is full or `path` is not writable.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _explain_write_error(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            # A folder cannot be renamed onto one that is not empty: move the old one away first.
            old = path.with_name(f".{path.name}.{os.getpid()}.old")
            if path.exists():
                path.replace(old)
            temporary.replace(path)
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes; call it only while no other process writes to the folder."""
    for pattern in (".*.tmp", ".*.old"):
        for leftover in folder.glob(pattern):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


@contextmanager
def _explain_write_error(path: Path) -> Iterator[None]:
    """Turn a failed write into an InputError; libraries such as safetensors raise no OSError when the disk is full."""
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


def drop_pages(mapped: object) -> None:
    """Return the resident pages of a memory map to the system.

    They are read again when needed. Without this call they count as memory of the process until the system runs short.

    :param mapped: an `mmap`, or an array on one; any other array is left alone.
    """
    pages = getattr(mapped, "_mmap", mapped)
    if isinstance(pages, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    :raises InputError: when the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); delete it and run again") from error
