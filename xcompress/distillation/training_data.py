"""The pairs that each stage reads and the vectors that it learns, prepared once for all steps of a run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from xcompress.bundle.released import RELEASED
from xcompress.console import say, warn
from xcompress.corpus.columns import Rows
from xcompress.corpus.graded import GradedSet, read_folder
from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.batches import draw
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.labels import TextName, VectorTable
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES, Sentences, Side
from xcompress.distillation.dev import DevSet
from xcompress.distillation.initialization import least_squares_head
from xcompress.distillation.run_folder import Run
from xcompress.distillation.teachers.disk import check_disk, count_texts
from xcompress.distillation.teachers.ensemble import Encoders, FrozenEncoder
from xcompress.distillation.teachers.vectors import VectorStore
from xcompress.errors import InputError
from xcompress.metrics import Encode, unit_length
from xcompress.modeling.centering import centering_map
from xcompress.modeling.load import describe, is_student
from xcompress.modeling.pca import principal_axes
from xcompress.modeling.student import read_config
from xcompress.paths import as_path
from xcompress.recipe import EncoderSection, Recipe, Stage
from xcompress.recipe.lineage import labelled_texts, runs_before, trained_on
from xcompress.recipe.parameters import teacher_width, width_of_vectors
from xcompress.sources import resolve
from xcompress.sources.python_code import PYTHON

FIT_PAIRS = 5000
"""Pairs whose English sentences heads and principal axes are fitted on; the same pairs whatever the stages are."""

HELD_OUT, FIT, SCORED = "held-out pairs", "fit pairs", "scored text"
"""Names of texts beside those of the stages."""
Texts = Mapping[TextName, Sequence[str]]
"""Lists of texts by name."""
Compute = Callable[[Texts], VectorTable]
"""Computes a model's own vectors of texts."""


@dataclass(frozen=True)
class TeacherVectors:
    """The teacher's vectors, as the stages learn them: reduced in width where the recipe asks for it."""

    sources: VectorTable
    """English sentences of the held-out pairs, the fit pairs and each stage that learns them."""
    targets: Callable[[], VectorTable]
    """Target sentences of each stage that learns them; computed at the first call, which no reused stage makes."""
    monolingual: Callable[[], VectorTable]
    """Both sides of the monolingual pairs of each stage that reads them; computed at the first call."""
    of_text: Encode
    """Maps English sentences of held-out and fit pairs to their vectors."""


@dataclass(frozen=True)
class TrainingData:
    """Pairs and vectors that the start step and the stages read."""

    train: Sequence[Pair]
    rows: Mapping[str, Rows]
    """Rows of `train` that each stage reads, by the stage's name."""
    monolingual_rows: Mapping[str, Rows]
    """Rows of the monolingual pairs that each stage reads, by the stage's name."""
    held_out: Sequence[Pair]
    dev: DevSet
    fit_pairs: Sequence[Pair]
    """Pairs that heads and principal axes are fitted on."""
    fit_texts: Sequence[str]
    """Their distinct English sentences."""
    teacher: TeacherVectors | None
    assistant: Callable[[], VectorTable] | None
    """Vectors of an assistant that gives only vectors; computed at the first call."""
    store: VectorStore
    """Of the vectors of frozen models."""

    def sentences(self, stage: str, side: Side) -> Sentences:
        """Return one side of the pairs that a stage reads."""
        return Sentences(self.train, side, self.rows[stage])


