"""Write files and folders atomically; hash, read and write common formats."""

import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from xcompress.errors import InputError, first_line

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_WRITABLE = {*_DISK_FULL, errno.EROFS, errno.EACCES, errno.EPERM}
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
"""Answers of file systems that cannot sync a folder, or anything."""
_RUST_ERROR = re.compile(r"\(os error (\d+)\)|\bOs \{ code: (\d+)")
"""How safetensors and tokenizers write a system error; they raise no OSError."""
_SHORT_WRITE = re.compile(
    r"\d+ requested and \d+ written|No space left|file write failed|PytorchStreamWriter failed|"
    r"inline_container\.cc:\d+\] \. unexpected pos"
)
"""What numpy, onnx and torch say when less was written than they asked for; they give no error number."""
_SCRATCH = re.compile(r"\.(?P<label>.+)\.(?:[a-z0-9_]{8}|\d+)\.(?:tmp|old)")
"""Names of scratch folders. Earlier versions had a process id in the middle, and moved old folders to `.old`."""
_LONGEST_LABEL = 200
"""Bytes of a name that scratch folders repeat; with what is added, they stay below the 255 that file systems allow."""
_MOST_JSON = 1_000_000_000
"""Bytes of a JSON file of others that is read whole. The largest tokenizers have 30 MB."""
_HELD = -1
"""In place of a descriptor: another process holds the lock."""
_FILE_PATIENCE = 10.0
"""Seconds that a writer of a file waits for another one; most files take less than one."""

_open_scratch: set[Path] = set()
"""Scratch folders of this process; what is written inside is locked and synced together with them."""


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


def free_bytes(path: Path) -> int:
    """Return the free bytes of the disk that a path is on, or would be on."""
    existing = path.resolve()
    while not existing.exists():
        existing = existing.parent
    return shutil.disk_usage(existing).free


