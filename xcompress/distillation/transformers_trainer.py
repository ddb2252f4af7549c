"""What all trainings with transformers' Trainer share: arguments and a progress bar."""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from xcompress.console import Ticker


def training_arguments(folder: Path, **others: Any) -> TrainingArguments:  # noqa: ANN401 - of any type, as there
    """Return arguments with which the Trainer uses one device, and neither prints nor reports.

    :param folder: of checkpoints.
    :param others: arguments beside those that all trainings share.
    """
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no"  # a value left by an earlier training in bfloat16 would win
    arguments = TrainingArguments(
        output_dir=str(folder),
        use_cpu=not torch.cuda.is_available(),
        remove_unused_columns=False,
        label_names=[],
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        **others,
    )
    arguments._n_gpu = min(1, arguments.n_gpu)  # for several GPUs use torchrun, which keeps a batch one batch
    return arguments


class ProgressBar(TrainerCallback):
    """Advance a progress bar, with the loss beside it where it is logged."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self.shown = 0
        self.note = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Start behind the steps of the checkpoint that training resumes from."""
        self.shown = state.global_step
        self.ticker.start_at(self.shown)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Advance to the step that is done."""
        self.ticker.advance(state.global_step - self.shown, self.note)
        self.shown = state.global_step

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        """Show the last loss from now on."""
        if state.log_history and "loss" in state.log_history[-1]:
            self.note = f"loss {state.log_history[-1]['loss']:.4f}"