def prepare_training_data(
    recipe: Recipe,
    run: Run,
    corpus: Corpus,
    monolingual: Monolingual,
    stages: Mapping[str, Stage],
    encoders: Encoders,
    width: int,
) -> TrainingData:
    """Draw the pairs of each stage, and compute the teacher's vectors of them.

    :param stages: the stages that read translations or monolingual sentences, with their length in steps.
    :param width: of the vectors of the assistant, or of a student that starts from scratch, before it gets a head.
    :raises InputError: when the teacher's vectors do not fit the disk.
    """
    if recipe.teacher and recipe.teacher.targets == "stored":
        texts = count_texts(stages, len(corpus.train), lambda stage: [*map(len, corpus.rows_by_language(stage.text))])
        check_disk(run.folder, texts, teacher_width(recipe), can_be_live=not recipe.teacher.tables)

    # Draw the pairs.
    rows, monolingual_rows, store = {}, {}, VectorStore(run.vectors)
    for name, stage in stages.items():
        in_step, steps = stage.pairs_in_step, stage.planned_steps
        if "translations" in in_step:
            count = steps * in_step["translations"]
            rows[name] = draw(corpus.rows_by_language(stage.text), count, recipe.seed_of(name))
        if "monolingual" in in_step:
            count = steps * in_step["monolingual"]
            monolingual_rows[name] = draw(monolingual.rows_by_language, count, recipe.seed_of(name))
    held_out = corpus.read_held_out()
    fit_pairs = [corpus.train[row] for row in draw(corpus.rows_by_language(), FIT_PAIRS, recipe.seed)]
    fit_texts = sorted({pair.source for pair in fit_pairs})
    unseen, graded = _unseen(recipe, run, held_out, _read_graded(recipe))

    # Compute the teacher's vectors; those that only some stages read, and the assistant's, are left for who asks.
    teacher = None
    if recipe.teacher and encoders.teacher:
        stored = rows if recipe.teacher.targets == "stored" else ()

        def translations(side: Side) -> Texts:
            learned = [name for name in stored if side in stages[name].teacher_sides]
            return {(name, side): Sentences(corpus.train, side, rows[name]) for name in learned}

        monolingual_sides: Texts = {
            (name, side): Sentences(monolingual.pairs, side, of_stage)
            for name, of_stage in monolingual_rows.items()
            for side in SIDES
        }
        sources: Texts = {HELD_OUT: Sentences(held_out, "source"), FIT: fit_texts, **translations("source")}
        compute = partial(VectorTable.compute, encode=encoders.teacher.stored_vectors, store=store)
        targets = translations("target")
        with store.keep_model():
            teacher = _teacher_vectors(recipe, compute, sources, targets, monolingual_sides, width)
    dev = DevSet(unseen, teacher.of_text if teacher else None, graded)
    data = TrainingData(corpus.train, rows, monolingual_rows, held_out, dev, fit_pairs, fit_texts, teacher, None, store)
    if encoders.assistant and encoders.assistant.section.gives_only_vectors:
        of_assistant = partial(_assistant_vectors, recipe, data, stages, encoders.assistant, width)
        return replace(data, assistant=cache(of_assistant))
    return data


def _teacher_vectors(
    recipe: Recipe, compute: Compute, sources: Texts, targets: Texts, monolingual: Texts, width: int
) -> TeacherVectors:
    """Compute the vectors of the sources, and map them to the space that the student learns.

    :param compute: returns the teacher's own vectors of texts, by their names.
    :param sources: English sentences by name, with the held-out ones and those that maps are fitted on.
    :param targets: sentences whose vectors are computed when they are asked for, as those of `monolingual`.
    :param width: as for `prepare_training_data`.
    :raises InputError: as `target_width`, or when there are too few sentences to centre vectors.
    """
    section = recipe.teacher
    assert section is not None
    table = _compute_reduced(recipe, compute, sources, width, section.normalize, section.dimensions)
    if section.center:
        if len(sources[FIT]) < 2:
            raise InputError("teacher.center: needs 2 English sentences or more, and the text has 1; give more text")
        table = _multiplied(table, centering_map(table.by_text(FIT)(sources[FIT])), section.normalize)
    transform = table.transform
    return TeacherVectors(
        table,
        cache(lambda: replace(compute(targets), transform=transform)),
        cache(lambda: replace(compute(monolingual), transform=transform)),
        table.by_text(HELD_OUT, FIT),
    )


