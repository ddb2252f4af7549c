"""Write files and folders atomically; hash, read and write common formats."""

import errno
import hashlib
import json
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath
from typing import Any

from xcompress.errors import InputError, first_line

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

    :raises InputError: when the file is missing, cannot be read or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct its name or its permissions") from error
    except (ValueError, RecursionError) as error:  # of text that is not UTF-8, too
        raise InputError(f"{path}: not valid JSON ({first_line(error)}); write or fetch it again") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    :raises InputError: when it cannot be read, or holds anything else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected names and values, found {type(value).__name__}; write or fetch it again")
    return value


def as_path(reference: str) -> Path:
    """Return a reference as a path, which may not exist; ~ is the home folder.

    :raises InputError: when it cannot be a path, or is or lies in a folder that cannot be read.
    """
    try:
        path = Path(reference).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISDIR(path.stat().st_mode):
                os.stat(f"{path}/.")  # noqa: PTH116 - pathlib would drop the dot, which needs the right to enter
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{reference}: cannot be read as a path ({why}); correct it") from error
    return path


def path_inside(folder: Path, name: str) -> Path:
    """Return the path of a file or folder that may exist inside a folder, for names and links that others wrote.

    Links may lead elsewhere in the folder. The files of a snapshot in the cache of the Hugging Face hub,
    `models--org--name/snapshots/<commit>`, may also be links into the folder `blobs` of the same model.

    :param name: path relative to the folder, with / between its parts; empty for the folder itself.
    :raises InputError: when the name or a link leads out of the folder, or the path cannot be read.
    """
    windows = PureWindowsPath(name)
    if ".." in windows.parts or windows.anchor or "\0" in name:
        raise InputError(f"{folder}: names {name!r}, which is not a path inside the folder; do not use it")
    path = folder / name
    try:
        resolved, root = path.resolve(), folder.resolve()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        why = getattr(error, "strerror", None) or first_line(error)
        raise InputError(f"{path}: cannot be read ({why}); correct its name or its permissions") from error
    if not resolved.is_relative_to(root) and resolved.parent not in _hub_blobs(root):
        raise InputError(f"{path}: a link that leads out of the folder; copy the file itself here")
    return path


def _hub_blobs(root: Path) -> list[Path]:
    """Return the folder of the contents of files if a resolved path lies in a snapshot of the hub's cache."""
    return [
        snapshots.parent / "blobs"
        for snapshots in root.parents
        if snapshots.name == "snapshots" and snapshots.parent.name.startswith("models--")
    ]
