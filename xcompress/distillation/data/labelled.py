"""The labelled step: pairs with a score or an entailment label. The augmented step: more, graded by a cross-encoder."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.console import say
from xcompress.corpus.columns import Rows
from xcompress.corpus.graded import PIVOT
from xcompress.corpus.labelled import GradedPair, read_aligned_graded, read_entailment, read_graded
from xcompress.corpus.normalise import UNICODE_FORMS
from xcompress.corpus.pairs import Pair
from xcompress.corpus.split import sentence_key
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.labels import ScalarLabels
from xcompress.distillation.hardware import trains_in_bf16
from xcompress.distillation.run_folder import STEP, Run, Step
from xcompress.distillation.teachers.encoder import locate
from xcompress.distillation.teachers.ensemble import TeacherEnsemble
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student
from xcompress.recipe import AlignedGradedFiles, AugmentSection, EncoderSection, Recipe
from xcompress.sources import fingerprint, is_here, looks_like_path, resolve
from xcompress.sources.hub import hub_snapshot
from xcompress.sources.model_folder import PROMPTS

KINDS = ("entailment", "graded")


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of one kind, with an entailment label (int64) or a score from 0 to 1 (float32) for each, (N,)."""

    pairs: Sequence[Pair]
    values: NDArray[np.float32] | NDArray[np.int64]

    def labels(self, rows: Rows) -> dict[str, ScalarLabels]:
        """Return the labels of some pairs by name: `relations` or `scores`."""
        name = "relations" if self.values.dtype == np.int64 else "scores"
        return {name: ScalarLabels(self.values[rows])}


@dataclass(frozen=True)
class Labelled:
    """The labelled pairs of a recipe, by kind."""

    step: Step | None = None
    """The step that wrote them; None where the recipe has no labelled pairs."""
    kinds: Mapping[str, LabelledPairs] = field(default_factory=dict)

    @property
    def key(self) -> str | None:
        """Key of the step."""
        return self.step.key if self.step else None


def labelled_step(recipe: Recipe, run: Run, corpus: Corpus) -> Labelled:
    """Read the labelled pairs of a recipe without held-out sentences, or reuse them.

    :raises InputError: when a file cannot be read, or all pairs of a kind that a stage reads are held out.
    """
    section = recipe.labelled
    kinds = [kind for kind in KINDS if getattr(section, kind)]
    if not kinds:
        return Labelled()
    draws = any(isinstance(entry, AlignedGradedFiles) for entry in section.graded)
    key = {
        "files": {kind: [_fingerprint(entry) for entry in getattr(section, kind)] for kind in KINDS},
        "form": recipe.corpus.unicode_form,
        "seed": recipe.seed if draws else None,
        "corpus": corpus.step.key,
    }
    step = run.step("labelled", key, partial(_build, recipe, corpus), together=False)
    return Labelled(step, {kind: _read(step.folder / f"{kind}.json", kind) for kind in kinds})


def check_local_cross_encoder(recipe: Recipe) -> None:
    """Check the cross-encoder of a recipe, if it is on this machine: it is opened hours later.

    :raises InputError: as `check_cross_encoder`.
    """
    section = recipe.labelled.augment
    if section and is_here(section.cross_encoder):
        from xcompress.distillation.data.augment import check_cross_encoder

        check_cross_encoder(_locate(section), section.epochs, trust_remote_code=section.trust_remote_code)


def check_hub_cross_encoder(recipe: Recipe, run: Run) -> None:
    """Check the configuration of a cross-encoder that is on a hub, unless its step is finished; no weights are fetched.

    :raises InputError: when the hub cannot be reached, or the cross-encoder is not trained and has no output layer.
    """
    section = recipe.labelled.augment
    if not section or looks_like_path(section.cross_encoder) or is_here(section.cross_encoder):
        return
    if (run.folder / "augmented" / STEP).is_file():
        return
    advice = "check the network, or give a local folder"
    files = ["config.json", PROMPTS]
    source = hub_snapshot(section.cross_encoder, files, lambda folder: (folder / files[0]).is_file(), advice)
    if not section.epochs:
        from xcompress.distillation.data.augment import check_can_grade

        check_can_grade(source)


def _locate(section: AugmentSection) -> Path:
    return locate(EncoderSection(source=section.cross_encoder, sha256=section.sha256), "labelled.augment")


def augmented_step(
    recipe: Recipe, run: Run, labelled: Labelled, teacher: TeacherEnsemble | None, start: Step
) -> Labelled:
    """Return the labelled pairs with those that a cross-encoder grades, where the recipe asks for that.

    :param teacher: encodes sentences to find those that are near each other; without one, the model of `start` does.
    :raises InputError: when no English graded pair is left to start from.
    """
    section = recipe.labelled.augment
    if section is None or labelled.step is None:
        return labelled
    key = {
        "labelled": labelled.key,
        "augment": section.model_dump(by_alias=True),
        "cross_encoder": fingerprint(section.cross_encoder),
        "vectors": teacher.fingerprint if teacher else start.key,
        "seed": recipe.seed,
        "precision": recipe.precision if section.epochs else None,
    }
    build = partial(_build_augmented, section, recipe, labelled.step, teacher, start)
    step = run.step("augmented", key, build, together=False)
    return Labelled(step, {**labelled.kinds, "graded": _read(step.folder / "graded.json", "graded")})