def megabytes(size: float) -> str:
    """Format a size in bytes as megabytes (10^6 bytes) with one decimal, such as `22.5 MB`."""
    return f"{size / 1e6:.1f} MB"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path; the file there replaces `path` on success, and is removed on failure.

    :raises InputError: when `path` cannot be written, or another process is writing it.
    """
    _check_file(path)
    with scratch_folder(path, _FILE_PATIENCE) as scratch:
        temporary = scratch / path.name
        with explain_write_error(path):
            yield temporary
        with explain_write_error(path, every=True):
            _put_in_place(temporary, path)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; it replaces `path` on success, and is removed on failure.

    :raises InputError: when `path` has no name or cannot be written, or another process is writing it.
    """
    check_target(path)
    _check_name(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; name a folder")
    with scratch_folder(path) as scratch:
        temporary, old = scratch / "new" / path.name, scratch / "old" / path.name
        with explain_write_error(path):
            temporary.mkdir(parents=True)
            yield temporary
        with explain_write_error(path, every=True):
            _put_in_place(temporary, path, old)


def check_target(path: Path) -> None:
    """Refuse a path that no file or folder can have, before the work that is to be written there.

    The current folder is allowed, as files may be added to it.

    :raises InputError: when it lies below a file or in a folder that cannot be entered, is too long or starts with ~.
    """
    if path.parts[:1] and path.parts[0].startswith("~"):
        raise InputError(f"{path}: ~ is not replaced by a home folder here; write the whole path")
    with explain_write_error(path, every=True), suppress(FileNotFoundError):
        path.lstat()


def _check_name(path: Path) -> None:
    """Refuse `.`, `..` and `/`: a folder that is written as a whole is written under another name, then renamed."""
    if path.name in ("", ".."):
        raise InputError(f"{path}: has no name of its own, so it cannot be replaced; name a folder inside it")


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold.

    :raises InputError: as `whole_file`.
    """
    _check_file(path)
    with scratch_folder(path, _FILE_PATIENCE):
        pass


def _check_file(path: Path) -> None:
    check_target(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe, which would be replaced"
        raise InputError(f"{path}: is {kind}; give the name of a file")


def check_encoding(path: Path) -> None:
    """Refuse a path that is not UTF-8: safetensors, tokenizers and onnxruntime cannot open it.

    :raises InputError: showing those bytes as hexadecimal numbers.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        # Python keeps such a byte as a surrogate, 0xff as \\udcff.
        shown = str(path).encode(errors="backslashreplace").decode().replace("\\udc", "\\x")
        raise InputError(f"{shown}: this path is not UTF-8, so no model opens there; rename the folder") from error


def prepare_target(path: Path) -> Path:
    """Check the path of a folder, remove what killed writers of it left, and put back a folder that was moved away.

    :returns: the folder to write: the path, or what it leads to where it is a link, which is kept.
    :raises InputError: when it has no name, holds the current folder, nothing can be written there, or another process
        is writing it.
    """
    check_encoding(path)
    check_target(path)
    _check_name(path)
    with explain_write_error(path, every=True):
        holds_current = Path.cwd().is_relative_to(os.path.realpath(path))
    if holds_current:  # a relative path would lead elsewhere when the folder has been moved away
        raise InputError(f"{path}: is or holds the current folder, so it cannot be replaced; name a folder inside it")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    label = _label(target.name)
    if _leftovers(target.parent).get(label):
        with explain_write_error(target), _lock(target, 0) as is_ours:
            if is_ours:
                _discard_leftovers(target.parent, label)
    return target


def remove_scratch() -> None:
    """Remove what this process has begun to write, where it ends without coming back to it."""
    for scratch in list(_open_scratch):
        _discard(scratch)


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers left in a folder, and put back what they had moved away; skip living writers."""
    for label in _leftovers(folder):
        with suppress(InputError), _lock(folder / label, 0) as is_ours:
            if is_ours:
                _discard_leftovers(folder, label)


@contextmanager
def scratch_folder(path: Path, patience: float = 0) -> Iterator[Path]:
    """Yield an empty folder beside `path`, in which something can be prepared; it is removed at the end.

    One process at a time has it. What a killed process left is removed by the next one that prepares the same path.

    :param patience: seconds to wait for another process.
    :raises InputError: when the folder cannot be made, or another process has it.
    """
    label, nested = _label(path.name), _is_nested(path)
    with ExitStack() as stack:
        with explain_write_error(path, every=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not nested and stack.enter_context(_lock(path, patience)):
                _discard_leftovers(path.parent, label)
            scratch = Path(tempfile.mkdtemp(".tmp", f".{label}.", path.parent))
        _open_scratch.add(scratch)
        try:
            yield scratch
        finally:
            _open_scratch.discard(scratch)
            _discard(scratch)


def sync(path: Path) -> None:
    """Wait until a file, or a folder with everything in it, is on the disk and would survive a power cut."""
    for each in (path, *path.rglob("*")) if path.is_dir() else (path,):
        _sync_entry(each)


def _sync_entry(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:  # a folder on Windows
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


def _put_in_place(temporary: Path, path: Path, old: Path | None = None) -> None:
    """Rename what was written to its path, when it is on the disk.

    :param old: where to move a folder that is there. A folder cannot be renamed onto one that is not empty.
    """
    durable = not _is_nested(path)
    if durable:
        sync(temporary)
    if old and os.path.lexists(path):
        old.parent.mkdir()
        path.replace(old)
    temporary.replace(path)
    if durable:
        _sync_entry(path.parent)


def _is_nested(path: Path) -> bool:
    """Tell whether a path is inside a folder that is itself written as a whole."""
    return any(parent in _open_scratch for parent in path.parents)


def _label(name: str) -> str:
    """Return what the names of the scratch folders of a file repeat: its name, or a hash of a long one."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= _LONGEST_LABEL else hashlib.sha256(encoded).hexdigest()


def _leftovers(folder: Path) -> dict[str, list[Path]]:
    """Map labels to the scratch folders in a folder, which may be those of living processes."""
    found: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if match := _SCRATCH.fullmatch(entry.name):
            found.setdefault(match["label"], []).append(entry)
    return found


def _discard_leftovers(folder: Path, label: str) -> None:
    """Remove the scratch folders of a label, whose lock this process holds."""
    for leftover in _leftovers(folder).get(label, ()):
        _discard(leftover)


def _discard(scratch: Path) -> None:
    """Remove a scratch folder or file; put back what was moved into it while nothing was put in its place."""
    moved = []
    # Who made the folder around it may have put links there: nothing is moved from where they lead.
    if not (scratch.is_symlink() or (scratch / "old").is_symlink()):
        moved = [(old, scratch.parent / old.name) for old in scratch.glob("old/*")]
    if scratch.suffix == ".old":  # of an earlier version
        moved = [(scratch, scratch.parent / scratch.name[1:].rsplit(".", 2)[0])]
    try:
        for old, path in moved:
            if not os.path.lexists(path):
                old.replace(path)
            elif old != scratch:
                old.replace(scratch / "removed")  # half of it must not be put back after a kill
    except OSError:
        return  # it may be the only copy
    if scratch.is_dir() and not scratch.is_symlink():
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        with suppress(OSError):
            scratch.unlink(missing_ok=True)


@contextmanager
def _lock(path: Path, patience: float) -> Iterator[bool]:
    """Hold the lock of the writers of a path; yield False where the system has no such locks.

    The system releases it however the process ends.

    :param patience: seconds to wait for another process.
    :raises InputError: when another process holds it.
    """
    file = path.with_name(f".{_label(path.name)}.lock~")
    deadline = time.monotonic() + patience
    while (descriptor := _try_lock(file)) == _HELD:
        if time.monotonic() >= deadline:
            raise InputError(f"{path}: another process is writing it; wait until it has ended, then run again")
        time.sleep(0.02)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            with suppress(OSError):
                file.unlink()
            os.close(descriptor)


def _try_lock(file: Path) -> int | None:
    """Open and lock a file.

    :returns: its descriptor, -1 if another process holds the lock, or None where the system has no such locks.
    """
    try:
        import fcntl
    except ImportError:
        return None
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return _HELD
        except OSError:  # some network file systems
            os.close(descriptor)
            return None
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)  # the process that held it has removed the file