def _read_graded(recipe: Recipe) -> GradedSet | None:
    """Read the STS sets that models are scored on, in the languages of the recipe; None where it names none."""
    if recipe.dev.sts is None:
        return None
    languages = ["en", *recipe.languages]
    whole = read_folder(resolve(recipe.dev.sts)).within(languages)
    if not whole.language_pairs:
        warn(f"dev.sts: {recipe.dev.sts} has no pairs of {', '.join(languages)}; models are not scored on STS")
    fewest = min(map(len, whole.language_pairs.values()), default=0)
    if 0 < fewest <= recipe.dev.every:
        raise InputError(
            f"dev.every: {recipe.dev.every} leaves one row of the {fewest} of a language pair, and a rank correlation "
            "needs two; choose a smaller one"
        )
    return whole.every(recipe.dev.every)


def _unseen(
    recipe: Recipe, run: Run, held_out: Sequence[Pair], graded: GradedSet | None
) -> tuple[list[Pair], GradedSet | None]:
    """Leave out dev text that was trained on, by an earlier run whose student this one starts or learns from.

    Of STS sets, rows with a sentence that this run learns with a label are left out, too: the splits of a benchmark may
    share sentences.
    """
    earlier = runs_before(recipe)
    texts = {text for pair in held_out for text in (pair.source, pair.target)}
    seen = trained_on({*texts, *(graded.sentences() if graded else ())}, earlier)
    unseen = [pair for pair in held_out if seen.isdisjoint((pair.source, pair.target))]
    if len(unseen) < len(held_out):
        say(
            f"{len(held_out) - len(unseen):,} of {len(held_out):,} held-out pairs are not scored, as "
            f"{', '.join(map(str, earlier))} trained on one of their sentences"
        )
    if graded is None:
        return unseen, None
    # The folder of the step may be that of an earlier recipe.
    learned = labelled_texts(run.folder) if any(step.name == "labelled" for step in run.steps) else set()
    kept = graded.unseen({*seen, *learned})
    counts = {pair: (len(rows), len(kept.language_pairs.get(pair, ()))) for pair, rows in graded.language_pairs.items()}
    # of the language pair that loses most; those of row-aligned sets lose the same rows
    before, after = max(counts.values(), key=lambda count: count[0] - count[1], default=(0, 0))
    if after < before:
        say(f"dev.sts: {before - after:,} of {before:,} rows are not scored, as training reads one of their sentences")
    return unseen, kept


def _assistant_vectors(
    recipe: Recipe, data: TrainingData, stages: Mapping[str, Stage], assistant: FrozenEncoder, width: int
) -> VectorTable:
    """Compute the vectors of an assistant that gives only vectors, for both sides of the stages that learn them.

    With `widths: head` a linear map, fitted by least squares on the fit pairs, takes them to the teacher's space.
    """
    texts: dict[TextName, Sequence[str]] = {FIT: data.fit_texts}
    if assistant.section.source.startswith((PYTHON, RELEASED)):  # a table has no vectors of text that no stage learns
        held_out = [text for pair in data.held_out for text in (pair.source, pair.target)]
        texts[SCORED] = [*held_out, *(data.dev.graded.sentences() if data.dev.graded else [])]
    for name, stage in stages.items():
        if "assistant" in stage.objectives:
            texts |= {(name, side): data.sentences(name, side) for side in SIDES}
    compute = partial(VectorTable.compute, encode=assistant.stored_vectors, store=data.store)
    with data.store.keep_model():
        table = _compute_reduced(recipe, compute, texts, width, recipe.normalizes)
    if recipe.widths == "head" and data.teacher:
        head = least_squares_head(table.by_text(FIT)(data.fit_texts), data.teacher.of_text(data.fit_texts))
        weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
        return replace(table, transform=lambda vectors: vectors @ weight.T + bias)
    return table


