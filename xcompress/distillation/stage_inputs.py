"""What a stage is made of: its settings, the models and the text of the run, and the batches that it learns from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import DistinctTexts
from xcompress.distillation.data.batches import PairBatches, draw, word_labels
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.groups import Groups
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.labels import Labels, LiveLabels, VectorTable
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.data.tokens import tokens_step
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.ensemble import Encoders
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore, student_encoder
from xcompress.distillation.training_data import TrainingData
from xcompress.metrics import Encode
from xcompress.modeling.student import Student
from xcompress.recipe import GROUP, PairKind, Recipe, Stage


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


def open_batches(
    run: Run,
    settings: StageSettings,
    models: StageModels,
    text: StageText,
    kind: PairKind,
    model: Student,
    tokenizer: Tokenizer,
    teacher: Encode | None,
) -> PairBatches:
    """Tokenise the pairs of one kind that a stage reads, or open their tokens, and add their labels.

    :param model: reads the tokens.
    :param teacher: computes its vectors in the training steps; None where they are stored.
    """
    stage, seed, data, words = settings.stage, settings.seed, text.get_data(), None
    count = stage.planned_steps * stage.pairs_in_step[kind]
    key: str | None = text.corpus.step.key
    pairs, labels = data.train, dict[str, Labels]()

    # Choose the rows of the pairs in the order of the training, and those of all stages, which share the tokens.
    match kind:
        case "translations":
            rows, of_stages = data.rows[settings.name], [*data.rows.values()]
            labels |= _translation_labels(settings, models, data, teacher)
            words = word_labels(settings.name, stage, tokenizer, seed)
        case "monolingual":
            key, pairs = text.monolingual.key, text.monolingual.pairs
            rows, of_stages = data.monolingual_rows[settings.name], [*data.monolingual_rows.values()]
            labels |= _monolingual_labels(settings.name, pairs, data, teacher)
        case "groups":
            assert text.groups is not None  # the recipe has them where a stage reads them
            rows, labels["correlation_sources"] = text.groups.draw(count, seed)
            of_stages = [text.groups.rows]
        case "entailment" | "graded":
            labelled = text.labelled.kinds[kind]
            key, pairs, of_stages = text.labelled.key, labelled.pairs, [np.arange(len(labelled.pairs))]
            rows = draw(of_stages, count, seed)
            labels |= labelled.labels(rows)

    folder, tokenised = tokens_step(run, f"tokens_{kind}", key, pairs, of_stages, tokenizer, model.config)
    return PairBatches(
        folder,
        labels,
        model.config.pad_token_id,
        rows=np.searchsorted(tokenised, rows),
        word_labels=words,
        group_size=GROUP if kind == "groups" else 1,
    )


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
                of_side = table.labels((name, side))
            labels[f"teacher_{side}s"] = of_side
    if "assistant" in stage.objectives:
        # the first is an assistant that gives only vectors
        table = data.assistant() if data.assistant else _trained_assistant_vectors(name, models, data)
        labels |= {f"assistant_{side}s": table.labels((name, side)) for side in SIDES}
    return labels


def _trained_assistant_vectors(name: str, models: StageModels, data: TrainingData) -> VectorTable:
    """Compute the vectors that the trained assistant has of both sides of a stage's translations."""
    assert models.assistant is not None  # checked when the recipe was loaded
    key = models.assistant.key

    def encode(texts: DistinctTexts, store: VectorStore) -> StoredVectors:
        return store.vectors("assistant", key, texts, lambda: student_encoder("assistant", *models.load_assistant()))

    return VectorTable.compute({(name, side): data.sentences(name, side) for side in SIDES}, encode, data.store)


def _monolingual_labels(
    name: str, pairs: Sequence[Pair], data: TrainingData, teacher: Encode | None
) -> dict[str, Labels]:
    """Return the teacher's vectors of both sides of the monolingual pairs of a stage, by name."""
    assert data.teacher is not None  # checked when the recipe was loaded
    if teacher:
        rows, transform = data.monolingual_rows[name], data.teacher.sources.transform
        return {f"teacher_{side}s": LiveLabels(Sentences(pairs, side, rows), teacher, transform) for side in SIDES}
    table = data.teacher.monolingual()
    return {f"teacher_{side}s": table.labels((name, side)) for side in SIDES}
