"""Train a model on batches of pairs with transformers' Trainer: loss, optimizer, checkpoints, progress, dev scores."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TensorBoardCallback
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import get_last_checkpoint

from xcompress.console import bar, say
from xcompress.distillation import distributed
from xcompress.distillation.data.batches import BatchesByKind
from xcompress.distillation.file_records import DAMAGED, FileRecords, check_files, describe, record_files
from xcompress.distillation.hardware import COMPILER, loader_processes
from xcompress.distillation.losses.stage import AfterStep, Loss
from xcompress.distillation.optim.lars import Lars
from xcompress.distillation.transformers_trainer import ProgressBar, training_arguments
from xcompress.files import read_mapping, sync, write_json
from xcompress.recipe import Stage

COMPLETE = "complete"
"""A checkpoint holds a JSON file of this name once all its others are written: its `Marker`."""
CHECKPOINTS_KEPT = 2
LOG_ENTRIES = 40
"""Entries of the loss log of a stage."""
SCHEDULERS = {"cosine": "cosine", "linear": "linear", "constant": "constant_with_warmup"}
"""The names that transformers has for the schedules of a recipe; all begin with the warm-up."""


@dataclass(frozen=True)
class Job:
    """How a stage is trained."""

    name: str
    stage: Stage
    work: Path
    """Folder of checkpoints; the caller removes it when the result is saved."""
    seed: int
    bf16: bool
    """Whether matrix products are in bfloat16."""
    compile: bool = False
    """Whether the model is compiled with torch.compile."""
    collates_itself: bool = False
    """Whether batches are made in the process that trains, also on a GPU, as where a teacher encodes their text."""
    score: Callable[[], Mapping[str, float]] | None = None
    """Returns the dev scores of the model in training."""
    score_steps: int | None = None
    """The model is scored after every so many steps; None: never."""
    board: Path | None = None
    """Folder of TensorBoard logs."""


@dataclass(frozen=True)
class TrainingHistory:
    """Loss, dev scores and time of a training."""

    loss: list[dict[str, float]]
    """`step` and `loss`, the mean of the steps since the last entry."""
    dev_course: list[dict[str, Any]]
    """`step` and `dev`, the scores after that step."""
    seconds_before: float
    """Seconds that earlier calls trained, up to the checkpoint that this one resumed from."""


@dataclass(frozen=True)
class Marker:
    """What is known of a complete checkpoint."""

    seconds: float
    """Of training up to it."""
    files: FileRecords
    losses: Sequence[float]
    """Of the steps since the last entry of the log."""


def train(
    job: Job, model: nn.Module, loss: Loss, batches: BatchesByKind, after_step: AfterStep | None = None
) -> TrainingHistory:
    """Train the model in place, resuming from the newest complete checkpoint of the job.

    :param loss: maps the model and the batches of a step to a scalar.
    """
    steps = len(batches) // job.stage.batch_size
    if distributed.is_main():
        remove_damaged_checkpoints(job.name, job.work)
    distributed.barrier()
    checkpoint: str | None = None
    if job.work.is_dir():
        checkpoint = get_last_checkpoint(str(job.work))  # type: ignore[no-untyped-call]
    marker = _read_marker(Path(checkpoint)) if checkpoint else Marker(0.0, {}, ())
    if job.compile:
        model.compile(backend=COMPILER, dynamic=True)  # in place: its class stays
    with bar(job.name, steps) as ticker:
        callbacks: list[TrainerCallback] = []
        if after_step:
            callbacks.append(_AfterStep(lambda state: after_step(state.global_step, state.max_steps)))
        callbacks.append(ProgressBar(ticker))
        if job.score and job.score_steps:
            callbacks.append(_AfterStep(partial(_log_scores, job.score, job.score_steps)))
        if job.board and distributed.is_main():
            from torch.utils.tensorboard import SummaryWriter

            callbacks.append(TensorBoardCallback(SummaryWriter(str(job.board))))  # type: ignore[no-untyped-call]
        trainer = _PairTrainer(
            loss, job.stage, model=model, args=_arguments(job, steps), batches=batches, callbacks=callbacks
        )
        trainer.losses += marker.losses
        mark = _MarkComplete(marker.seconds, trainer.gather_losses)
        trainer.add_callback(mark)  # type: ignore[no-untyped-call]
        trainer.remove_callback(PrinterCallback)  # type: ignore[no-untyped-call]
        trainer.train(resume_from_checkpoint=checkpoint)
    log = trainer.state.log_history
    return TrainingHistory(
        [{"step": entry["step"], "loss": entry["loss"]} for entry in log if "loss" in entry],
        [entry for entry in log if "dev" in entry],
        marker.seconds,
    )


def remove_damaged_checkpoints(name: str, work: Path) -> None:
    """Remove the complete checkpoints whose files are not those that were written, and say what is wrong.

    Those that were interrupted while they were written are removed, too: they take space.

    :param name: name of the stage.
    """
    for folder in work.glob("checkpoint-*"):
        if not (folder / COMPLETE).exists():
            shutil.rmtree(folder)
    for marker in work.glob(f"checkpoint-*/{COMPLETE}"):
        try:
            damage, _ = check_files(marker.parent, _read_marker(marker.parent).files)
        except DAMAGED:
            damage = {COMPLETE: "is damaged"}
        if damage:
            say(f"{name}: {marker.parent.name}: {describe(damage)}; training resumes before it")
            shutil.rmtree(marker.parent)


def _read_marker(checkpoint: Path) -> Marker:
    """Read the marker of a checkpoint.

    :raises DAMAGED: when it is damaged.
    """
    marker = read_mapping(checkpoint / COMPLETE)
    return Marker(float(marker["seconds"]), marker["files"], [*map(float, marker["losses"])])


class _PairTrainer(Trainer):
    """A Trainer with a loss function and random batches of pairs."""

    def __init__(self, loss: Loss, stage: Stage, batches: BatchesByKind, **options: Any) -> None:  # noqa: ANN401
        rows: Any = range(len(batches))
        super().__init__(train_dataset=rows, data_collator=batches, **options)
        self.loss = loss
        self.stage = stage
        self.pairs = len(batches)
        self.losses: list[float] = []
        """Of the steps since the last entry of the log, without those in `ungathered`: means over all workers."""
        self.ungathered: list[Tensor] = []
        """Losses of the last steps on this worker."""

    @property
    def _train_batch_size(self) -> int:
        """Pairs of a step on this worker: not those of a checkpoint that another number of workers wrote."""
        return int(self.args.train_batch_size)

    @_train_batch_size.setter
    def _train_batch_size(self, _: int) -> None:
        """Ignore what the Trainer reads from a checkpoint."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: object, **__: object) -> Tensor:
        # The Trainer has autocast around the loss on a CPU, and around the model alone on a GPU.
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16):
            loss = self.loss(model, inputs)
        self.ungathered.append(loss.detach())
        return loss

    def gather_losses(self) -> Sequence[float]:
        """Return the losses of the steps since the last entry of the log. All workers must call it."""
        if self.ungathered:
            of_workers = self.accelerator.gather(torch.stack(self.ungathered)).view(-1, len(self.ungathered))
            self.losses += of_workers.double().mean(0).tolist()
            self.ungathered.clear()
        return self.losses

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            # The Trainer rounds to four decimals, which leaves little of a mean of squares.
            logs["loss"] = fmean(self.gather_losses())
            self.losses.clear()
        super().log(logs, start_time)

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is None:
            assert isinstance(self.model, nn.Module)
            self.optimizer = _optimizer(self.model, self.stage)
        return self.optimizer

    def _get_train_sampler(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - a DataLoader takes any row numbers
        # Eight bytes a pair, a fifth of what torch's RandomSampler takes: that makes a list of all numbers.
        return np.random.default_rng(self.args.seed).permutation(self.pairs)


def _optimizer(model: nn.Module, stage: Stage) -> Optimizer:
    """Return the optimizer of a stage; token embeddings have their own learning rate, and vectors no weight decay."""
    embeddings: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            group = embeddings if ".word." in name else matrices if weight.ndim > 1 else vectors
            group.append(weight)
    rate = stage.learning_rate
    embedding_rate = stage.embedding_learning_rate or rate
    groups: list[dict[str, Any]] = [
        {"params": embeddings, "lr": embedding_rate, "weight_decay": 0.0},
        {"params": matrices, "lr": rate, "weight_decay": stage.weight_decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    if stage.optimizer == "lars":
        adapted = [group | {"adapt": group["params"] is not vectors} for group in groups]
        return Lars(adapted, lr=rate, momentum=stage.momentum)
    return AdamW(groups, fused=True)


class _MarkComplete(TrainerCallback):
    """Mark each checkpoint as complete, with the seconds of training up to it and the losses not logged yet."""

    def __init__(self, seconds_before: float, gather_losses: Callable[[], Sequence[float]]) -> None:
        self.counted_from = time.monotonic() - seconds_before
        self.gather_losses = gather_losses

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        state.save_steps = int(args.save_steps)  # a checkpoint brings those that it was saved with

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        losses = self.gather_losses()
        distributed.barrier()
        if state.is_world_process_zero:
            folder = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
            sync(folder)
            seconds = round(time.monotonic() - self.counted_from, 1)
            # Hashes would take some percent of the training: a checkpoint is larger than the model, and saved often.
            files = record_files(folder, (path for path in folder.rglob("*") if path.is_file()), hashed=False)
            write_json(folder / COMPLETE, {"seconds": seconds, "files": files, "losses": losses})


class _AfterStep(TrainerCallback):
    """Call a function with the state of the training after each step, before a checkpoint is saved."""

    def __init__(self, function: Callable[[TrainerState], None]) -> None:
        self.function = function

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.function(state)


def _log_scores(score: Callable[[], Mapping[str, float]], steps: int, state: TrainerState) -> None:
    """Score the model after every so many steps. The scores go to the log, which checkpoints keep."""
    if state.global_step % steps == 0:
        state.log_history.append({"step": state.global_step, "dev": score()})  # type: ignore[dict-item]


def _arguments(job: Job, steps: int) -> TrainingArguments:
    stage, on_gpu, processes = job.stage, torch.cuda.is_available(), 0 if job.collates_itself else loader_processes()
    return training_arguments(
        job.work,
        max_steps=steps,
        per_device_train_batch_size=stage.batch_size // distributed.world_size(),
        learning_rate=stage.learning_rate,
        lr_scheduler_type=SCHEDULERS[stage.schedule],
        warmup_steps=min(round(stage.warmup * steps), steps - 1),  # the last step at least is at the peak
        max_grad_norm=1.0,
        bf16=job.bf16,
        seed=job.seed,
        dataloader_num_workers=processes,
        dataloader_prefetch_factor=4 if processes else None,
        dataloader_pin_memory=on_gpu,
        accelerator_config={"non_blocking": on_gpu},
        logging_steps=max(1, steps // LOG_ENTRIES),
        logging_nan_inf_filter=False,  # it waits for the GPU at each step; `Collapse` sees what is not finite
        save_steps=stage.checkpoint_steps,
        save_total_limit=CHECKPOINTS_KEPT,
        ddp_find_unused_parameters=False,
    )
