"""The loss of one stage, from the objectives that the recipe names, and what the model is while it trains."""

from collections.abc import Mapping
from typing import Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from xcompress.distill import objectives
from xcompress.distill.collapse import Collapse
from xcompress.distill.moving import decay_at
from xcompress.distill.pairs import WordGoals
from xcompress.distill.trainer import AfterStep, Batch, Loss
from xcompress.distill.views import SentenceVectors, View, weighted_sum
from xcompress.distill.words import Words
from xcompress.distill.workers import count, gathered, total
from xcompress.errors import InputError
from xcompress.recipe import ON_LABELS, ON_WORDS, ObjectiveName, Stage
from xcompress.student import Embeddings, StudentConfig

Feed = Literal["translations", "entailment", "graded"]
"""A kind of sentence pairs."""
GATHERED = (
    "teacher_sources",
    "teacher_targets",
    "assistant_sources",
    "assistant_targets",
    "moving_sources",
    "labels",
    "scores",
)
"""What belongs to each pair of a batch, and is wanted of all workers."""
MASKS = ("<mask>", "[MASK]")


def feed_of(objective: ObjectiveName) -> Feed:
    """Return the kind of pairs that an objective learns from."""
    return objective if objective in ON_LABELS else "translations"  # type: ignore[return-value]


def feeds_of(stage: Stage) -> list[Feed]:
    """Return the kinds of pairs that a stage learns from, translations first."""
    found = {feed_of(name) for name in stage.objectives}
    return sorted(found, key=lambda feed: (feed != "translations", feed))


def word_goals(name: str, stage: Stage, tokenizer: Tokenizer, seed: int) -> WordGoals | None:
    """Return what a stage predicts words by; None where it predicts none.

    :raises InputError: when the vocabulary has no piece that can stand for a masked word.
    """
    tasks = tuple(task for task in ON_WORDS if task in stage.objectives)
    if not tasks:
        return None
    special = {token: number for number, token in tokenizer.get_added_tokens_decoder().items()}
    masks = [number for token, number in special.items() if token.content in MASKS]
    if not masks:
        raise InputError(
            f"stages.{name}.objectives: {tasks[0]} masks words, and the vocabulary has none of {', '.join(MASKS)}; "
            "train one (vocabulary.method), or leave the objective out"
        )
    return WordGoals(Words(masks[0], frozenset(special.values()), seed), tasks)


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


def sentence_loss(stage: Stage, where: str = "training") -> Loss:
    """Return the stage's loss for `SentenceVectors`: for each kind of pairs the weighted mean over depths.

    It is that of the whole batch: every worker sees the vectors of all.

    :param where: the stage's key, for the message of one that comes to nothing.
    """
    weights = {
        feed: {name: weight for name, weight in stage.objectives.items() if feed_of(name) == feed}
        for feed in feeds_of(stage)
    }
    collapse = Collapse(where)

    def loss(model: nn.Module, batches: Mapping[str, Batch]) -> Tensor:
        losses = [_loss_on(model, batches[feed], stage, weights[feed], collapse) for feed in weights]
        return torch.stack(losses).sum()

    return loss


def _loss_on(
    model: nn.Module, batch: Batch, stage: Stage, weights: Mapping[ObjectiveName, float], collapse: Collapse
) -> Tensor:
    inner = unwrapped(model)
    goals = {name: gathered(rows) for name, rows in _goals(inner, batch, weights).items()}
    depths = stage.depth_weights or (1.0,)
    views = [_view(inner, batch, goals, at_depth.float()) for at_depth in model(*_inputs(batch, weights))]
    collapse.check(views[-1].targets.detach())
    losses = [share * weighted_sum(weights, view) for share, view in zip(depths, views, strict=True) if share]
    return torch.stack(losses).sum() / sum(depths)


def _inputs(batch: Batch, weights: Mapping[ObjectiveName, float]) -> tuple[Tensor, Tensor]:
    """Return what the model has to encode: of a step with a moving teacher alone, only the targets."""
    input_ids, attention_mask = batch["input_ids"], batch["attention_mask"]
    if set(weights) == {"moving_teacher"}:
        return input_ids.chunk(2)[1], attention_mask.chunk(2)[1]
    return input_ids, attention_mask


def _view(model: SentenceVectors, batch: Batch, goals: Batch, sentences: Tensor) -> View:
    sides = sentences.chunk(2) if len(sentences) == len(batch["input_ids"]) else (sentences[:0], sentences)
    return View(model, batch, goals, sentences, *map(gathered, sides))


def _goals(model: SentenceVectors, batch: Batch, weights: Mapping[ObjectiveName, float]) -> Batch:
    goals = {name: batch[name] for name in GATHERED if name in batch}
    if "moving_teacher" in weights and model.moving is not None:
        sources = (batch[name].chunk(2)[0] for name in ("input_ids", "attention_mask"))
        goals["moving_sources"] = model.moving(*sources).float()
    return goals


def unwrapped(model: nn.Module) -> SentenceVectors:
    """Return the model itself, which several workers wrap."""
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    assert isinstance(inner, SentenceVectors)
    return inner


def after_step(stage: Stage, model: nn.Module) -> AfterStep | None:
    """Return what happens after a step: eq. 2 of calibrated similarity, where the stage has a moving teacher."""
    if not isinstance(model, SentenceVectors) or model.moving is None:
        return None
    teacher, student = model.moving, model.student
    return lambda step, steps: teacher.update(student, decay_at(step - 1, steps, stage.moving_decay))


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

    def loss(model: nn.Module, batches: Mapping[str, Batch]) -> Tensor:
        batch = batches["translations"]
        with torch.no_grad():
            goal = assistant.to(batch["input_ids"].device)(batch["input_ids"])
        mine = objectives.embedding_loss(goal, model(batch["input_ids"]).float(), batch["attention_mask"])
        tokens = batch["attention_mask"].sum()
        return mine * tokens * count() / total(tokens)

    return loss
