"""The loss of one stage, from the objectives that the recipe names, and what the model is while it trains."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from xcompress.distill import objectives
from xcompress.distill.trainer import Batch, Loss
from xcompress.distill.workers import count, gathered, total
from xcompress.errors import InputError
from xcompress.recipe import ObjectiveName, Stage
from xcompress.student import Embeddings, Student, StudentConfig

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


def check_depths(name: str, stage: Stage, student: StudentConfig) -> None:
    """Make sure that a stage of elastic depth has a weight for each recurrence.

    :raises InputError: when it has more or fewer.
    """
    given = len(stage.depth_weights or ())
    if given and (stage.train != "student" or given != student.recurrences):
        recurrences = student.recurrences if stage.train == "student" else 1
        raise InputError(
            f"stages.{name}.depth_weights: {given} values, but the unit of what it trains is applied {recurrences} "
            "times; give one for each time, or leave it out"
        )


class SentenceVectors(nn.Module):
    """A student as it is trained: from a batch to its sentence vectors, after every recurrence or the last alone."""

    def __init__(self, student: Student, every_depth: bool) -> None:
        super().__init__()
        self.student = student
        self.every_depth = every_depth

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return sentence vectors (2N, D) for each depth."""
        if self.every_depth:
            return self.student.at_depths(input_ids, attention_mask)
        return [self.student(input_ids, attention_mask)[1]]


def weighted_sum(weights: Mapping[ObjectiveName, float], goals: Batch, sources: Tensor, targets: Tensor) -> Tensor:
    """Return the weighted sum of objectives on the sentence vectors (N, D) of both sides."""
    return torch.stack([weight * OBJECTIVES[name](goals, sources, targets) for name, weight in weights.items()]).sum()


def sentence_loss(stage: Stage) -> Loss:
    """Return the stage's loss for `SentenceVectors`: the weighted mean over depths of its objectives.

    It is that of the whole batch: every worker sees the vectors of all, as the contrast between sentences needs them.
    """
    depths = stage.depth_weights or (1.0,)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        vectors = model(batch["input_ids"], batch["attention_mask"])
        goals = {name: gathered(rows) for name, rows in batch.items() if name.endswith(("sources", "targets"))}
        losses = [
            share * weighted_sum(stage.objectives, goals, *map(gathered, at_depth.float().chunk(2)))
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
    """Return eq. 3 for `TokenVectors`, with the assistant's embedding layer as the goal.

    The mean over workers of what is returned is the mean over all tokens of the batch.
    """

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            goal = assistant.to(batch["input_ids"].device)(batch["input_ids"])
        mine = objectives.embedding_loss(goal, model(batch["input_ids"]).float(), batch["attention_mask"])
        tokens = batch["attention_mask"].sum()
        return mine * tokens * count() / total(tokens)

    return loss
