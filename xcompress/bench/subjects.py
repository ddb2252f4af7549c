"""What is measured: bundles, and what they are compared with."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xcompress.bench.results import Kind
from xcompress.bundle.manifest import graphs_of, inside, read_manifest
from xcompress.bundle.released import released_folder, released_names
from xcompress.errors import InputError
from xcompress.sources.python_code import PYTHON

RUN_REFERENCE = "assistant as it comes, PyTorch"
NONE = "-"
LABELLED = re.compile(r"(?P<label>[^/:=]+)=(?P<reference>[^=].*)")
RUNTIMES = {"onnx": "ONNX", "pytorch": "PyTorch", "python": "Python"}


@dataclass(frozen=True)
class Subject:
    """One model in one runtime and precision."""

    name: str
    kind: Kind
    source: str
    """A bundle's folder, the folder or file of a student or encoder, or `python:package.module:name`."""
    precision: str = "fp32"
    tokenizer: Path | None = None
    """None where it is not known: such a subject takes text alone."""
    weights: tuple[Path, ...] = ()
    """Files that hold the weights, the main one first."""
    broken: str | None = None
    """Why it cannot be measured; it gets a row that says so."""


@dataclass(frozen=True)
class Bundle:
    """A bundle to measure."""

    folder: Path
    manifest: dict[str, Any]
    run: Path | None = None
    """The run it belongs to, if any."""

    @property
    def languages(self) -> list[str]:
        """The languages it was made for."""
        return list(self.manifest.get("languages", ()))


@dataclass(frozen=True)
class Subjects:
    """Everything to measure."""

    subjects: list[Subject]
    """The reference first, where there is one."""
    reference: str | None
    """Its name."""
    bundles: list[Bundle]

    @property
    def run(self) -> Path | None:
        """The run that all bundles belong to, if it is one."""
        runs = {bundle.run for bundle in self.bundles}
        return runs.pop() if len(runs) == 1 else None


def find_subjects(named: Sequence[str | Path], reference: str | Path | None = None, *, steps: bool = True) -> Subjects:
    """Find what to measure: what the user names, or the newest `runs/*/bundle`, and the reference.

    Of a single bundle every graph is measured, and the models of its run; beside others, the graph that each opens by
    default. What cannot be read among others is a subject that is broken.

    :param named: bundles, released models by name; also students, encoders and `python:package.module:name`, as for the
        reference; each may have a name for the report in front, `name=reference`.
    :param reference: what to compare with, in place of the assistant of the bundles' run.
    :param steps: whether the models between the reference and a single bundle are measured, too.
    :raises InputError: when nothing can be read, there is nothing, or two subjects have one name.
    """
    names = list(dict.fromkeys(_path_of(str(name)) for name in named)) or [str(_newest())]
    bundles = [_opened(Path(name)) for name in names if _is_bundle(name) and (len(names) == 1 or _opens(name))]
    alone = len(names) == 1
    subjects = [one for name in names for one in _named(name, bundles, alone=alone)]
    found = Subjects([], None, bundles)
    first = [_whole_or_broken(_path_of(str(reference)))] if reference else _run_reference(found.run)
    others = _of_run(found.run) if alone and steps else []
    every = _distinct([*first, *others, *subjects])
    if alone and subjects[0].broken:
        raise InputError(subjects[0].broken)
    return Subjects(every, every[0].name if first else None, bundles)


def _path_of(name: str) -> str:
    """Return the folder of a released model that is named; anything else as it stands."""
    is_released = name in released_names() and not Path(name).exists()
    return str(released_folder(name)) if is_released else name


def _named(name: str, bundles: Sequence[Bundle], *, alone: bool) -> list[Subject]:
    bundle = next((one for one in bundles if one.folder == Path(name)), None)
    return _of_bundle(bundle, alone=alone) if bundle else [_whole_or_broken(name)]


def _is_bundle(name: str) -> bool:
    """Tell a bundle's folder, whole or not, from what else can be named."""
    folder = Path(name)
    return not name.startswith(PYTHON) and (folder / "manifest.json").is_file() and not (folder / "student").is_dir()


def _opens(name: str) -> bool:
    try:
        _opened(Path(name))
    except InputError:
        return False
    return True


def _whole_or_broken(name: str) -> Subject:
    """Find one subject; `label=reference` gives it a name of the user's."""
    labelled = LABELLED.fullmatch(name)
    if labelled and not Path(name).exists():
        return replace(_whole_or_broken(labelled["reference"]), name=labelled["label"])
    try:
        return _subject(name)
    except InputError as error:
        return Subject(name, "onnx" if _is_bundle(name) else "pytorch", name, NONE, broken=str(error))


