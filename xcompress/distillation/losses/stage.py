"""The loss of one stage: the objectives that the recipe names, on the sentence vectors of the model in training."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import reduce
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from xcompress.corpus.labelled import RELATIONS
from xcompress.distillation.collapse import Collapse
from xcompress.distillation.data.batches import Batch
from xcompress.distillation.distributed import all_gather, world_size
from xcompress.distillation.losses import calibrated, dual, multi_stage
from xcompress.distillation.losses.correlation import correlation_loss
from xcompress.distillation.optim.ema import MovingTeacher, decay_at
from xcompress.modeling.layers import Embeddings
from xcompress.modeling.student import Student
from xcompress.recipe import GROUP, ON_WORDS, ObjectiveName, Stage, kind_of

Loss = Callable[[nn.Module, Mapping[str, Batch]], Tensor]
"""Maps a model and the batches of a step, by kind of pairs, to a scalar."""
AfterStep = Callable[[int, int], None]
"""Called after each optimizer step with the number of steps done and the steps of the stage."""
GATHERED = (
    "teacher_sources",
    "teacher_targets",
    "assistant_sources",
    "assistant_targets",
    "correlation_sources",
    "relations",
    "scores",
)
"""Labels of a batch that are gathered from all workers."""


# Stages on sentence vectors.


class SentenceVectors(nn.Module):
    """A student in training: maps a batch to sentence vectors, after every recurrence or after the last alone.

    Holds what only the stage needs: the head that predicts words, the entailment classifier, the moving teacher, and
    what was seen of a collapse. They are saved in checkpoints, but not with the trained student.
    """

    def __init__(self, student: Student, stage: Stage, where: str = "training") -> None:
        """Make what the stage needs beside the student.

        :param where: the stage's key, for the message when training collapses or diverges.
        """
        super().__init__()
        dimension, hidden_size = student.config.dimension, student.config.hidden_size
        self.student = student
        self.every_depth = stage.depth_weights is not None
        self.words: nn.Module | None = None
        self.word_bias: nn.Parameter | None = None
        if set(ON_WORDS) & set(stage.objectives):
            self.words = nn.Linear(dimension, hidden_size)
            if stage.word_head == "transform":
                self.words = nn.Sequential(self.words, nn.SiLU(), nn.LayerNorm(hidden_size))
                self.word_bias = nn.Parameter(torch.zeros(student.config.vocab_size))
        self.relations = nn.Linear(3 * dimension, len(RELATIONS)) if "entailment" in stage.objectives else None
        self.moving = MovingTeacher(student) if "moving_teacher" in stage.objectives else None
        self.collapse = Collapse(where)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_positions: Tensor | None = None) -> list[Tensor]:
        """Return sentence vectors (2N, D) for each depth."""
        if self.every_depth:
            return self.student.at_depths(input_ids, attention_mask, token_positions)
        return [self.student(input_ids, attention_mask, token_positions)[1]]

    def word_factors(self, sentences: Tensor) -> tuple[Tensor, Tensor]:
        """Return h (2N, W) and E (V, W), whose inner products are the logits of all words for each sentence.

        E are the token embeddings, and h is in their space: W is B or H. A bias of the words is one more column of E,
        beside ones in h.

        :param sentences: sentence vectors (2N, D).
        """
        assert self.words is not None  # a stage that predicts words has the head
        layer = self.student.embeddings
        hidden, embeddings = self.words(sentences), layer.word.weight
        if layer.projection is not None:
            hidden = hidden @ layer.projection.weight
        if self.word_bias is None:
            return hidden, embeddings
        ones = hidden.new_ones(len(hidden), 1)
        return torch.cat([hidden, ones], 1), torch.cat([embeddings, self.word_bias[:, None]], 1)


def unwrap(model: nn.Module) -> SentenceVectors:
    """Return the model inside DistributedDataParallel, torch.compile and others that wrap it."""
    inner: Any = model
    while not isinstance(inner, SentenceVectors):
        inner = inner._orig_mod if hasattr(inner, "_orig_mod") else inner.module
    return inner


@dataclass(frozen=True)
class StepOutput:
    """What objectives read in a training step: the vectors of one kind of pairs, and their labels."""

    model: SentenceVectors
    batch: Batch
    """Of this worker."""
    labels: Batch
    """Labels of the pairs of all workers, by name."""
    sentences: Tensor
    """Sentence vectors of this worker, (2n, D)."""
    source_vectors: Tensor
    """Of all workers, (N, D), as contrastive objectives need them; (0, D) where no objective reads them."""
    target_vectors: Tensor
    """Of all workers, (N, D)."""


Objective = Callable[[StepOutput], Tensor]


def _teacher_objective(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Objective:
    return lambda step: loss(step.labels["teacher_sources"], step.source_vectors, step.target_vectors)


def _monolingual_objective(loss: Callable[[Tensor, Tensor], Tensor]) -> Objective:
    """Return an objective on both sides of the pairs, each sentence with the teacher's vector of it."""
    return lambda step: loss(
        torch.cat([step.labels["teacher_sources"], step.labels["teacher_targets"]]),
        torch.cat([step.source_vectors, step.target_vectors]),
    )


