"""Find the cache folder, and check the paths that users and downloaded files name."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PureWindowsPath

from xcompress.errors import InputError, first_line, short_repr

DEEPEST = 100
"""Folders in each other in a model's folder and in an archive. Python itself copies and removes up to a thousand."""


def cache_folder() -> Path:
    """Return the folder of what can be fetched or made again: $XCOMPRESS_CACHE, or xcompress in the user's cache.

    That is ~/.cache/xcompress on Linux, where XDG_CACHE_HOME is honoured.

    :raises InputError: when XCOMPRESS_CACHE starts with the home folder of an unknown user, or is not set and this user
        has no home folder.
    """
    chosen = os.environ.get("XCOMPRESS_CACHE")
    if not chosen:
        import platformdirs

        try:
            found = platformdirs.user_cache_dir("xcompress", appauthor=False)
        except RuntimeError:
            found = "~"  # as early versions of platformdirs begin it
        if found.startswith("~"):
            raise InputError("cache: this user has no home folder; set XCOMPRESS_CACHE to a folder for the cache")
        return Path(found)
    try:
        return Path(chosen).expanduser().absolute()  # the current folder may change
    except RuntimeError as error:
        raise InputError(f"XCOMPRESS_CACHE: {short_repr(chosen)}: no such home folder; give the whole path") from error


@contextmanager
def explain_cache_errors() -> Iterator[None]:
    """Turn a failure to write to the cache into one line.

    :raises InputError: when the block raises an OSError.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{cache_folder()}: cannot be written ({error.strerror or error}); set XCOMPRESS_CACHE to another folder"
        ) from error


def as_path(reference: str) -> Path:
    """Return a reference as a path, which may not exist; ~ is the home folder.

    :raises InputError: when it cannot be a path, is a web address, or is or lies in a folder that cannot be read.
    """
    if "://" in reference:
        raise InputError(
            f"{reference}: is a web address; give a local path, or the id alone of a model on the Hugging Face hub, "
            "such as intfloat/multilingual-e5-small"
        )
    try:
        path = Path(reference).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISDIR(path.stat().st_mode):
                os.stat(f"{path}/.")  # noqa: PTH116 - pathlib would drop the dot, which needs the right to enter
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{reference}: cannot be read as a path ({why}); correct it") from error
    return path


def leaves_folder(name: str) -> bool:
    """Tell whether a path relative to a folder leads out of it on any system: upwards, to a root, or to a drive."""
    path = PureWindowsPath(name)  # it has the separators of all systems
    return ".." in path.parts or bool(path.anchor) or "\0" in name


def path_inside(folder: Path, name: str) -> Path:
    """Return the path of a file or folder that may exist inside a folder, for names and links that others wrote.

    Links may lead elsewhere in the folder. The files of a snapshot in the cache of the Hugging Face hub,
    `models--org--name/snapshots/<commit>`, may also be links into the folder `blobs` of the same model.

    :param name: path relative to the folder, with / between its parts; empty for the folder itself.
    :raises InputError: when the name or a link leads out of the folder, or the path cannot be read.
    """
    if leaves_folder(name):
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