def _subject(name: str) -> Subject:
    """Find one subject; a bundle's is the graph that it opens by default."""
    if name.startswith(PYTHON):
        return Subject(name.removeprefix(PYTHON), "python", name, NONE)
    if _is_bundle(name):
        bundle = _opened(Path(name))
        return _of_bundle(bundle, alone=False)[0]
    if not Path(name).exists() and not set(name) & set("/:"):
        raise InputError(f"{name}: no such folder; name a bundle that `xcompress export` made, or a model")
    return _encoder(name)


def _newest() -> Path:
    manifests = sorted(Path("runs").glob("*/bundle*/manifest.json"), key=lambda path: path.stat().st_mtime)
    if not manifests:
        raise InputError("runs: no bundle in any run yet; make one with `xcompress export` or name its folder")
    return manifests[-1].parent


def _opened(folder: Path) -> Bundle:
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: no manifest.json, so not a bundle; make one with `xcompress export`")
    manifest = read_manifest(folder)
    if not graphs_of(folder, manifest):
        raise InputError(f"{folder}: none of the graphs that manifest.json names is here; run `xcompress export` again")
    parent = folder.resolve().parent
    is_run = folder.resolve().name.startswith("bundle") and (parent / "manifest.json").is_file()
    return Bundle(folder, manifest, (parent if folder.name in ("", ".") else folder.parent) if is_run else None)


def _of_bundle(bundle: Bundle, *, alone: bool) -> list[Subject]:
    graphs = graphs_of(bundle.folder, bundle.manifest)
    manifest = bundle.manifest
    chosen = list(reversed(graphs)) if alone else [manifest.get("precision") or next(iter(graphs))]
    source = manifest.get("release", {}).get("name") or manifest.get("source") or bundle.folder.name
    return [_graph(bundle, f"{source}, ONNX {name}", name, graphs[name]) for name in chosen if name in graphs]


def _graph(bundle: Bundle, name: str, precision: str, graph: str) -> Subject:
    file = inside(bundle.folder, graph)
    weights = (file, *sorted(other for other in file.parent.glob(f"{file.name}*") if other != file))
    return Subject(name, "onnx", str(bundle.folder), precision, inside(bundle.folder, "tokenizer.json"), weights)


def _run_reference(run: Path | None) -> list[Subject]:
    return _student(RUN_REFERENCE, run / "reference") if run else []


def _of_run(run: Path | None) -> list[Subject]:
    if run is None:
        return []
    return _student("assistant after stage 1, PyTorch", run / "assistant") + _student(
        "student, PyTorch", run / "student"
    )


def _student(name: str, folder: Path) -> list[Subject]:
    """Return a student of a run, where it is there whole."""
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    whole = weights.is_file() and tokenizer.is_file()
    return [Subject(name, "pytorch", str(folder), "fp32", tokenizer, (weights,))] if whole else []


def _encoder(reference: str) -> Subject:
    """Find a student or foreign encoder; its weights are opened where they are measured, not here."""
    try:
        from xcompress.export.source import find_source
        from xcompress.modeling.load import tokenizer_file
        from xcompress.modeling.st_folder import folders_of
    except ImportError as error:
        raise InputError(
            f"{reference}: needs PyTorch ({error}); pip install 'xcompress[export]', or name a bundle"
        ) from error
    source = find_source(reference)
    folder = source.student
    tokenizer = tokenizer_file(folders_of(folder)[0]) if folder.is_dir() else None
    weights = tuple(sorted(folder.rglob("*.safetensors"))) if folder.is_dir() else (folder,)
    return Subject(f"{source.name}, PyTorch", "pytorch", str(folder), "fp32", tokenizer, weights)


def _distinct(subjects: Sequence[Subject]) -> list[Subject]:
    """Name subjects of one name by their places; refuse what is named twice: it could not be told apart."""
    counts = Counter(one.name for one in subjects)
    renamed = [_by_place(one) if counts[one.name] > 1 else one for one in subjects]
    twice = [name for name, count in Counter(one.name for one in renamed).items() if count > 1]
    if twice:
        raise InputError(f"bench: two subjects are {twice[0]!r}; name each model, and the reference, once")
    return renamed


def _by_place(subject: Subject) -> Subject:
    return replace(subject, name=f"{subject.source}, {RUNTIMES[subject.kind]} {subject.precision}")
