"""Records of the files of finished work, and the check that they are still what was written."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from xcompress.files import sha256_of

_SHOWN = 3
"""Damaged files that a message names."""


@dataclass(frozen=True)
class FileRecord:
    """What a file was when it was written or last checked."""

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


def check_files(folder: Path, records: Mapping[str, FileRecord]) -> tuple[dict[str, str], FileRecords]:
    """Compare files with their records.

    A file of the recorded size and time is taken for the recorded one. One of another time, as after a copy, is hashed.

    :returns: what is wrong, by file; and the records of the other files, with the times that these have now.
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


def to_json(records: Mapping[str, FileRecord]) -> dict[str, object]:
    """Return records as JSON values."""
    return {name: asdict(record) for name, record in records.items()}


def from_json(value: Mapping[str, Mapping[str, object]]) -> FileRecords:
    """Read records from JSON values.

    :raises TypeError: when they are not records.
    :raises AttributeError: when they are not mappings.
    """
    return {name: FileRecord(**entry) for name, entry in value.items()}  # type: ignore[arg-type]


def _record(path: Path, hashed: bool) -> FileRecord:
    status = path.stat()
    return FileRecord(status.st_size, status.st_mtime_ns, sha256_of(path) if hashed else None)


def _check(path: Path, record: FileRecord) -> FileRecord | str:
    """Return the present record of a file that is still the recorded one, or what is wrong with it."""
    if not path.is_file():
        return "is missing"
    try:
        size, time = path.stat().st_size, path.stat().st_mtime_ns
        if size != record.bytes:
            return f"is {'shorter' if size < record.bytes else 'longer'} than written ({size} bytes of {record.bytes})"
        now = record if time == record.mtime_ns else _record(path, hashed=record.sha256 is not None)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return now if now.sha256 == record.sha256 else "has other content than written"
