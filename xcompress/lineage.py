"""Runs that follow each other: the student of one lends its layers to the next."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from xcompress.bundle_check import MANIFEST
from xcompress.console import tracked
from xcompress.corpus.build import TRAIN
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.recipe import Recipe, load_recipe

_STAGE = re.compile(r"\d+-.+")


def lineage(run: Path) -> list[Path]:
    """Return the runs whose students lent their layers to the next, the first trained first, and the run itself."""
    return [*runs_before(load_recipe(run / "recipe.yaml")), run]


def runs_before(recipe: Recipe) -> list[Path]:
    """Return the runs whose students lent their layers to the next, and the last of them to the recipe's."""
    before = student_before(recipe)
    return lineage(before.parent) if before else []


def student_before(recipe: Recipe) -> Path | None:
    """Return the folder of another run's student, at its end or after a stage, that lends its layers, if any."""
    assistant = recipe.assistant
    if assistant is None:
        return None
    folder = Path(assistant.donor.source)
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