def _word_objective(task: str) -> Objective:
    """Return an objective on this worker's sentences alone: the number of labels depends on their words."""

    def loss(step: StepOutput) -> Tensor:
        hidden, embeddings = step.model.word_factors(step.sentences)
        return dual.word_loss(hidden, embeddings, step.batch[f"{task}_ids"], step.batch[f"{task}_weights"])

    return loss


def _entailment_objective(step: StepOutput) -> Tensor:
    assert step.model.relations is not None  # a stage with the objective has the classifier
    logits = step.model.relations(calibrated.entailment_features(step.source_vectors, step.target_vectors))
    return cross_entropy(logits, step.labels["relations"])


OBJECTIVES: Mapping[ObjectiveName, Objective] = {
    "teacher": _teacher_objective(multi_stage.teacher_loss),
    # MSE(T(t), X(t)), half of eq. 4 of multi-stage distillation with T for A.
    "teacher_targets": lambda step: mse_loss(step.target_vectors, step.labels["teacher_targets"]),
    "contrast": _teacher_objective(multi_stage.contrast_loss),
    "contrast_bool": _teacher_objective(multi_stage.contrast_bool_loss),
    "contrast_ce": _teacher_objective(multi_stage.contrast_ce_loss),
    "assistant": lambda step: multi_stage.assistant_loss(
        step.labels["assistant_sources"], step.labels["assistant_targets"], step.source_vectors, step.target_vectors
    ),
    # Eq. 1 of calibrated similarity.
    "moving_teacher": lambda step: mse_loss(step.target_vectors, step.labels["moving_sources"]),
    "entailment": _entailment_objective,
    "graded": lambda step: calibrated.graded_loss(step.source_vectors, step.target_vectors, step.labels["scores"]),
    "cosent": lambda step: calibrated.cosent_loss(step.source_vectors, step.target_vectors, step.labels["scores"]),
    "masked_word": _word_objective("masked_word"),
    "reconstruction": _word_objective("reconstruction"),
    "unified": _word_objective("unified"),
    "alignment": lambda step: dual.alignment_loss(step.source_vectors, step.target_vectors),
    "monolingual": _monolingual_objective(mse_loss),
    # Eq. 5 of multi-stage distillation, with the same sentences on both sides.
    "monolingual_contrast": _monolingual_objective(lambda teacher, x: multi_stage.contrast_loss(teacher, x, x)),
    "correlation": lambda step: correlation_loss(
        step.labels["correlation_sources"], step.source_vectors, step.target_vectors, GROUP
    ),
    "similarity": lambda step: dual.similarity_loss(step.source_vectors, step.target_vectors),
}