@contextmanager
def explain_write_error(path: Path, every: bool = False) -> Iterator[None]:
    """Turn a failed write into an InputError.

    :param every: whether all OSErrors are about writing. In a block that also reads, only some are.
    """
    try:
        yield
    except Exception as error:
        if (number := _error_number(error)) in _NOT_WRITABLE:
            why = os.strerror(number)
        elif every and isinstance(error, OSError):
            why = error.strerror or first_line(error)
        else:
            raise
        raise InputError(
            f"{path}: cannot be written ({why}); free space or choose another folder, then run again"
        ) from error


@contextmanager
def explain_read_error(path: Path) -> Iterator[None]:
    """Turn a failed read into an InputError, also that of folders in folders, a thousand deep."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{error.filename or path}: cannot be read ({error.strerror}); correct its permissions"
        ) from error
    except RecursionError as error:
        raise InputError(f"{path}: holds hundreds of folders in each other; move them away") from error


def is_disk_full(error: BaseException) -> bool:
    """Tell whether a write failed because a disk, a quota or the size of a file is at its limit."""
    return _error_number(error) in _DISK_FULL


def _error_number(error: BaseException) -> int | None:
    """Return the system's number of an error, which many libraries only write into its text; None without one."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if match := _RUST_ERROR.search(str(error)):
        return int(match[1] or match[2])
    return errno.ENOSPC if _SHORT_WRITE.search(str(error)) else None


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


def write_between_markers(page: Path, name: str, script: str, text: str) -> None:
    """Replace the text between the two markers of a name in a page of Markdown, atomically.

    :param script: what writes the text; the first marker names it.
    :raises InputError: when the page lacks one of the markers.
    """
    begin, end = f"<!-- {name}: begin, written by {script} -->", f"<!-- {name}: end -->"
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise InputError(f"{page}: lacks {end if begun else begin}; put it where the text is to be")
    write_text(page, f"{before}{begin}\n{text}\n{end}{after}")


def write_json(path: Path, value: object) -> None:
    """Write indented JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")


def check_json_size(path: Path) -> None:
    """Refuse a JSON file that would fill the memory, before it is read whole.

    :raises InputError: when it is larger than any model's.
    """
    if (size := path.stat().st_size) > _MOST_JSON:
        raise InputError(f"{path}: holds {megabytes(size)}, too many for JSON ({megabytes(_MOST_JSON)}); do not use it")


def read_json(path: Path, *, of_any_size: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    :param of_any_size: for a file that grows with the user's data.
    :raises InputError: when the file is missing, is a device, is too large, cannot be read or is not JSON.
    """
    try:
        if path.is_char_device():  # such as /dev/zero, which never ends
            raise InputError(f"{path}: is a device; give a file")
        if not of_any_size:
            check_json_size(path)
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; put it there, or give another path") from error
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