def _compute_reduced(
    recipe: Recipe, compute: Compute, texts: Texts, width: int, normalize: bool, dimensions: int | None = None
) -> VectorTable:
    """Compute vectors, and reduce them to the width that the student learns.

    :param texts: by name, with those that principal axes are fitted on.
    :param dimensions: `teacher.dimensions`.
    """
    fit_texts, reduced_to = texts[FIT], None
    if dimensions or recipe.widths != "head" or not recipe.teacher:
        # One vector shows a wrong width; the others may take hours.
        own_width = compute({FIT: fit_texts[:1]}).vectors.dimension
        reduced_to = target_width(recipe, width, dimensions, len(fit_texts), own_width)
    table = compute(texts)
    if reduced_to is None or reduced_to == table.vectors.dimension:
        return table
    return _multiplied(table, principal_axes(table.by_text(FIT)(fit_texts), reduced_to), normalize)


def check_widths(recipe: Recipe) -> None:
    """Check the width that the teacher's vectors are reduced to, where files on this machine tell all widths.

    Of other teachers the first vector tells it, once the text has been read.

    :raises InputError: as `target_width`, but for the number of texts.
    """
    teacher = recipe.teacher
    if teacher is None or (recipe.widths == "head" and not teacher.dimensions):
        return
    of_members = [_own_width(member) for member in teacher.members.values()]
    dimension = sum(filter(None, of_members))
    width = _own_width(recipe.assistant.layer_source) if recipe.assistant else recipe.student.hidden
    if None not in of_members and (width or teacher.dimensions):
        target_width(recipe, width or 0, teacher.dimensions, dimension, dimension)


def _own_width(encoder: EncoderSection) -> int | None:
    """Return the width of an encoder's vectors; None where only a vector tells."""
    if encoder.gives_only_vectors:
        return width_of_vectors(encoder)
    folder = as_path(encoder.source)
    if not folder.is_dir():
        return None
    with suppress(InputError):  # of an encoder that sentence-transformers opens, but a `Student` cannot express
        config = read_config(folder) if is_student(folder) else describe(folder, pooling=encoder.pooling).config
        return config.dimension
    return None


def target_width(recipe: Recipe, width: int, dimensions: int | None, texts: int, dimension: int) -> int:
    """Return the width to which vectors are reduced where no head is fitted to them.

    :param width: of the encoder's vectors.
    :param dimensions: `teacher.dimensions`.
    :param texts: number of texts that principal axes are fitted on.
    :param dimension: of the vectors.
    :raises InputError: when the width must not differ, or the vectors are narrower, or fewer, than axes are wanted.
    """
    use_head = "use head" if recipe.teacher else "choose another assistant, as a head needs a teacher"
    if dimensions:
        key, wanted, advice = "teacher.dimensions", dimensions, f"choose {min(texts, dimension)} or fewer"
    elif recipe.widths == "pca":
        key, wanted, advice = "widths: pca", width, use_head
    elif dimension == width:
        return width
    else:
        use_pca = "use head or pca" if recipe.teacher else "use pca, as a head needs a teacher"
        raise InputError(
            f"widths: {recipe.widths}, but the targets have {dimension} dimensions and the encoder {width}; "
            f"{use_pca if dimension > width else use_head}"
        )
    if wanted > dimension:
        raise InputError(f"{key} cannot widen vectors of width {dimension} to {wanted}; {advice}")
    if texts < wanted < dimension:
        raise InputError(
            f"{key} needs {wanted} sentences or more for {wanted} axes, but there are {texts}; add text, or {advice}"
        )
    return wanted


def _multiplied(table: VectorTable, matrix: NDArray[np.float32], normalize: bool) -> VectorTable:
    """Multiply the vectors by a matrix (D', D), and scale them to unit length where the teacher's are."""
    before = table.transform
    if normalize:
        return replace(table, transform=lambda vectors: unit_length(before(vectors) @ matrix.T))
    return replace(table, transform=lambda vectors: before(vectors) @ matrix.T)
