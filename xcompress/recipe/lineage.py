"""Runs that follow each other: the student of one teaches the next, or lends it layers."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from xcompress.bundle.manifest import MANIFEST
from xcompress.console import tracked
from xcompress.corpus.build import TRAIN
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.recipe import Encoder, Recipe, load_recipe
from xcompress.recipe.validation import encoders

_STAGE = re.compile(r"\d+-.+")


def lineage(run: Path) -> list[Path]:
    """Return the runs whose students taught or lent to the next, the first trained first, and the run itself."""
    return [*runs_before(load_recipe(run / "recipe.yaml")), run]


def runs_before(recipe: Recipe) -> list[Path]:
    """Return the runs whose students taught or lent to the next, and the last of them to the recipe's."""
    own = [folder.parent for _, encoder in encoders(recipe) if (folder := _student(encoder))]
    return list(dict.fromkeys(run for one in own for run in lineage(one)))


def student_before(recipe: Recipe) -> Path | None:
    """Return the folder of another run's student, at its end or after a stage, that lends its layers, if any."""
    return _student(recipe.assistant.layer_source) if recipe.assistant else None


def _student(encoder: Encoder) -> Path | None:
    folder = Path(encoder.source)
    is_student = folder.name == "student" or _STAGE.fullmatch(folder.name)
    return folder if is_student and (folder.parent / MANIFEST).is_file() else None


def trained_on(texts: Iterable[str], runs: Sequence[Path]) -> set[str]:
    """Return those of the texts that one of the runs trained on, on either side of a pair and in any spelling.

    Runs on other text hold out other sentences: what one holds out, another may have trained on.
    """
    spelled: dict[str, set[str]] = {}
    for text in texts if runs else ():
        spelled.setdefault(sentence_key(text), set()).add(text)
    files = [file for run in runs for file in sorted((run / "corpus").glob(f"{TRAIN}.*.tsv"))]
    seen: set[str] = set()
    for file in tracked(files, "earlier runs: files read"):
        for pair in PairFile(file, file.name.split(".")[1]):
            seen |= {sentence_key(pair.source), sentence_key(pair.target)} & spelled.keys()
    return {text for key in seen for text in spelled[key]}
