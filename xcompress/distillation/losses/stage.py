"""The loss of one stage, from the objectives that the recipe names, and what the model is while it trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from xcompress.corpus.labelled import RELATIONS
from xcompress.distillation.collapse import Collapse
from xcompress.distillation.data.batches import WordLabels
from xcompress.distillation.data.masking import MaskingConfig
from xcompress.distillation.distributed import all_gather, count, total
from xcompress.distillation.losses import calibrated, dual
from xcompress.distillation.losses import multi_stage as objectives
from xcompress.distillation.optim.ema import MovingTeacher, decay_at
from xcompress.distillation.trainer import AfterStep, Batch, Loss
from xcompress.errors import InputError
from xcompress.modeling.student import Embeddings, Student, StudentConfig
from xcompress.recipe import ON_LABELS, ON_WORDS, ObjectiveName, Stage


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


PairKind = Literal["translations", "entailment", "graded"]
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


def feed_of(objective: ObjectiveName) -> PairKind:
    """Return the kind of pairs that an objective learns from."""
    return objective if objective in ON_LABELS else "translations"  # type: ignore[return-value]


def pair_kinds(stage: Stage) -> list[PairKind]:
    """Return the kinds of pairs that a stage learns from, translations first."""
    found = {feed_of(name) for name in stage.objectives}
    return sorted(found, key=lambda feed: (feed != "translations", feed))


def word_goals(name: str, stage: Stage, tokenizer: Tokenizer, seed: int) -> WordLabels | None:
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
    return WordLabels(MaskingConfig(masks[0], frozenset(special.values()), seed), tasks)


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
        for feed in pair_kinds(stage)
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
    goals = {name: all_gather(rows) for name, rows in _goals(inner, batch, weights).items()}
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
    return View(model, batch, goals, sentences, *map(all_gather, sides))


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
    return lambda step, steps: teacher.update(student, decay_at(step - 1, steps, stage.ema_decay))


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
