"""A run folder: a lock, finished steps with their keys and facts, checkpoints and cached vectors."""

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

from xcompress.bundle.manifest import MANIFEST
from xcompress.console import say
from xcompress.distillation import distributed
from xcompress.distillation.file_records import DAMAGED, FileRecords, check_recorded, describe, record_files
from xcompress.errors import InputError
from xcompress.files import check_encoding, check_target, hash_of, read_json, remove_leftovers, whole_folder, write_json

STEP = "step.json"
LOCK, VECTORS = ".lock", "vectors"
_READABLE = ("version", "widths", "precision", "vocabulary.method", "stage.train")
"""Key entries whose values are words. Of the others, numbers are shown when they change; hashes and lists are not."""

Key = Mapping[str, object]
"""What a step depends on, by name; a change of any value makes the step run again."""
Build = Callable[[Path], Mapping[str, object]]
"""Fills a step's folder and returns facts about it; `seconds_before` is the time that earlier calls spent on it."""


@dataclass(frozen=True)
class Step:
    """A finished step."""

    name: str
    folder: Path
    key: str
    """Hash of everything the step depended on, earlier steps included."""
    seconds: float
    facts: Mapping[str, Any]
    files: FileRecords
    reused: bool


class Run:
    """A run folder. Only this process, or the main one of several workers, writes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[Step] = []

    @property
    def vectors(self) -> Path:
        """The folder of cached vectors."""
        return self.folder / VECTORS

    def work(self, name: str, key: Key) -> Path:
        """Return the folder of a step's checkpoints; another key gives another folder."""
        return self.folder / "work" / f"{name}-{hash_of(key)}"

    def step(self, name: str, key: Key, build: Build, together: bool = True) -> Step:
        """Build a step, or reuse it where nothing that it depends on has changed since it was built.

        A step may be built inside another one, which needs it first.

        :param name: also the step's folder.
        :param together: whether all workers build it, the main one in the step's folder and the others in temporary
            folders; otherwise only the main one does.
        :raises InputError: when the key is not the same for all workers.
        """
        folder = self.folder / name
        for step in self.steps:
            if (step.name, step.key) == (name, hash_of(key)):
                return step
        flat = flatten(key)
        others = distributed.all_gather_object(flat)
        differ = [entry for entry in flat if any(other.get(entry) != flat[entry] for other in others)]
        if differ:
            raise InputError(
                f"{name}: {', '.join(differ)} not the same for all workers; give every host the same text and models, "
                "under the same paths"
            )
        reused = distributed.all_gather_object(distributed.is_main() and self._can_reuse(name, key))[0]
        if reused:
            say(f"{name}: finished earlier, reused")
        else:
            if distributed.is_main():
                self._build(name, key, build)
            elif together:
                with TemporaryDirectory() as temporary:
                    build(Path(temporary))
            distributed.barrier()
        saved = read_json(folder / STEP)
        self.steps.append(Step(name, folder, hash_of(key), saved["seconds"], saved["facts"], saved["files"], reused))
        return self.steps[-1]

    def _can_reuse(self, name: str, key: Key) -> bool:
        """Tell whether a step was built with the same key and has all its files; say what keeps it from reuse."""
        folder = self.folder / name
        if not folder.exists():
            return False
        try:
            earlier = read_json(folder / STEP)
            changes = ", ".join(_changes(earlier["key"], flatten(key)))
            if not {"seconds", "facts"} <= earlier.keys():
                raise KeyError
        except DAMAGED:
            say(f"{name}: {STEP} is missing or damaged; the step is done again")
            return False
        if changes:
            say(f"{name}: runs again, because of a change in {changes}")
            return False
        if damage := check_recorded(folder / STEP):
            say(f"{name}: {describe(damage)}; the step is done again")
        return not damage

    def _build(self, name: str, key: Key, build: Build) -> None:
        """Build a step in the main process, and remove its checkpoints when it is done."""
        (self.folder / MANIFEST).unlink(missing_ok=True)  # the run is no longer finished
        if self._remove_checkpoints(name, keep=self.work(name, key)):
            say(f"{name}: checkpoints of other settings are removed")
        started, steps_before = time.monotonic(), len(self.steps)
        with whole_folder(self.folder / name) as temporary:
            facts: dict[str, Any] = dict(build(temporary))
            inside = sum(step.seconds for step in self.steps[steps_before:] if not step.reused)
            seconds = round(max(time.monotonic() - started - inside, 0) + facts.get("seconds_before", 0), 1)
            files = record_files(temporary, (path for path in temporary.rglob("*") if path.is_file()))
            write_json(temporary / STEP, {"key": flatten(key), "seconds": seconds, "facts": facts, "files": files})
        self._remove_checkpoints(name)
        say(f"{name}: done in {seconds:.0f} s")

    def _remove_checkpoints(self, name: str, keep: Path | None = None) -> bool:
        """Remove the checkpoints of a step, and tell whether there were any."""
        others = [work for work in self.folder.glob(f"work/{name}-*") if work != keep]
        for work in others:
            shutil.rmtree(work, ignore_errors=True)
        return bool(others)


def flatten(value: object, name: str = "") -> dict[str, Any]:
    """Return the values inside nested mappings by dotted names, as JSON holds them."""
    if not isinstance(value, Mapping):
        return {name: json.loads(json.dumps(value, default=str))}
    prefix = f"{name}." if name else ""
    return {
        full_name: leaf for key, inner in value.items() for full_name, leaf in flatten(inner, f"{prefix}{key}").items()
    }


def _changes(earlier: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    """Name the entries that differ between two keys, with both values where a reader understands them."""
    for name in sorted(earlier.keys() | now.keys()):
        old, new = earlier.get(name), now.get(name)
        if old != new:
            readable = all(value is None or isinstance(value, int | float) or name in _READABLE for value in (old, new))
            yield f"{name} ({new}, was {old})" if readable else name


def check_run_folder(folder: Path) -> None:
    """Refuse what cannot be a run folder.

    That is a path that no folder can have, a file, and a folder of other files, which steps would replace. Vectors may
    be copied there from another run.

    :raises InputError: saying why.
    """
    check_encoding(folder)
    check_target(folder)
    if folder.is_file():
        raise InputError(f"{folder}: cannot be a run folder (it is a file); choose another --run")
    if folder.is_symlink() and not folder.is_dir():
        raise InputError(f"{folder}: cannot be a run folder (a link that leads nowhere); choose another --run")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if names - {VECTORS} and LOCK not in names and not any(folder.glob(f"*/{STEP}")):
        raise InputError(f"{folder}: is not empty and not a run; choose another --run")


@contextmanager
def open_run(folder: Path) -> Iterator[Run]:
    """Open a run folder for writing.

    :raises InputError: when it holds anything but a run, another process has it open, or it cannot be written.
    """
    if not distributed.is_main():
        yield Run(folder)
        return
    check_run_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
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
