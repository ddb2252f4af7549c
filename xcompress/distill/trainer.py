"""transformers' Trainer with our objectives: what a step computes, what is saved, and what is shown."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim import AdamW, Optimizer
from torch.utils.data import Dataset, Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.trainer_pt_utils import LengthGroupedSampler

from xcompress.console import Ticker, bar
from xcompress.distill.hardware import has_bf16
from xcompress.distill.pairs import Collator, PairDataset
from xcompress.recipe import Stage

Batch = Mapping[str, Tensor]
Loss = Callable[[nn.Module, Batch], Tensor]


@dataclass(frozen=True)
class Scoring:
    """How a model is scored while it trains."""

    steps: int
    score: Callable[[], Mapping[str, float]]


COMPLETE = "complete"
"""A checkpoint holds an empty file of this name once all its other files are written."""
CHECKPOINTS_KEPT = 2


class _ObjectiveTrainer(Trainer):
    """A Trainer whose loss is a function of the model and a batch."""

    def __init__(self, loss: Loss, stage: Stage, dataset: PairDataset, **options: Any) -> None:  # noqa: ANN401
        super().__init__(train_dataset=dataset, **options)
        self.loss = loss
        self.stage = stage
        self.lengths = dataset.lengths

    def compute_loss(
        self, model: nn.Module, inputs: Batch, return_outputs: bool = False, num_items_in_batch: Tensor | None = None
    ) -> Tensor:
        return self.loss(model, inputs)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is None:
            assert isinstance(self.model, nn.Module)
            self.optimizer = AdamW(_parameter_groups(self.model, self.stage), fused=True)
        return self.optimizer

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        generator = torch.Generator().manual_seed(self.args.seed)
        return LengthGroupedSampler(self.args.train_batch_size, lengths=self.lengths, generator=generator)


def _parameter_groups(model: nn.Module, stage: Stage) -> Iterator[dict[str, Any]]:
    """Split the weights that learn: the word table with its own rate, vectors without weight decay, the others."""
    table: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        group = table if name.endswith("word.weight") else matrices if weight.ndim > 1 else vectors
        group.append(weight)
    table_rate = stage.table_learning_rate or stage.learning_rate
    yield {"params": table, "lr": table_rate, "weight_decay": 0.0}
    yield {"params": matrices, "lr": stage.learning_rate, "weight_decay": stage.weight_decay}
    yield {"params": vectors, "lr": stage.learning_rate, "weight_decay": 0.0}


class _Show(TrainerCallback):
    """Moves a progress bar with the loss beside it, and marks each checkpoint as complete."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self.shown = 0
        self.note = ""

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.ticker.advance(state.global_step - self.shown, self.note)
        self.shown = state.global_step

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if state.log_history and "loss" in state.log_history[-1]:
            self.note = f"loss {state.log_history[-1]['loss']:.4f}"

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        (Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / COMPLETE).touch()


class _Score(TrainerCallback):
    """Scores the model every so many steps; the log that checkpoints keep holds the scores."""

    def __init__(self, scoring: Scoring) -> None:
        self.scoring = scoring

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        if state.global_step % self.scoring.steps == 0:
            state.log_history.append({"step": state.global_step, "dev": self.scoring.score()})  # type: ignore[dict-item]


@dataclass(frozen=True)
class Course:
    """How training went."""

    loss: list[dict[str, float]]
    """`step` and `loss`, the mean of the steps since the last entry."""
    dev_course: list[dict[str, Any]]
    """`step` and `dev`, scores after that step."""


def train(
    what: str,
    model: nn.Module,
    loss: Loss,
    stage: Stage,
    dataset: PairDataset,
    collator: Collator,
    work: Path,
    seed: int,
    scoring: Scoring | None = None,
) -> Course:
    """Train the model in place, going on from the newest complete checkpoint in `work`.

    :param what: label of the progress bar.
    :param loss: maps the model and a batch of the collator to a scalar.
    :param work: folder of checkpoints; the caller removes it when the result is safe.
    :param scoring: how often to score the model while it trains, and how.
    """
    with bar(what, stage.steps) as ticker:
        trainer = _ObjectiveTrainer(
            loss,
            stage,
            model=model,
            args=_arguments(stage, work, seed),
            dataset=dataset,
            data_collator=collator,
            callbacks=[_Show(ticker), *([_Score(scoring)] if scoring else [])],
        )
        trainer.remove_callback(PrinterCallback)  # type: ignore[no-untyped-call]
        trainer.remove_callback(ProgressCallback)  # type: ignore[no-untyped-call]
        with _attention():
            trainer.train(resume_from_checkpoint=newest_checkpoint(work))
    log = trainer.state.log_history
    return Course(
        [{"step": entry["step"], "loss": entry["loss"]} for entry in log if "loss" in entry],
        [entry for entry in log if "dev" in entry],
    )


def _attention() -> AbstractContextManager[object]:
    """Choose plain attention on the CPU: its backward pass takes half the time of the flash kernel at 16 tokens."""
    return nullcontext() if torch.cuda.is_available() else sdpa_kernel(SDPBackend.MATH)


def newest_checkpoint(work: Path) -> str | None:
    """Return the newest complete checkpoint in the folder; one that a kill left half-written does not count."""
    complete = [marker.parent for marker in work.glob(f"checkpoint-*/{COMPLETE}")]
    return str(max(complete, key=lambda folder: int(folder.name.split("-")[1]))) if complete else None


def _arguments(stage: Stage, work: Path, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(work),
        max_steps=stage.steps,
        per_device_train_batch_size=stage.batch_size,
        learning_rate=stage.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=round(stage.warmup * stage.steps),
        max_grad_norm=1.0,
        bf16=has_bf16(),
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        logging_steps=max(1, stage.steps // 40),
        save_steps=stage.checkpoint_steps,
        save_total_limit=CHECKPOINTS_KEPT,
        remove_unused_columns=False,
        label_names=[],
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
