"""More graded pairs: sentences near each other, graded by a cross-encoder (Augmented SBERT, Thakur et al., 2020).

As calibrated similarity augments the STS benchmark (section 5.1): each sentence with its ten nearest ones, without the
pairs that people have graded.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from xcompress.console import Ticker, bar
from xcompress.corpus.labelled import GradedPair
from xcompress.distillation import distributed
from xcompress.distillation.hardware import device, fast_inference
from xcompress.distillation.teachers.encoder import unit_length
from xcompress.errors import InputError
from xcompress.files import read_json

KEY = "labelled.augment.cross_encoder"
NEIGHBOURS = 10
BATCH = 16
"""Pairs a training step; like the learning rate and the warm-up usual for encoders of BERT's size, as the paper names
none of them."""
LEARNING_RATE = 2e-5
WARMUP = 0.1
_GRADED_TOGETHER = 512
_CELLS = 1 << 22
"""Cosines held in memory at once."""
_WITH_OUTPUT = ("ForSequenceClassification", "ForCausalLM")
"""How the names of architectures end that come with what a cross-encoder reads its grade from."""

Texts = tuple[str, str]
Vectors = NDArray[np.float32]


def neighbour_pairs(
    sentences: Sequence[str], vectors: Vectors, known: Iterable[Texts], neighbours: int = NEIGHBOURS
) -> list[Texts]:
    """Pair each sentence with those nearest to it by cosine, and leave out what is known.

    :param sentences: N distinct sentences.
    :param vectors: of these sentences, (N, D).
    :param known: pairs to leave out, in either order.
    :param neighbours: sentences taken for each, those of known pairs included; all others where N is smaller.
    :returns: each pair once, in the order of the sentences, and the nearest first.
    """
    seen = {frozenset(pair) for pair in known}
    pairs = []
    for row, near in enumerate(_nearest(vectors, neighbours)):
        for other in near:
            pair = (sentences[row], sentences[other])
            if frozenset(pair) not in seen:
                seen.add(frozenset(pair))
                pairs.append(pair)
    return pairs


def cross_encoder(
    source: Path,
    graded: Sequence[GradedPair],
    epochs: float,
    seed: int,
    *,
    learning_rate: float = LEARNING_RATE,
    bf16: bool = False,
) -> CrossEncoder:
    """Open a cross-encoder with one output and, where `epochs` is not 0, train it on graded pairs.

    It learns by binary cross-entropy between score and sigmoid of the output, with AdamW and a rate that rises and then
    falls to 0. One that is not trained here grades with the activation that it was saved with.

    :param source: the folder of a model for sequence classification or, to be trained, of any encoder.
    :param seed: of the order of the pairs, dropout and a new output layer; the same seed trains the same model.
    :param bf16: whether products are in bfloat16 while it is trained.
    :raises InputError: when it cannot be opened with one output; when it is not to be trained and has no output layer;
        when several workers are to train it.
    """
    if epochs and distributed.count() > 1:
        raise InputError(
            f"labelled.augment.epochs: is {epochs:g}, and a cross-encoder is trained by one process, not by "
            f"{distributed.count()}; start the run without a launcher first, or give one that is ready, with epochs 0"
        )
    model = _opened(source, seed, nn.Sigmoid() if epochs else None)
    if epochs:
        _train(model, graded, epochs, learning_rate, seed, bf16)
    elif not _has_output(model, source):
        raise InputError(f"{KEY}: {source} has no output layer for grades; set epochs to train one, or give another")
    return model.eval()


def grade(model: CrossEncoder, pairs: Sequence[Texts]) -> list[GradedPair]:
    """Have a cross-encoder grade pairs, while a bar shows how far it is.

    :returns: the pairs in their order, with scores from 0 to 1.
    :raises InputError: when grades are not from 0 to 1, as those of a model made for something else.
    """
    grades = np.zeros(len(pairs))
    order = sorted(range(len(pairs)), key=lambda row: len(pairs[row][0]) + len(pairs[row][1]))
    with bar("cross-encoder: pairs graded", len(pairs)) as ticker, fast_inference():
        for start in range(0, len(order), _GRADED_TOGETHER):
            rows = order[start : start + _GRADED_TOGETHER]
            grades[rows] = model.predict([pairs[row] for row in rows], show_progress_bar=False)
            ticker.advance(len(rows))
    if not ((grades >= 0) & (grades <= 1)).all():  # so that NaN is refused, too
        raise InputError(
            f"{KEY}: grades from {grades.min():g} to {grades.max():g}, and 0 to 1 is what is learnt from; "
            "train it with labelled.augment.epochs, or give one made for similarity"
        )
    return [GradedPair(*pair, score) for pair, score in zip(pairs, grades.tolist(), strict=True)]


def _nearest(vectors: Vectors, count: int) -> Iterator[list[int]]:
    """Yield, for each of N vectors (N, D), the numbers of the `count` others of highest cosine, the highest first."""
    unit = unit_length(vectors)
    rows = max(1, _CELLS // len(unit))
    for start in range(0, len(unit), rows):
        cosines = unit[start : start + rows] @ unit.T
        own = np.arange(len(cosines))
        cosines[own, start + own] = -np.inf
        yield from _highest(cosines, min(count, len(unit) - 1)).tolist()


def _highest(scores: Vectors, count: int) -> NDArray[np.int64]:
    """Return the columns of the `count` highest scores of each row, the highest first."""
    columns = np.argpartition(-scores, count - 1, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    highest: NDArray[np.int64] = np.take_along_axis(columns, order, axis=1)
    return highest


def _opened(source: Path, seed: int, activation: nn.Module | None) -> CrossEncoder:
    torch.manual_seed(seed)  # an output layer that the folder lacks starts at random
    try:
        with _without_notes():
            model: CrossEncoder = CrossEncoder(
                str(source),
                num_labels=1,
                activation_fn=activation,
                device=str(device()),
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(
            f"{KEY}: {source} cannot be opened as a cross-encoder with one output ({reason}); "
            "give a complete folder, with safetensors weights and a tokenizer"
        ) from error
    return model


@contextmanager
def _without_notes() -> Iterator[None]:
    """Keep the library's note that an output layer is new away from the user, who knows or is told."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _has_output(model: CrossEncoder, source: Path) -> bool:
    """Tell whether what a model reads its grade from was in its folder, and is not new and random."""
    architectures = read_json(source / "config.json").get("architectures") or []
    return len(model) > 1 or any(name.endswith(_WITH_OUTPUT) for name in architectures)


