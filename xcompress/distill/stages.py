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
from xcompress.recipe import Stage
from xcompress.student import Embeddings

_LOSSES: Mapping[str, Callable[[Batch, Tensor, Tensor], Tensor]] = {
    "teacher": lambda batch, sources, targets: objectives.teacher_loss(batch["teacher_sources"], sources, targets),
    "contrast": lambda batch, sources, targets: objectives.contrast_loss(batch["teacher_sources"], sources, targets),
    "assistant": lambda batch, sources, targets: objectives.assistant_loss(
        batch["assistant_sources"], batch["assistant_targets"], sources, targets
    ),
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


def sentence_loss(stage: Stage) -> Loss:
    """Return the weighted sum of the stage's objectives on sentence vectors."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        _, sentences = model(batch["input_ids"], batch["attention_mask"])
        sources, targets = sentences.float().chunk(2)
        terms = [weight * _LOSSES[name](batch, sources, targets) for name, weight in stage.objectives.items()]
        return torch.stack(terms).sum()

    return loss


def embedding_loss(assistant: Embeddings) -> Loss:
    """Return eq. 3 for a student's embedding layer, with the assistant's as the goal."""

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            goal = assistant.to(batch["input_ids"].device)(batch["input_ids"])
        return objectives.embedding_loss(goal, model(batch["input_ids"]).float(), batch["attention_mask"])

    return loss
