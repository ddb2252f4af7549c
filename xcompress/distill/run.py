"""A run folder: finished steps with what they depended on, a lock, and the state that `export` and `bench` read."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from xcompress.console import say
from xcompress.errors import InputError
from xcompress.files import hash_of, read_json, remove_leftovers, whole_folder, write_json

STEP = "step.json"

Key = Mapping[str, object]
"""What a step depends on, by name; a change of any value makes the step run again."""
Build = Callable[[Path], Mapping[str, object]]
"""Fills a folder and returns facts worth keeping."""


@dataclass(frozen=True)
class Step:
    """A finished step."""

    name: str
    folder: Path
    key: str
    """Hash of everything the step depended on, earlier steps included."""
    seconds: float
    facts: Mapping[str, Any]
    reused: bool


class Run:
    """A run folder that this process alone writes to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[Step] = []

    @property
    def vectors(self) -> Path:
        """Where teacher vectors are cached."""
        return self.folder / "vectors"

    def work(self, name: str, key: Key) -> Path:
        """Return the folder of a step's checkpoints; another key gives another folder."""
        return self.folder / "work" / f"{name}-{hash_of(key)}"

    def step(self, name: str, key: Key, build: Build) -> Step:
        """Return the finished step, from an earlier run where nothing it depends on has changed.

        :param name: also the step's folder.
        """
        folder = self.folder / name
        earlier = read_json(folder / STEP) if (folder / STEP).exists() else None
        if earlier and earlier["key"] == _plain(key):
            say(f"{name}: finished earlier, reused")
            return self._done(Step(name, folder, hash_of(key), earlier["seconds"], earlier["facts"], reused=True))
        if earlier:
            say(f"{name}: runs again, because of a change in {', '.join(_changes(earlier['key'], _plain(key)))}")
        self._forget_checkpoints(name, but=self.work(name, key))
        started = time.monotonic()
        with whole_folder(folder) as temporary:
            facts = dict(build(temporary))
            seconds = time.monotonic() - started
            write_json(temporary / STEP, {"key": _plain(key), "seconds": round(seconds, 1), "facts": facts})
        self._forget_checkpoints(name)
        say(f"{name}: done in {seconds:.0f} s")
        return self._done(Step(name, folder, hash_of(key), seconds, read_json(folder / STEP)["facts"], reused=False))

    def _forget_checkpoints(self, name: str, but: Path | None = None) -> None:
        for work in self.folder.glob(f"work/{name}-*"):
            if work != but:
                shutil.rmtree(work, ignore_errors=True)

    def _done(self, step: Step) -> Step:
        self.steps.append(step)
        return step


def _plain(key: Key) -> dict[str, str]:
    return {name: value if isinstance(value, str) else hash_of(value) for name, value in key.items()}


def _changes(earlier: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name))


@contextmanager
def open_run(folder: Path) -> Iterator[Run]:
    """Open a run folder for writing.

    :raises InputError: when another process has it open, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(f"{folder}: another process uses this run; wait for it or choose another --run") from error
    except OSError as error:
        raise InputError(f"{folder}: cannot be a run folder ({error.strerror}); choose another --run") from error
    try:
        remove_leftovers(folder)
        yield Run(folder)
    finally:
        lock.release()
