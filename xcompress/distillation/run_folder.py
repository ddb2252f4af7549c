"""A run folder: finished steps with what they depended on, a lock, and the state that `export` and `bench` read."""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from xcompress.console import say
from xcompress.distillation import distributed
from xcompress.errors import InputError
from xcompress.files import hash_of, read_json, remove_leftovers, whole_folder, write_json

STEP = "step.json"
_TOLD = ("version", "widths", "precision", "vocabulary.method", "stage.train")
"""Names in keys whose values are words; others are numbers, which are told, or hashes and lists, which are not."""

Key = Mapping[str, object]
"""What a step depends on, by name; a change of any value makes the step run again."""
Build = Callable[[Path], Mapping[str, object]]
"""Fills a folder and returns facts worth keeping; `seconds_before` is the time that an earlier call spent on it."""


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
    """A run folder that this process, or the main one of several workers, alone writes to."""

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

    def step(self, name: str, key: Key, build: Build, together: bool = True) -> Step:
        """Return the finished step, from an earlier run where nothing it depends on has changed.

        :param name: also the step's folder.
        :param together: whether all workers build it, the main one in the step's folder and the others in folders that
            are dropped; else the main one alone does.
        """
        folder = self.folder / name
        earlier = read_json(folder / STEP) if (folder / STEP).exists() else None
        reused = distributed.broadcast(earlier is not None and earlier["key"] == _flat(key))
        if not reused:
            self._make(name, key, build, together, earlier)
            distributed.wait()
        else:
            say(f"{name}: finished earlier, reused")
        described = read_json(folder / STEP)
        self.steps.append(Step(name, folder, hash_of(key), described["seconds"], described["facts"], reused))
        return self.steps[-1]

    def _make(self, name: str, key: Key, build: Build, together: bool, earlier: Mapping[str, Any] | None) -> None:
        if not distributed.is_main():
            if together:
                with TemporaryDirectory() as dropped:
                    build(Path(dropped))
            return
        if earlier:
            say(f"{name}: runs again, because of a change in {', '.join(_changes(earlier['key'], _flat(key)))}")
        self._forget_checkpoints(name, but=self.work(name, key))
        started = time.monotonic()
        with whole_folder(self.folder / name) as temporary:
            facts: dict[str, Any] = dict(build(temporary))
            seconds = round(time.monotonic() - started + facts.get("seconds_before", 0), 1)
            write_json(temporary / STEP, {"key": _flat(key), "seconds": seconds, "facts": facts})
        self._forget_checkpoints(name)
        say(f"{name}: done in {seconds:.0f} s")

    def _forget_checkpoints(self, name: str, but: Path | None = None) -> None:
        for work in self.folder.glob(f"work/{name}-*"):
            if work != but:
                shutil.rmtree(work, ignore_errors=True)


def _flat(value: object, name: str = "") -> dict[str, Any]:
    """Return the values inside nested mappings by dotted names, as JSON holds them."""
    if not isinstance(value, Mapping):
        return {name: json.loads(json.dumps(value, default=str))}
    prefix = f"{name}." if name else ""
    return {key: part for own, inner in value.items() for key, part in _flat(inner, f"{prefix}{own}").items()}


def _changes(earlier: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    names = sorted(name for name in earlier.keys() | now.keys() if earlier.get(name) != now.get(name))
    return [_change(name, earlier.get(name), now.get(name)) for name in names]


def _change(name: str, earlier: object, now: object) -> str:
    """Name a change, with both values where a reader can tell something from them."""
    telling = all(value is None or isinstance(value, int | float) or name in _TOLD for value in (earlier, now))
    return f"{name} ({now}, was {earlier})" if telling else name


@contextmanager
def open_run(folder: Path) -> Iterator[Run]:
    """Open a run folder for writing.

    :raises InputError: when another process has it open, or it cannot be written.
    """
    if not distributed.is_main():
        yield Run(folder)
        return
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
