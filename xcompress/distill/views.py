"""A student as it is trained, what it makes of a batch, and the objectives on that by the names that recipes use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from xcompress.corpus.labelled import RELATIONS
from xcompress.distill import calibrated, dual, objectives
from xcompress.distill.moving import MovingTeacher
from xcompress.distill.trainer import Batch
from xcompress.recipe import ON_WORDS, ObjectiveName, Stage
from xcompress.student import Student


class SentenceVectors(nn.Module):
    """A student as it is trained: from a batch to its sentence vectors, after every recurrence or the last alone.

    Beside the student stand what only its stage needs: the linear layer in front of the words that are predicted, the
    classifier of entailment, the moving teacher. All are in a checkpoint, none in the result.
    """

    def __init__(self, student: Student, stage: Stage) -> None:
        super().__init__()
        wide = student.config.dimension
        self.student = student
        self.every_depth = stage.depth_weights is not None
        self.words = nn.Linear(wide, student.config.hidden_size) if set(ON_WORDS) & set(stage.objectives) else None
        self.relations = nn.Linear(3 * wide, len(RELATIONS)) if "entailment" in stage.objectives else None
        self.moving = MovingTeacher(student) if "moving_teacher" in stage.objectives else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return sentence vectors (2N, D) for each depth."""
        if self.every_depth:
            return self.student.at_depths(input_ids, attention_mask)
        return [self.student(input_ids, attention_mask)[1]]

    def beside_words(self, sentences: Tensor) -> Tensor:
        """Map sentence vectors (2N, D) to where the rows of the word table are, (2N, B) or (2N, H)."""
        assert self.words is not None  # a stage that predicts words has the layer
        projection = self.student.embeddings.projection
        hidden: Tensor = self.words(sentences)
        return hidden @ projection.weight if projection is not None else hidden


@dataclass(frozen=True)
class View:
    """What a model makes of one kind of pairs in a step."""

    model: SentenceVectors
    batch: Batch
    """Of this worker."""
    goals: Batch
    """What pairs regress on, of all workers."""
    sentences: Tensor
    """Sentence vectors of this worker, (2n, D)."""
    sources: Tensor
    """Sentence vectors of all workers, (N, D): the contrast between sentences needs them. (0, D) where none does."""
    targets: Tensor


Objective = Callable[[View], Tensor]


def _on_teacher(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Objective:
    return lambda view: loss(view.goals["teacher_sources"], view.sources, view.targets)


def _on_assistant(view: View) -> Tensor:
    goals = view.goals["assistant_sources"], view.goals["assistant_targets"]
    return objectives.assistant_loss(*goals, view.sources, view.targets)


def _on_words(task: str) -> Objective:
    """Return an objective on this worker's sentences alone, whose labels are as many as their words."""

    def loss(view: View) -> Tensor:
        table = view.model.student.embeddings.word.weight
        hidden = view.model.beside_words(view.sentences)
        return dual.word_loss(hidden, table, view.batch[f"{task}_ids"], view.batch[f"{task}_weights"])

    return loss


def _on_relations(view: View) -> Tensor:
    assert view.model.relations is not None  # a stage with the objective has the classifier
    logits = view.model.relations(calibrated.entailment_features(view.sources, view.targets))
    return calibrated.entailment_loss(logits, view.goals["labels"])


OBJECTIVES: Mapping[ObjectiveName, Objective] = {
    "teacher": _on_teacher(objectives.teacher_loss),
    "teacher_targets": lambda view: objectives.teacher_targets_loss(view.goals["teacher_targets"], view.targets),
    "contrast": _on_teacher(objectives.contrast_loss),
    "contrast_bool": _on_teacher(objectives.contrast_bool_loss),
    "contrast_ce": _on_teacher(objectives.contrast_ce_loss),
    "assistant": _on_assistant,
    "moving_teacher": lambda view: calibrated.moving_loss(view.goals["moving_sources"], view.targets),
    "entailment": _on_relations,
    "graded": lambda view: calibrated.graded_loss(view.sources, view.targets, view.goals["scores"]),
    "masked_word": _on_words("masked_word"),
    "reconstruction": _on_words("reconstruction"),
    "unified": _on_words("unified"),
    "alignment": lambda view: dual.alignment_loss(view.sources, view.targets),
    "similarity": lambda view: dual.similarity_loss(view.sources, view.targets),
}


def weighted_sum(weights: Mapping[ObjectiveName, float], view: View) -> Tensor:
    """Return the weighted sum of objectives on what a model makes of a batch."""
    return torch.stack([weight * OBJECTIVES[name](view) for name, weight in weights.items()]).sum()
