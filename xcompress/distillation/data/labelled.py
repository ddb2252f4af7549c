"""English pairs with labels as stages read them: gathered once, with those that a cross-encoder adds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.graded import PIVOT
from xcompress.corpus.labelled import Entailment, GradedPair, read_entailment, read_graded
from xcompress.corpus.normalise import one_sign
from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.augment import cross_encoder, grade, neighbour_pairs
from xcompress.distillation.data.targets import Column
from xcompress.distillation.hardware import has_bf16
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.encoder import locate
from xcompress.distillation.teachers.vectors import VectorsOf
from xcompress.files import read_json, write_json
from xcompress.recipe import AugmentSection, EncoderSection, Recipe
from xcompress.sources import fingerprint, resolve

KINDS = ("entailment", "graded")
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of one kind, and a label (int64) or a score from 0 to 1 (float32) for each, (N,)."""

    pairs: Sequence[Pair]
    values: NDArray[np.float32] | NDArray[np.int64]

    def goal(self, kind: str, rows: NDArray[np.int64]) -> dict[str, Column]:
        """Return what drawn pairs regress on: `labels` or `scores`."""
        return {"labels" if kind == "entailment" else "scores": Column(self.values[rows])}


@dataclass(frozen=True)
class Labelled:
    """All labelled pairs of a recipe, by kind, and a hash of what they depend on."""

    key: str | None = None
    kinds: Mapping[str, LabelledPairs] = field(default_factory=dict)


def labelled_step(recipe: Recipe, run: Run, vectors: VectorsOf, vectors_key: str) -> Labelled:
    """Read the labelled pairs of a recipe, and add to the graded ones where it asks for that.

    :param vectors: encodes sentences to find those that are near; `vectors_key` is a hash of what it depends on.
    """
    part = recipe.labelled
    kinds = [kind for kind in KINDS if getattr(part, kind)]
    if not kinds:
        return Labelled()
    key = {
        "files": {kind: [fingerprint(reference) for reference in getattr(part, kind)] for kind in KINDS},
        "form": recipe.corpus.unicode_form,
        "augment": part.augment.model_dump(by_alias=True) if part.augment else None,
        "cross_encoder": fingerprint(part.augment.cross_encoder) if part.augment else None,
        "vectors": vectors_key if part.augment else None,
        "seed": recipe.seed if part.augment else None,
    }
    step = run.step("labelled", key, lambda folder: _build(recipe, vectors, folder), together=False)
    return Labelled(step.key, {kind: _read(step, kind) for kind in kinds})


def _read(step: Step, kind: str) -> LabelledPairs:
    rows = read_json(step.folder / f"{kind}.json")
    pairs = [Pair(first, second, PIVOT, kind) for first, second, _ in rows]
    values = np.array([value for *_, value in rows])
    return LabelledPairs(pairs, values if kind == "entailment" else values.astype(np.float32))


def _build(recipe: Recipe, vectors: VectorsOf, folder: Path) -> Mapping[str, object]:
    part = recipe.labelled
    form = one_sign if recipe.corpus.unicode_form == "nfkc" else str
    relations = [
        replace(one, premise=form(one.premise), hypothesis=form(one.hypothesis))
        for reference in part.entailment
        for one in read_entailment(resolve(reference))
    ]
    graded = [
        replace(one, first=form(one.first), second=form(one.second))
        for reference in part.graded
        for one in read_graded(resolve(reference))
    ]
    added = _augmented(part.augment, graded, vectors, recipe) if part.augment else []
    write_json(folder / "entailment.json", [_entailment_row(one) for one in relations])
    write_json(folder / "graded.json", [_graded_row(one) for one in (*graded, *added)])
    return {"entailment": len(relations), "graded": len(graded), "added_by_cross_encoder": len(added)}


def _entailment_row(one: Entailment) -> tuple[str, str, int]:
    return one.premise, one.hypothesis, one.label


def _graded_row(one: GradedPair) -> tuple[str, str, float]:
    return one.first, one.second, round(one.score, 6)


def _augmented(
    part: AugmentSection, graded: Sequence[GradedPair], vectors: VectorsOf, recipe: Recipe
) -> Sequence[GradedPair]:
    sentences = sorted({text for one in graded for text in (one.first, one.second)})
    known = [(one.first, one.second) for one in graded]
    pairs = neighbour_pairs(sentences, vectors(sentences), known, part.neighbours)
    located = locate(EncoderSection(source=part.cross_encoder, sha256=part.sha256), "labelled.augment")
    bf16 = has_bf16() and recipe.precision == "auto"
    return grade(cross_encoder(located, graded, part.epochs, recipe.seed, bf16=bf16), pairs)