def _fingerprint(entry: str | AlignedGradedFiles) -> str | dict[str, str]:
    if isinstance(entry, str):
        return fingerprint(entry)
    return {language: fingerprint(source) for language, source in entry.sources.items()}


def _read(path: Path, kind: str) -> LabelledPairs:
    rows = read_json(path, of_any_size=True)
    pairs = [Pair(first, second, PIVOT, kind) for first, second, _ in rows]
    values = [value for *_, value in rows]
    if kind == "entailment":
        return LabelledPairs(pairs, np.array(values, dtype=np.int64))
    return LabelledPairs(pairs, np.array(values, dtype=np.float32))


def _build(recipe: Recipe, corpus: Corpus, folder: Path) -> Mapping[str, object]:
    section, left_out = recipe.labelled, Counter[str]()
    held_out = corpus.held_out_keys()

    def is_free(kind: str, first: str, second: str) -> bool:
        free = held_out.isdisjoint((sentence_key(first), sentence_key(second)))
        left_out[kind] += not free
        return free

    normalise = UNICODE_FORMS[recipe.corpus.unicode_form]
    entailment = [
        replace(pair, premise=normalise(pair.premise), hypothesis=normalise(pair.hypothesis))
        for source in section.entailment
        for pair in read_entailment(resolve(source))
        if is_free("entailment", pair.premise, pair.hypothesis)
    ]

    # Graded pairs; a cross-encoder reads those in English alone.
    english, aligned = list[GradedPair](), dict[str, list[GradedPair]]()
    for entry in section.graded:
        if isinstance(entry, AlignedGradedFiles):
            files = {code: resolve(name) for code, name in entry.sources.items()}
            pairs = read_aligned_graded(files, recipe.seed)
            aligned[entry.source] = [pair for pair in pairs if is_free("graded", pair.first, pair.second)]
        else:
            english += [pair for pair in read_graded(resolve(entry)) if is_free("graded", pair.first, pair.second)]
    graded = [
        replace(pair, first=normalise(pair.first), second=normalise(pair.second))
        for pair in (*english, *(pair for pairs in aligned.values() for pair in pairs))
    ]
    _check_counts(recipe, {"entailment": len(entailment), "graded": len(graded)}, left_out)
    write_json(folder / "entailment.json", [(pair.premise, pair.hypothesis, pair.label) for pair in entailment])
    write_json(folder / "graded.json", [(pair.first, pair.second, round(pair.score, 6)) for pair in graded])
    return {
        "entailment": len(entailment),
        "graded": len(english),
        "aligned": {source: len(pairs) for source, pairs in aligned.items()},
    }


def _check_counts(recipe: Recipe, counts: Mapping[str, int], left_out: Mapping[str, int]) -> None:
    """Say how many pairs of each kind are left, and refuse a kind that a stage reads without any."""
    for kind, count in counts.items():
        if not getattr(recipe.labelled, kind):
            continue
        if not count and any(kind in stage.pairs_in_step for stage in recipe.stages.values()):
            raise InputError(
                f"labelled.{kind}: no pair is left, as all {left_out[kind]:,} share a sentence with the held-out text; "
                "name more pairs, or set corpus.holdout lower"
            )
        say(f"labelled: {kind}: {count:,} pairs, {left_out[kind]:,} left out as held out")


def _build_augmented(
    section: AugmentSection, recipe: Recipe, labelled: Step, teacher: TeacherEnsemble | None, start: Step, folder: Path
) -> Mapping[str, object]:
    """Pair each English sentence with its nearest neighbours, and have a cross-encoder grade the pairs."""
    from xcompress.distillation.data.augment import cross_encoder, grade, neighbour_pairs

    rows = read_json(labelled.folder / "graded.json", of_any_size=True)
    graded = [GradedPair(*row) for row in rows[: labelled.facts["graded"]]]
    if not graded:
        raise InputError("labelled.augment: no English graded pair is left to start from; name more in labelled.graded")
    encode = teacher.load() if teacher else student_encoder("encoder before training", *Student.load(start.folder))
    sentences = sorted({text for pair in graded for text in (pair.first, pair.second)})
    known = [(pair.first, pair.second) for pair in graded]
    pairs = neighbour_pairs(sentences, encode(sentences), known, section.neighbours)
    bf16, trust = trains_in_bf16(recipe.precision), section.trust_remote_code
    model = cross_encoder(_locate(section), graded, section.epochs, recipe.seed, bf16=bf16, trust_remote_code=trust)
    added = grade(model, pairs)
    write_json(folder / "graded.json", [*rows, *((pair.first, pair.second, round(pair.score, 6)) for pair in added)])
    return {"added_by_cross_encoder": len(added)}
