"""What one stage needs: the goals of its pairs and its loss, from the objectives that the recipe names."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcompress.corpus.pairs import Pair
from xcompress.distill import objectives
from xcompress.distill.pairs import Goals
from xcompress.distill.targets import VectorsOf
from xcompress.distill.trainer import Batch, Loss
from xcompress.errors import InputError
from xcompress.recipe import ObjectiveName, Stage
from xcompress.student import Embeddings, Student

Objective = Callable[[Batch, Tensor, Tensor], Tensor]


def _on_teacher(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Objective:
    return lambda batch, sources, targets: loss(batch["teacher_sources"], sources, targets)


def _on_assistant(batch: Batch, sources: Tensor, targets: Tensor) -> Tensor:
    return objectives.assistant_loss(batch["assistant_sources"], batch["assistant_targets"], sources, targets)


OBJECTIVES: Mapping[str, Objective] = {
    "teacher": _on_teacher(objectives.teacher_loss),
    "contrast": _on_teacher(objectives.contrast_loss),
    "contrast_bool": _on_teacher(objectives.contrast_bool_loss),
    "contrast_ce": _on_teacher(objectives.contrast_ce_loss),
    "assistant": _on_assistant,
}


def goals_of(stage: Stage, pairs: Sequence[Pair], teacher: VectorsOf, assistant: VectorsOf) -> Goals:
    """Gather the vectors that the stage's objectives regress on, a row per pair.

    :param teacher: maps texts to teacher vectors, (N, D).
    :param assistant: maps texts to vectors of the trained assistant, (N, D).
    """
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    goals = {}
    if stage.needs_teacher:
        goals["teacher_sources"] = teacher(sources)
    if "assistant" in stage.objectives:
        goals["assistant_sources"] = _by_text(assistant, sources)
        goals["assistant_targets"] = _by_text(assistant, targets)
    return goals


def _by_text(vectors_of: VectorsOf, texts: Sequence[str]) -> NDArray[np.float32]:
    distinct = sorted(set(texts))
    row_of = {text: row for row, text in enumerate(distinct)}
    return vectors_of(distinct)[[row_of[text] for text in texts]]


class SentenceVectors(nn.Module):
    """A student as it is trained: from a batch to its sentence vectors at each depth that has a weight."""

    def __init__(self, student: Student, depth_weights: Sequence[float] | None) -> None:
        super().__init__()
        recurrences = student.config.recurrences
        if depth_weights is not None and len(depth_weights) != recurrences:
            raise InputError(
                f"depth_weights has {len(depth_weights)} values, but the unit is applied {recurrences} times; "
                "give one for each"
            )
        self.student = student
        self.every_depth = depth_weights is not None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return sentence vectors (2N, D): after each recurrence, or after the last alone."""
        if self.every_depth:
            return self.student.at_depths(input_ids, attention_mask)
        return [self.student(input_ids, attention_mask)[1]]


def weighted_sum(weights: Mapping[ObjectiveName, float], batch: Batch, sentences: Tensor) -> Tensor:
    """Return the weighted sum of objectives on sentence vectors (2N, D), sources first."""
    sources, targets = sentences.float().chunk(2) if sentences.dtype != torch.float64 else sentences.chunk(2)
    return torch.stack([weight * OBJECTIVES[name](batch, sources, targets) for name, weight in weights.items()]).sum()


def sentence_loss(stage: Stage) -> Loss:
    """Return the stage's loss for `SentenceVectors`: the weighted mean over depths of its objectives."""
    depths = stage.depth_weights or (1.0,)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        vectors = model(batch["input_ids"], batch["attention_mask"])
        losses = [
            share * weighted_sum(stage.objectives, batch, at_depth)
            for share, at_depth in zip(depths, vectors, strict=True)
            if share
        ]
        return torch.stack(losses).sum() / sum(depths)

    return loss


class TokenVectors(nn.Module):
    """A student's embedding layer as it is trained."""

    def __init__(self, embeddings: Embeddings) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return token vectors (2N, L, H)."""
        return self.embeddings(input_ids)  # type: ignore[no-any-return]


def embedding_loss(assistant: Embeddings) -> Loss:
    """Return eq. 3 for `TokenVectors`, with the assistant's embedding layer as the goal."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            goal = assistant.to(batch["input_ids"].device)(batch["input_ids"])
        return objectives.embedding_loss(goal, model(batch["input_ids"]).float(), batch["attention_mask"])

    return loss
