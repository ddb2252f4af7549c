"""Records of the files of finished work, and the check that they are still what was written."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from xcompress.errors import InputError
from xcompress.files import read_mapping, sha256_of, write_json

DAMAGED = (InputError, AttributeError, KeyError, TypeError, ValueError)
"""What reading records raises where they are missing or damaged."""
_SHOWN = 3
"""Damaged files that a message names."""


class FileRecord(TypedDict):
    """What a file was when it was written or last checked, as JSON holds it."""

    bytes: int
    mtime_ns: int
    """Time of the last change, in nanoseconds."""
    sha256: str | None
    """None where hashing would take too long: only the size is compared."""


FileRecords = dict[str, FileRecord]
"""Records by path inside a folder, with / between its parts."""


def record_files(folder: Path, files: Iterable[Path], *, hashed: bool = True) -> FileRecords:
    """Record files in a folder."""
    return {path.relative_to(folder).as_posix(): _record(path, hashed) for path in sorted(files)}


def check_recorded(index: Path) -> dict[str, str]:
    """Compare files with the entry `files` of a JSON file beside them, and note there the times that they have now.

    :returns: what is wrong, by file, the JSON file included.
    """
    try:
        content = read_mapping(index)
        damage, current = check_files(index.parent, content["files"])
    except DAMAGED:
        return {index.name: "is missing or damaged"}
    if not damage and current != content["files"]:
        write_json(index, content | {"files": current})
    return damage


def check_files(folder: Path, records: FileRecords) -> tuple[dict[str, str], FileRecords]:
    """Compare files with their records.

    A file of the recorded size and time is taken for the recorded one. One of another time, as after a copy, is hashed.

    :returns: what is wrong, by file; and the records of the other files, with the times that these have now.
    :raises KeyError, TypeError, AttributeError: when the records are not such.
    """
    damage, current = {}, {}
    for name, record in records.items():
        found = _check(folder / name, record)
        if isinstance(found, str):
            damage[name] = found
        else:
            current[name] = found
    return damage, current


def describe(damage: Mapping[str, str]) -> str:
    """Return what is wrong with which files, in the words of a message."""
    named = [f"{name} {problem}" for name, problem in damage.items()]
    more = [f"{len(named) - _SHOWN} more files are damaged"] if len(named) > _SHOWN else []
    return ", ".join(named[:_SHOWN] + more)


def _record(path: Path, hashed: bool) -> FileRecord:
    status = path.stat()
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256_of(path) if hashed else None}


def _check(path: Path, record: FileRecord) -> FileRecord | str:
    """Return the present record of a file that is still the recorded one, or what is wrong with it."""
    if not path.is_file():
        return "is missing"
    try:
        size, written = path.stat().st_size, record["bytes"]
        if size != written:
            return f"is {'shorter' if size < written else 'longer'} than written ({size} bytes of {written})"
        is_old = path.stat().st_mtime_ns == record["mtime_ns"]
        now = record if is_old else _record(path, hashed=record["sha256"] is not None)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return now if now["sha256"] == record["sha256"] else "has other content than written"
