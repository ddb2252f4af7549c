"""The labelled step: pairs with a score or an entailment label, and pairs that a cross-encoder grades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.graded import PIVOT
from xcompress.corpus.labelled import GradedPair, read_aligned_graded, read_entailment, read_graded
from xcompress.corpus.normalise import one_sign
from xcompress.corpus.pairs import Pair
from xcompress.corpus.split import sentence_key
from xcompress.distillation.data.augment import cross_encoder, grade, neighbour_pairs
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.labels import ScalarLabels
from xcompress.distillation.hardware import has_bf16
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.encoder import locate
from xcompress.distillation.teachers.ensemble import TeacherEnsemble
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student
from xcompress.recipe import AlignedGradedFiles, AugmentSection, EncoderSection, Recipe
from xcompress.sources import fingerprint, resolve

KINDS = ("entailment", "graded")


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of one kind, with an entailment label (int64) or a score from 0 to 1 (float32) for each, (N,)."""

    pairs: Sequence[Pair]
    values: NDArray[np.float32] | NDArray[np.int64]

    def labels(self, rows: NDArray[np.int64]) -> dict[str, ScalarLabels]:
        """Return the labels of some pairs by name: `relations` or `scores`."""
        name = "relations" if self.values.dtype == np.int64 else "scores"
        return {name: ScalarLabels(self.values[rows])}


@dataclass(frozen=True)
class Labelled:
    """The labelled pairs of a recipe, by kind."""

    key: str | None = None
    """Key of the step; None where the recipe has no labelled pairs."""
    kinds: Mapping[str, LabelledPairs] = field(default_factory=dict)


def labelled_step(recipe: Recipe, run: Run, corpus: Corpus, teacher: TeacherEnsemble | None, start: Step) -> Labelled:
    """Read the labelled pairs of a recipe without held-out sentences, and add graded pairs where it asks for that.

    :param teacher: encodes sentences to find those that are near each other; without one, the model of `start` does.
    """
    section = recipe.labelled
    kinds = [kind for kind in KINDS if getattr(section, kind)]
    if not kinds:
        return Labelled()
    augment = section.augment
    draws = augment is not None or any(isinstance(entry, AlignedGradedFiles) for entry in section.graded)
    key = {
        "files": {kind: [_fingerprint(entry) for entry in getattr(section, kind)] for kind in KINDS},
        "form": recipe.corpus.unicode_form,
        "augment": augment.model_dump(by_alias=True) if augment else None,
        "cross_encoder": fingerprint(augment.cross_encoder) if augment else None,
        "vectors": (teacher.fingerprint if teacher else start.key) if augment else None,
        "seed": recipe.seed if draws else None,
        "corpus": corpus.step.key,
    }
    if augment and augment.epochs and recipe.precision != "auto":  # absent otherwise, as in keys of earlier versions
        key["precision"] = recipe.precision
    step = run.step("labelled", key, partial(_build, recipe, corpus, teacher, start), together=False)
    return Labelled(step.key, {kind: _read(step.folder / f"{kind}.json", kind) for kind in kinds})


def _fingerprint(entry: str | AlignedGradedFiles) -> str | dict[str, str]:
    if isinstance(entry, str):
        return fingerprint(entry)
    return {language: fingerprint(source) for language, source in entry.sources.items()}


def _read(path: Path, kind: str) -> LabelledPairs:
    rows = read_json(path)
    pairs = [Pair(first, second, PIVOT, kind) for first, second, _ in rows]
    values = [value for *_, value in rows]
    if kind == "entailment":
        return LabelledPairs(pairs, np.array(values, dtype=np.int64))
    return LabelledPairs(pairs, np.array(values, dtype=np.float32))


def _build(
    recipe: Recipe, corpus: Corpus, teacher: TeacherEnsemble | None, start: Step, folder: Path
) -> Mapping[str, object]:
    section = recipe.labelled
    held_out = {sentence_key(text) for pair in corpus.read_held_out() for text in (pair.source, pair.target)}

    def is_free(first: str, second: str) -> bool:
        return held_out.isdisjoint((sentence_key(first), sentence_key(second)))

    normalise = one_sign if recipe.corpus.unicode_form == "nfkc" else str
    entailment = [
        replace(pair, premise=normalise(pair.premise), hypothesis=normalise(pair.hypothesis))
        for source in section.entailment
        for pair in read_entailment(resolve(source))
        if is_free(pair.premise, pair.hypothesis)
    ]

    # Graded pairs; a cross-encoder reads those in English alone.
    english, aligned = list[GradedPair](), dict[str, list[GradedPair]]()
    for entry in section.graded:
        if isinstance(entry, AlignedGradedFiles):
            files = {code: resolve(name) for code, name in entry.sources.items()}
            pairs = read_aligned_graded(files, recipe.seed)
            aligned[entry.source] = [pair for pair in pairs if is_free(pair.first, pair.second)]
        else:
            english += [pair for pair in read_graded(resolve(entry)) if is_free(pair.first, pair.second)]
    graded = [
        replace(pair, first=normalise(pair.first), second=normalise(pair.second))
        for pair in (*english, *(pair for pairs in aligned.values() for pair in pairs))
    ]
    added = _augment(section.augment, recipe, graded[: len(english)], teacher, start) if section.augment else []
    write_json(folder / "entailment.json", [(pair.premise, pair.hypothesis, pair.label) for pair in entailment])
    write_json(folder / "graded.json", [(pair.first, pair.second, round(pair.score, 6)) for pair in (*graded, *added)])
    return {
        "entailment": len(entailment),
        "graded": len(english),
        "aligned": {source: len(pairs) for source, pairs in aligned.items()},
        "added_by_cross_encoder": len(added),
    }


def _augment(
    section: AugmentSection, recipe: Recipe, graded: Sequence[GradedPair], teacher: TeacherEnsemble | None, start: Step
) -> Sequence[GradedPair]:
    """Pair each sentence with its nearest neighbours, and have a cross-encoder grade the pairs."""
    encode = teacher.load() if teacher else student_encoder("encoder before training", *Student.load(start.folder))
    sentences = sorted({text for pair in graded for text in (pair.first, pair.second)})
    known = [(pair.first, pair.second) for pair in graded]
    pairs = neighbour_pairs(sentences, encode(sentences), known, section.neighbours)
    path = locate(EncoderSection(source=section.cross_encoder, sha256=section.sha256), "labelled.augment")
    bf16 = has_bf16() and recipe.precision == "auto"
    return grade(
        cross_encoder(
            path, graded, section.epochs, recipe.seed, bf16=bf16, trust_remote_code=section.trust_remote_code
        ),
        pairs,
    )
