"""Where the student to export comes from: a run, its folder, or the newest finished run."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from xcompress.errors import InputError
from xcompress.files import hash_of, read_json, sha256_of
from xcompress.student import MODEL_TYPE, PARTS

RUNS = Path("runs")
MANIFEST = "manifest.json"
"""What a run, or a bundle, says about itself."""


@dataclass(frozen=True)
class Source:
    """A student on disk and what is known about how it was made."""

    name: str
    """The run's name, or the name of the student's folder."""
    student: Path
    """Folder with config.json, model.safetensors and tokenizer.json."""
    bundle: Path
    """Where the bundle goes if the user names no place."""
    run: Mapping[str, Any]
    """What the run says about itself; empty for a bare student."""

    def place(self, recurrences: int | None) -> Path:
        """Where the bundle of the student with that many recurrences goes; None is the student as it is."""
        return self.bundle if recurrences is None else self.bundle.with_name(f"{self.bundle.name}-r{recurrences}")

    def fingerprint(self) -> str:
        """Hash the student's weights, configuration and tokenizer."""
        return hash_of([sha256_of(self.student / part) for part in PARTS])


def find_source(path: Path | None) -> Source:
    """Find the student that `path` stands for.

    :param path: a run folder, a student folder, or None for the newest finished run below `RUNS`.
    :raises InputError: when there is no student.
    """
    if path is None:
        return _from_run(_newest_run(RUNS))
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give a run (runs/<name>) or a student folder")
    return _from_run(path) if _is_run(path) else _from_student(path)


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds what an export made; a run has a manifest.json, too."""
    described = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    return isinstance(described, dict) and "made_from" in described


def _is_run(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and not is_bundle(folder)


def _newest_run(runs: Path) -> Path:
    finished = [(_finished(folder / MANIFEST), folder) for folder in runs.glob("*") if _is_run(folder)]
    dated = [(when, folder) for when, folder in finished if when is not None]
    if not dated:
        raise InputError(
            f"{runs}/: no finished run here; run `xcompress distill recipes/minilm_ru3.yaml` first, "
            "or name a run or student folder"
        )
    return max(dated)[1]


def _finished(file: Path) -> float | None:
    described = read_json(file)
    when = described.get("finished") if isinstance(described, dict) else None
    if when is None:
        return None
    try:
        return datetime.fromisoformat(when).timestamp()
    except (TypeError, ValueError) as error:
        raise InputError(f"{file}: finished is {when!r}, not an ISO time; correct or delete the file") from error


def _from_run(folder: Path) -> Source:
    run = read_json(folder / MANIFEST)
    if not isinstance(run, dict):
        raise InputError(f"{folder / MANIFEST}: expected a mapping, found {type(run).__name__}; run distill again")
    student = folder / "student"
    if not student.is_dir():
        raise InputError(f"{folder}: the run has no student yet; finish it with `xcompress distill` and its recipe")
    _check_student(student)
    return Source(str(run.get("name") or folder.resolve().name), student, folder / "bundle", run)


def _from_student(folder: Path) -> Source:
    _check_student(folder)
    name = folder.resolve().name
    return Source(name, folder, folder.resolve().with_name(f"{name}-bundle"), {})


def _check_student(folder: Path) -> None:
    missing = [part for part in PARTS if not (folder / part).is_file()]
    if missing:
        raise InputError(f"{folder}: no {', '.join(missing)} here; give a run (runs/<name>) or a student folder")
    described = read_json(folder / "config.json")
    found = described.get("model_type") if isinstance(described, dict) else None
    if found != MODEL_TYPE:
        raise InputError(
            f"{folder / 'config.json'}: model_type is {found!r}, expected {MODEL_TYPE!r}; give a folder that "
            "`xcompress distill` made"
        )
