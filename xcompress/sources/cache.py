"""Where fetched things are kept."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