def weighted_sum(weights: Mapping[ObjectiveName, float], step: StepOutput) -> Tensor:
    """Return the weighted sum of objectives."""
    return torch.stack([weight * OBJECTIVES[name](step) for name, weight in weights.items()]).sum()


def sentence_loss(stage: Stage) -> Loss:
    """Return the loss of a stage for `SentenceVectors`: for each kind of pairs the weighted mean over depths.

    It is the loss of the whole batch: every worker sees the vectors of all.
    """
    weights_by_kind = {
        kind: {name: weight for name, weight in stage.objectives.items() if kind_of(name) == kind}
        for kind in stage.pairs_in_step
    }
    depth_weights = stage.depth_weights or (1.0,)

    def loss_on(model: nn.Module, batch: Batch, weights: Mapping[ObjectiveName, float]) -> Tensor:
        input_ids, attention_mask = batch["input_ids"], batch["attention_mask"]
        positions = batch.get("token_positions")
        student = unwrap(model)

        # Gather the labels; those of the moving teacher are computed now.
        labels = {name: batch[name] for name in GATHERED if name in batch}
        if "moving_teacher" in weights and student.moving is not None:
            sources = input_ids.chunk(2)[0], attention_mask.chunk(2)[0], batch.get("source_positions")
            labels["moving_sources"] = student.moving(*sources).float()
        labels = {name: all_gather(rows) for name, rows in labels.items()}

        # Encode both sides; with a moving teacher alone, only the target sentences.
        targets_only = set(weights) == {"moving_teacher"}
        if targets_only:
            input_ids, attention_mask = input_ids.chunk(2)[1], attention_mask.chunk(2)[1]
            positions = batch.get("target_positions")
        outputs = []
        for vectors in model(input_ids, attention_mask, positions):
            sentences = vectors.float()
            sides = (sentences[:0], sentences) if targets_only else sentences.chunk(2)
            outputs.append(StepOutput(student, batch, labels, sentences, *map(all_gather, sides)))
        student.collapse.check(outputs[-1].target_vectors.detach())

        losses = [
            weight * weighted_sum(weights, output)
            for weight, output in zip(depth_weights, outputs, strict=True)
            if weight
        ]
        return torch.stack(losses).sum() / sum(depth_weights)

    def loss(model: nn.Module, batches: Mapping[str, Batch]) -> Tensor:
        losses = [loss_on(model, batches[kind], weights) for kind, weights in weights_by_kind.items()]
        return torch.stack(losses).sum()

    return loss


def after_step(stage: Stage, model: nn.Module) -> AfterStep | None:
    """Return the update of the moving teacher after each step, eq. 2 of calibrated similarity; None without one."""
    if not isinstance(model, SentenceVectors) or model.moving is None:
        return None
    teacher, student = model.moving, model.student
    return lambda step, steps: teacher.update(student, decay_at(step - 1, steps, stage.ema_decay))


# Stages on token embeddings.


class TokenVectors(nn.Module):
    """A student's embedding layer in training."""

    def __init__(self, embeddings: Embeddings) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return token vectors (2N, L, H)."""
        return self.embeddings(input_ids)  # type: ignore[no-any-return]


def token_loss(assistant: Embeddings) -> Loss:
    """Return eq. 3 for `TokenVectors`, with the output of the assistant's embedding layer as the label.

    Its mean over workers is the mean over all tokens of the batch.
    """

    def loss(model: nn.Module, batches: Mapping[str, Batch]) -> Tensor:
        batch = batches["translations"]
        with torch.no_grad():
            label = assistant.to(batch["input_ids"].device)(batch["input_ids"])
        error = multi_stage.embedding_loss(label, model(batch["input_ids"]).float(), batch["attention_mask"])
        tokens = batch["attention_mask"].sum()
        of_workers: Tensor = reduce(tokens, "sum")
        return error * tokens * world_size() / of_workers

    return loss
