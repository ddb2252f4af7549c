"""What a stage is made of: its settings, the models and the text of the run, and the pairs that it learns from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from xcompress.corpus.columns import Rows
from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.batches import WordLabels, draw
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.groups import Groups
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.labels import Labels, LiveLabels, StageSide, VectorTable
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.losses.stage import word_labels
from xcompress.distillation.run_folder import Step
from xcompress.distillation.teachers.ensemble import Encoders
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.distillation.training_data import TrainingData
from xcompress.metrics import Encode
from xcompress.modeling.student import Student
from xcompress.recipe import PairKind, Recipe, Stage


@dataclass(frozen=True)
class StageSettings:
    """How a stage is trained."""

    recipe: Recipe
    name: str
    stage: Stage
    """With its length in steps."""
    seed: int
    tensorboard: Path | None
    """Folder of logs; None where none are written."""

    @property
    def uses_frozen_assistant(self) -> bool:
        """Whether the stage learns from an assistant that gives only vectors, in place of the trained one."""
        section = self.recipe.assistant
        return section is not None and "assistant" in self.stage.objectives and section.gives_only_vectors

    @property
    def has_live_teacher(self) -> bool:
        """Whether the stage learns from a teacher whose vectors are computed in the training steps."""
        teacher = self.recipe.teacher
        return teacher is not None and teacher.targets == "live" and self.stage.needs_teacher


@dataclass(frozen=True)
class StageModels:
    """The models that a stage starts and learns from."""

    encoders: Encoders
    start: Step
    assistant: Step | None
    """The assistant after the stages that trained it; None for a student that starts from scratch."""
    student: Step | None
    """The student after the last stage; None before its first one, where it is made from the assistant."""

    def load_assistant(self) -> tuple[Student, Tokenizer]:
        """Load the trained assistant; the recipe's checks ensure that a stage which needs it has one."""
        assert self.assistant is not None
        return Student.load(self.assistant.folder)


@dataclass(frozen=True)
class StageText:
    """The text that stages read."""

    corpus: Corpus
    monolingual: Monolingual
    labelled: Labelled
    groups: Groups | None
    """None where no stage reads groups of similar sentences."""
    get_data: Callable[[], TrainingData]
    """Draws the pairs of all stages and computes the teacher's vectors, once; called only where a step is built."""


@dataclass(frozen=True)
class StagePairs:
    """The pairs of one kind that a stage reads."""

    step_key: str | None
    """Key of the step that wrote the pairs."""
    pairs: Sequence[Pair]
    rows: Rows
    """The row of each pair that the stage reads, in the order of the training, (N,)."""
    rows_of_stages: Sequence[Rows]
    """Those of all stages, which share the tokens."""
    labels: Mapping[str, Labels]
    words: WordLabels | None = None


def stage_pairs(
    settings: StageSettings,
    models: StageModels,
    text: StageText,
    kind: PairKind,
    tokenizer: Tokenizer,
    teacher: Encode | None,
) -> StagePairs:
    """Open the pairs of one kind that a stage reads, and their labels.

    :param teacher: computes its vectors in the training steps; None where they are stored.
    """
    stage, seed, data = settings.stage, settings.seed, text.get_data()
    count = stage.planned_steps * stage.pairs_in_step[kind]
    match kind:
        case "translations":
            rows, of_stages = data.rows[settings.name], [*data.rows.values()]
            labels = _translation_labels(settings, models, data, teacher)
            words = word_labels(settings.name, stage, tokenizer, seed)
            return StagePairs(text.corpus.step.key, data.train, rows, of_stages, labels, words)
        case "monolingual":
            rows, of_stages = data.monolingual_rows[settings.name], [*data.monolingual_rows.values()]
            pairs = text.monolingual.pairs
            labels = _monolingual_labels(settings.name, pairs, data, teacher)
            return StagePairs(text.monolingual.key, pairs, rows, of_stages, labels)
        case "groups":
            assert text.groups is not None  # the recipe has them where a stage reads them
            rows, vectors = text.groups.draw(count, seed)
            labels = {"correlation_sources": vectors}
            return StagePairs(text.corpus.step.key, data.train, rows, [text.groups.rows], labels)
        case "entailment" | "graded":
            labelled = text.labelled.kinds[kind]
            every = [np.arange(len(labelled.pairs))]
            rows = draw(every, count, seed)
            return StagePairs(text.labelled.key, labelled.pairs, rows, every, labelled.labels(rows))


def _translation_labels(
    settings: StageSettings, models: StageModels, data: TrainingData, teacher: Encode | None
) -> dict[str, Labels]:
    """Return the vectors that the translations of a stage learn, by name."""
    name, stage, labels = settings.name, settings.stage, dict[str, Labels]()
    if data.teacher:
        for side in stage.teacher_sides:
            if teacher:
                of_side: Labels = LiveLabels(data.sentences(name, side), teacher, data.teacher.sources.transform)
            else:
                table = data.teacher.sources if side == "source" else data.teacher.targets()
                of_side = table.labels(StageSide(name, side))
            labels[f"teacher_{side}s"] = of_side
    if "assistant" in stage.objectives:
        if data.assistant and settings.uses_frozen_assistant:
            table = data.assistant()
        else:
            table = _trained_assistant_vectors(name, models, data)
        labels |= {f"assistant_{side}s": table.labels(StageSide(name, side)) for side in SIDES}
    return labels


def _trained_assistant_vectors(name: str, models: StageModels, data: TrainingData) -> VectorTable:
    """Compute the vectors that the trained assistant has of both sides of a stage's translations."""
    assert models.assistant is not None  # checked when the recipe was loaded
    encode = partial(
        data.store.vectors,
        "assistant",
        models.assistant.key,
        open_model=lambda: student_encoder("assistant", *models.load_assistant()),
    )
    return VectorTable.compute(
        {StageSide(name, side): data.sentences(name, side) for side in SIDES}, encode, data.store.folder
    )


def _monolingual_labels(
    name: str, pairs: Sequence[Pair], data: TrainingData, teacher: Encode | None
) -> dict[str, Labels]:
    """Return the teacher's vectors of both sides of the monolingual pairs of a stage, by name."""
    assert data.teacher is not None  # checked when the recipe was loaded
    if teacher:
        rows, transform = data.monolingual_rows[name], data.teacher.sources.transform
        return {f"teacher_{side}s": LiveLabels(Sentences(pairs, side, rows), teacher, transform) for side in SIDES}
    table = data.teacher.monolingual()
    return {f"teacher_{side}s": table.labels(StageSide(name, side)) for side in SIDES}
