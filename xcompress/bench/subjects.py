"""Find the subjects of a bench: bundles, and the models that they are compared with."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xcompress.bench.results import UNKNOWN, Kind
from xcompress.bundle.hub import bundle_from_hub, is_hub_bundle
from xcompress.bundle.manifest import MANIFEST, choose_graph, graphs_of, inside, newest_bundle, read_manifest
from xcompress.bundle.released import find_bundle, released_names
from xcompress.errors import InputError
from xcompress.packages import install_command
from xcompress.paths import as_path
from xcompress.recipe import load_recipe
from xcompress.runtimes import ENGINES
from xcompress.sources import looks_like_path
from xcompress.sources.python_code import PYTHON

RUN_REFERENCE = "unmodified assistant, PyTorch"
LABELLED = re.compile(r"(?P<label>[^/:=]+)=(?P<model>[^=].*)")
KIND_LABELS = {
    "onnx": "ONNX",
    **{name: runtime.label for name, runtime in ENGINES.items()},
    "pytorch": "PyTorch",
    "python": "Python",
}


@dataclass(frozen=True)
class Subject:
    """One model in one runtime and precision."""

    name: str
    kind: Kind
    source: str
    """A bundle's folder, the folder or file of a student or encoder, or `python:package.module:name`."""
    precision: str = "fp32"
    tokenizer: Path | None = None
    """None if unknown; such a subject takes text only."""
    weights: tuple[Path, ...] = ()
    """Files that hold the weights, the main one first."""
    max_tokens: int | None = None
    """Most tokens of a text, from a bundle's manifest or an encoder's positions; None if unknown."""
    broken: str | None = None
    """Why it cannot be measured; its row in the report says so."""


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
    """The reference first, if there is one."""
    reference: str | None
    """Name of the reference."""
    bundles: list[Bundle]
    run: Path | None
    """The run that all bundles belong to, if there is one."""


def find_subjects(named: Sequence[str | Path], reference: str | Path | None = None, *, steps: bool = True) -> Subjects:
    """Find the models that the user names, or the newest `runs/*/bundle`, and the reference.

    A single bundle is measured with all of its graphs, and with the models of its run. Of several bundles, the graph
    that each opens by default is measured. One of several that cannot be read becomes a broken subject.

    :param named: bundles, released models by name, students, encoders and `python:package.module:name`; `label=model`
        gives a model another name in the report.
    :param reference: a model to compare with; None takes the assistant of the bundles' run.
    :param steps: whether the models between the assistant and a single bundle are measured, too.
    :raises InputError: when there is nothing, nothing can be read, or two subjects have the same name.
    """
    models = list(dict.fromkeys(_split_label(str(name)) for name in named)) or [("", str(_newest_bundle()))]
    is_single = len(models) == 1
    opened = {name: _open(name) for name in dict.fromkeys(name for _, name in models)}
    subjects = []
    for label, name in models:
        subjects += _labelled(label, _subjects_of(opened[name], every_graph=is_single))
    if is_single and subjects[0].broken:
        raise InputError(subjects[0].broken)
    # Add the reference, and the models of the run.
    bundles = [model for model in opened.values() if isinstance(model, Bundle)]
    runs = {bundle.run for bundle in bundles}
    run = runs.pop() if len(runs) == 1 else None
    base: list[Subject] = []
    if reference:
        label, name = _split_label(str(reference))
        base = _labelled(label, _subjects_of(_open(name), every_graph=False))
    elif run:
        base = _run_student(RUN_REFERENCE, run / "reference")
    between: list[Subject] = []
    if run and is_single and steps:
        if _trains_assistant(run):
            between += _run_student("assistant after stage 1, PyTorch", run / "assistant")
        between += _run_student("student, PyTorch", run / "student")
    listed = _make_names_unique([*base, *between, *subjects])
    return Subjects(listed, listed[0].name if base else None, bundles, run)


def _make_names_unique(subjects: Sequence[Subject]) -> list[Subject]:
    """Add their sources to subjects of the same name.

    :raises InputError: when a model is named twice.
    """
    counts = Counter(subject.name for subject in subjects)
    renamed = [
        replace(subject, name=f"{subject.source}, {KIND_LABELS[subject.kind]} {subject.precision}")
        if counts[subject.name] > 1
        else subject
        for subject in subjects
    ]
    twice = [name for name, count in Counter(subject.name for subject in renamed).items() if count > 1]
    if twice:
        raise InputError(f"bench: two subjects are named {twice[0]!r}; give each model and the reference only once")
    return renamed


def _split_label(name: str) -> tuple[str, str]:
    """Return the label of `label=model`, else nothing, and the model: for a released one, or with ~, its folder."""
    labelled = LABELLED.fullmatch(name)
    label, model = (labelled["label"], labelled["model"]) if labelled and not Path(name).exists() else ("", name)
    if model in released_names():
        return label, str(find_bundle(model))
    return label, str(as_path(model)) if model.startswith("~") else model


def _labelled(label: str, subjects: Sequence[Subject]) -> list[Subject]:
    """Name the subjects of a model by its label, if it has one; of several, add the runtime and precision of each."""
    if not label:
        return list(subjects)
    if len(subjects) == 1:
        return [replace(subjects[0], name=label)]
    return [replace(each, name=f"{label}, {KIND_LABELS[each.kind]} {each.precision}") for each in subjects]


