"""Runs that build on each other: the student of one is the teacher or the assistant of the next."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from xcompress.bundle.manifest import MANIFEST
from xcompress.console import tracked
from xcompress.corpus.build import TRAIN
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.files import read_json
from xcompress.paths import as_path
from xcompress.recipe import EncoderSection, Recipe, load_recipe

_TRAINED = ("student", "assistant", "hf")


def lineage(run: Path) -> list[Path]:
    """Return the runs that a run builds on, the first trained first, and the run itself."""
    return [*runs_before(load_recipe(run / "recipe.yaml"), frozenset({run.resolve()})), run]


def runs_before(recipe: Recipe, above: frozenset[Path] = frozenset()) -> list[Path]:
    """Return the runs that a recipe builds on, the first trained first.

    :param above: runs that build on this recipe; a run whose folder was used again may name one of them.
    """
    parents = [folder.parent for encoder in recipe.encoders.values() if (folder := _trained_folder(encoder))]
    runs: list[Path] = []
    for parent in parents:
        if parent.resolve() not in above:
            runs += [*runs_before(load_recipe(parent / "recipe.yaml"), above | {parent.resolve()}), parent]
    return list(dict.fromkeys(runs))


def student_before(recipe: Recipe) -> Path | None:
    """Return the model of another run whose layers this recipe copies, if any: its final or after-stage folder."""
    return _trained_folder(recipe.assistant.layer_source) if recipe.assistant else None


def _trained_folder(encoder: EncoderSection) -> Path | None:
    """Return the encoder's folder if a run trained it: its student or assistant, at the end or after a stage.

    `hf` is the student as `export --format hf` writes it, `2-contrast` the model after the second stage.
    """
    folder = as_path(encoder.source)
    is_trained = folder.name in _TRAINED or re.fullmatch(r"\d+-.+", folder.name)
    return folder if is_trained and (folder.parent / MANIFEST).is_file() else None


def trained_on(texts: Iterable[str], runs: Sequence[Path]) -> set[str]:
    """Return the texts that one of the runs trained on, with a translation, a label or alone, by `sentence_key`.

    Each run holds out sentences of its own corpus: what one holds out, another may have trained on.
    """
    texts_by_key: dict[str, set[str]] = {}
    for text in texts if runs else ():
        texts_by_key.setdefault(sentence_key(text), set()).add(text)
    if not texts_by_key:
        return set()
    files = [
        file
        for run in runs
        for file in sorted([*(run / "corpus").glob(f"{TRAIN}.*.tsv"), *(run / "monolingual").glob("*.tsv")])
    ]
    seen: set[str] = set()
    for file in tracked(files, "earlier runs: files read"):
        for pair in PairFile(file, file.name.split(".")[-2]):
            seen |= {sentence_key(pair.source), sentence_key(pair.target)} & texts_by_key.keys()
    for run in runs:
        seen |= set(map(sentence_key, labelled_texts(run))) & texts_by_key.keys()
    return {text for key in seen for text in texts_by_key[key]}


def labelled_texts(run: Path) -> set[str]:
    """Return the texts that a run trained on, or will train on, with a label."""
    files = [file for file in sorted((run / "labelled").glob("*.json")) if file.name != "step.json"]
    rows = (row for file in files for row in read_json(file, of_any_size=True))
    return {text for first, second, _ in rows for text in (first, second)}
