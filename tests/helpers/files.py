"""Bytes of files that tests make up, and their hashes; files that are made once for all processes of a test run."""

import atexit
import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from filelock import FileLock

RUN_FOLDER = "XCOMPRESS_TEST_RUN_FOLDER"
"""The environment variable with the folder of these files, which conftest.py makes and removes."""


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """Let the first process of a test run that asks for a file or folder make it; tests must not change it."""
    place, done = _run_folder() / name, _run_folder() / f"{name}.done"
    with FileLock(_run_folder() / f"{name}.lock"):
        if not done.exists():
            make(place)
            done.touch()
    return place


@cache
def _run_folder() -> Path:
    """Return the folder that pytest has made; without pytest, one of this process."""
    if folder := os.environ.get(RUN_FOLDER):
        return Path(folder)
    own = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def zipped(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


@contextmanager
def nested_folders(top: Path, depth: int = 1500) -> Iterator[None]:
    """Make folders in each other, and remove them at the end, as `shutil.rmtree` recurses too deep for that."""
    places = [f"{top}{'/a' * number}" for number in range(depth + 1)]
    for place in places:
        os.mkdir(place)  # noqa: PTH102 - thousands of paths
    try:
        yield
    finally:
        for place in reversed(places):
            os.rmdir(place)  # noqa: PTH106


@contextmanager
def pipe_with(content: bytes) -> Iterator[Path]:
    """Yield the path of a pipe that holds up to 64 KB, as a shell's <(command) does: it can be read once."""
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    try:
        yield Path(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