class _Grades(Trainer):
    """A Trainer of the library's loss, which reads texts; the library's own trainer needs the package datasets."""

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | None = None,
    ) -> Tensor:
        loss: Tensor = model([inputs["first"], inputs["second"]], inputs["scores"])
        return loss


class _Show(TrainerCallback):
    """Moves a progress bar."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object) -> None:
        self.ticker.advance()


def _train(
    model: CrossEncoder, graded: Sequence[GradedPair], epochs: float, learning_rate: float, seed: int, bf16: bool
) -> None:
    steps = ceil(epochs * len(graded) / BATCH)
    with bar("cross-encoder: steps", steps) as ticker, TemporaryDirectory() as work:
        pairs: Any = graded
        trainer = _Grades(
            model=BinaryCrossEntropyLoss(model),
            args=_arguments(work, steps, learning_rate, seed, bf16),
            train_dataset=pairs,
            data_collator=_columns,
            callbacks=[_Show(ticker)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _columns(pairs: Sequence[GradedPair]) -> dict[str, Any]:
    return {
        "first": [pair.first for pair in pairs],
        "second": [pair.second for pair in pairs],
        "scores": torch.tensor([pair.score for pair in pairs]),
    }


def _arguments(work: str, steps: int, learning_rate: float, seed: int, bf16: bool) -> TrainingArguments:
    os.environ["ACCELERATE_MIXED_PRECISION"] = "no"  # what an earlier training in bfloat16 left there would win
    arguments = TrainingArguments(
        output_dir=work,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=learning_rate,
        warmup_steps=round(WARMUP * steps),
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
        save_strategy="no",
        logging_strategy="no",
        remove_unused_columns=False,
        label_names=[],
        report_to="none",
        disable_tqdm=True,
        log_level="error",
    )
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments
