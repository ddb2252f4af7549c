"""What comes close to a name that is missing."""

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from xcompress.errors import InputError


def cache_folder() -> Path:
    """Return the folder for fetched things: $XCOMPRESS_CACHE, else xcompress/ in the user's cache folder."""
    chosen = os.environ.get("XCOMPRESS_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "xcompress"


@contextmanager
def cache_written() -> Iterator[None]:
    """Say in one line why the cache could not be written in this block.

    :raises InputError: when it could not.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{cache_folder()}: cannot be written ({error.strerror or error}); set XCOMPRESS_CACHE to another folder"
        ) from error


def near_path(path: Path) -> str:
    """Say which files and folders have a name like that of a missing one."""
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=3)
    return _listed(close) if close else "check the path"


def near(folder: Path, name: str) -> str:
    """Say which files come close to one that is missing."""
    pattern = "**/*" if len(PurePosixPath(name).parts) > 1 else "*"
    return _suggest(name, [path.relative_to(folder).as_posix() for path in folder.glob(pattern)])


def _suggest(name: str, names: list[str]) -> str:
    base = PurePosixPath(name).name
    close = difflib.get_close_matches(name, names, n=5, cutoff=0.75)
    same = [other for other in sorted(names) if PurePosixPath(other).name == base]
    parent = PurePosixPath(name).parent
    beside = [other for other in sorted(names) if PurePosixPath(other).parent == parent]
    found = list(dict.fromkeys([*same, *close, *beside]))[:5] or sorted(names, key=lambda n: (n.count("/"), n))[:5]
    return _listed(found) if found else "nothing is there"


def _listed(names: list[str]) -> str:
    return f"near it: {', '.join(names)}"