def _newest_bundle() -> Path:
    newest = newest_bundle()
    if newest is None:
        raise InputError("runs: no bundle in any run yet; make one with `xcompress export` or name its folder")
    return newest


def _open(name: str) -> Bundle | Subject:
    """Open a bundle, or return another model as a subject; a model that cannot be read is a broken one."""
    kind: Kind = "pytorch"
    try:
        if name.startswith(PYTHON):
            return Subject(name.removeprefix(PYTHON), "python", name, UNKNOWN)
        if folder := _bundle_folder(name):
            kind = "onnx"
            return _open_bundle(folder)
        return _encoder_subject(name)
    except InputError as error:
        return Subject(name, kind, name, UNKNOWN, broken=str(error))


def _bundle_folder(name: str) -> Path | None:
    """Return the folder of a bundle, fetched if the name is the hub id of one; None for other models.

    Unlike `manifest.is_bundle`, it does not read the manifest of a local folder: a damaged bundle gets a row in the
    report that says so. A run has a manifest beside its student, and a checkpoint of `--format hf` has one beside its
    weights.
    """
    folder = as_path(name)
    if (folder / MANIFEST).is_file():
        is_other = (folder / "student").is_dir() or (folder / "model.safetensors").is_file()
        return None if is_other else folder
    # a hub id looks like a folder in a folder that does not exist
    is_hub_id = "/" in name and not (folder.exists() or folder.parent.is_dir() or looks_like_path(name))
    return bundle_from_hub(name) if is_hub_id and is_hub_bundle(name) else None


def _open_bundle(folder: Path) -> Bundle:
    manifest = read_manifest(folder)
    if not graphs_of(folder, manifest):
        raise InputError(f"{folder}: none of the graphs listed in {MANIFEST} exists; run `xcompress export` again")
    # A link, and `..`, have another parent than the folder that they lead to.
    real = folder.resolve()
    is_run = real.name.startswith("bundle") and (real.parent / MANIFEST).is_file()
    run = folder.parent if folder.parent.resolve() == real.parent else real.parent
    return Bundle(folder, manifest, run if is_run else None)


def _subjects_of(model: Bundle | Subject, *, every_graph: bool) -> list[Subject]:
    """Return the subjects of a model: of a bundle, all of its graphs or the one that it opens by default."""
    if isinstance(model, Subject):
        return [model]
    folder, manifest = model.folder, model.manifest
    graphs = graphs_of(folder, manifest)
    precisions = list(reversed(graphs)) if every_graph else [choose_graph(folder, manifest, "auto")[0]]
    source = manifest.get("release", {}).get("name") or manifest.get("source") or folder.name
    subjects = []
    for precision in precisions:
        graph = inside(folder, graphs[precision])
        external = sorted(path for path in graph.parent.glob(f"{graph.name}*") if path != graph)
        name, tokenizer = f"{source}, ONNX {precision}", inside(folder, "tokenizer.json")
        weights, longest = (graph, *external), int(manifest["max_tokens"])
        subjects.append(Subject(name, "onnx", str(folder), precision, tokenizer, weights, longest))
    return subjects


def _trains_assistant(run: Path) -> bool:
    """Tell whether a stage of a run trains its assistant; without its recipe, suppose so."""
    file = run / "recipe.yaml"
    return not file.is_file() or any(stage.train == "assistant" for stage in load_recipe(file).stages.values())


def _run_student(name: str, folder: Path) -> list[Subject]:
    """Return a student of a run, if its files are there."""
    weights, tokenizer = folder / "model.safetensors", folder / "tokenizer.json"
    is_complete = weights.is_file() and tokenizer.is_file()
    return [Subject(name, "pytorch", str(folder), "fp32", tokenizer, (weights,))] if is_complete else []


def _encoder_subject(reference: str) -> Subject:
    """Return a student or another encoder; its weights are opened by the worker."""
    if not Path(reference).exists() and not set(reference) & set("/:"):
        raise InputError(f"{reference}: no such folder; name a bundle that `xcompress export` made, or a model")
    try:
        from xcompress.export.source import find_source
        from xcompress.modeling.load import describe, files_of, is_student, tokenizer_file
        from xcompress.modeling.st_folder import folders_of
        from xcompress.modeling.student import read_config
    except ImportError as error:
        raise InputError(
            f"{reference}: needs PyTorch ({error}); {install_command('export')}, or name a bundle"
        ) from error
    source = find_source(reference)
    folder = source.student
    weights = [file for file in files_of(folder) if file.suffix != ".json"]
    weights.sort(key=lambda file: -file.stat().st_size)  # the encoder before its dense modules
    subject = Subject(f"{source.name}, PyTorch", "pytorch", str(folder), weights=tuple(weights))
    if folder.is_file():
        return subject
    config = read_config(folder) if is_student(folder) else describe(folder).config
    longest = None if config.rotary else config.max_position_embeddings - config.position_offset
    return replace(subject, tokenizer=tokenizer_file(folders_of(folder)[0]), max_tokens=longest)
