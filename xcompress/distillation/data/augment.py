"""Add graded pairs: pair similar sentences, and grade them with a cross-encoder (Augmented SBERT, Thakur et al., 2020).

This is how calibrated similarity augments the STS benchmark (section 5.1): each sentence with its ten nearest ones,
without the pairs that people have graded.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sentence_transformers.cross_encoder import CrossEncoder
from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback

from xcompress.batches import group_by_length
from xcompress.console import bar, without_loading_bars
from xcompress.corpus.labelled import GradedPair
from xcompress.distillation import distributed
from xcompress.distillation.hardware import device, fast_inference
from xcompress.distillation.teachers.encoder import check_folder
from xcompress.distillation.transformers_trainer import ProgressBar, training_arguments
from xcompress.errors import InputError, on_one_line
from xcompress.files import read_mapping
from xcompress.metrics import Vectors, nearest_rows
from xcompress.sources.model_folder import PROMPTS
from xcompress.tokenizer_file import check_tokenizers

KEY = "labelled.augment.cross_encoder"
BATCH_SIZE = 16
"""Pairs of a training step. Like the learning rate and the warm-up, it is usual for encoders of BERT's size; the paper
names none of them."""
LEARNING_RATE = 2e-5
WARMUP = 0.1
GRADING_CHUNK = 512
"""Pairs that are graded at a time."""
_WITH_OUTPUT_LAYER = ("ForSequenceClassification", "ForCausalLM")
"""Endings of the names of architectures that have the layer from which a cross-encoder reads its grade."""

TextPair = tuple[str, str]


def neighbour_pairs(
    sentences: Sequence[str], vectors: Vectors, known: Iterable[TextPair], neighbours: int
) -> list[TextPair]:
    """Pair each sentence with its nearest ones by cosine, without known pairs.

    :param sentences: N distinct sentences.
    :param vectors: their vectors, (N, D).
    :param known: pairs to leave out, in either order.
    :param neighbours: number of nearest sentences, known pairs included; all others where N is smaller.
    :returns: each pair once, in the order of the sentences, the nearest first.
    """
    seen = {frozenset(pair) for pair in known}
    pairs = []
    for sentence, nearest in zip(sentences, nearest_rows(vectors, neighbours, device()), strict=True):
        for row in nearest:
            pair = (sentence, sentences[row])
            if frozenset(pair) not in seen:
                seen.add(frozenset(pair))
                pairs.append(pair)
    return pairs


def check_cross_encoder(source: Path, epochs: float, *, trust_remote_code: bool = False) -> None:
    """Check a cross-encoder, as far as that takes no weights.

    :raises InputError: when it is no complete folder, names code that may not run, or is not trained and has no output
        layer.
    """
    check_folder(source, KEY, str(source), trust_remote_code=trust_remote_code)
    check_tokenizers(source)
    if not epochs:
        check_can_grade(source)


def check_can_grade(source: Path) -> None:
    """Check that the configuration of a cross-encoder that is not trained has an output layer.

    :raises InputError: when it has none, or there is no config.json.
    """
    saved = read_mapping(source / PROMPTS) if (source / PROMPTS).is_file() else {}
    if saved.get("model_type") != "CrossEncoder":  # which may have it in a module of its own
        _check_output_layer(source)


def _check_output_layer(source: Path) -> None:
    """Refuse a folder without an output layer: it would get a new one, which is random."""
    architectures = read_mapping(source / "config.json").get("architectures") or []
    if not any(name.endswith(_WITH_OUTPUT_LAYER) for name in architectures):
        raise InputError(f"{KEY}: {source} has no output layer for grades; set epochs to train one, or give another")


def cross_encoder(
    source: Path,
    graded: Sequence[GradedPair],
    epochs: float,
    seed: int,
    *,
    bf16: bool = False,
    trust_remote_code: bool = False,
) -> CrossEncoder:
    """Open a cross-encoder with one output and, unless `epochs` is 0, train it on graded pairs.

    The loss is the binary cross-entropy between score and sigmoid of the output; the optimizer is AdamW with warm-up
    and linear decay. A cross-encoder that is not trained here grades with the activation that it was saved with.

    :param source: folder of a model for sequence classification; with training, of any encoder.
    :param seed: seed of the pairs' order, dropout and a new output layer; the same seed trains the same model.
    :param bf16: whether to train with matrix products in bfloat16.
    :param trust_remote_code: whether code that the folder names may run.
    :raises InputError: as `check_cross_encoder`, when it cannot be opened with one output, or is to be trained by
        several workers.
    """
    if epochs and distributed.world_size() > 1:
        raise InputError(
            f"labelled.augment.epochs: is {epochs:g}, and a cross-encoder is trained by one process, not by "
            f"{distributed.world_size()}; start the run without a launcher first, or give a trained one, with epochs 0"
        )
    check_cross_encoder(source, epochs, trust_remote_code=trust_remote_code)
    torch.manual_seed(seed)  # a missing output layer is initialised at random
    try:
        with _without_warnings(), without_loading_bars():
            model: CrossEncoder = CrossEncoder(
                str(source),
                num_labels=1,
                activation_fn=nn.Sigmoid() if epochs else None,
                device=str(device()),
                local_files_only=not trust_remote_code,
                trust_remote_code=trust_remote_code,
                model_kwargs={"use_safetensors": True},
            )
    except Exception as error:
        raise InputError(
            f"{KEY}: {source} cannot be opened as a cross-encoder with one output ({on_one_line(error)}); "
            "give a complete folder, with safetensors weights and a tokenizer"
        ) from error
    if epochs:
        _train(model, graded, epochs, seed, bf16)
    elif len(model) == 1:
        _check_output_layer(source)
    return model.eval()


def grade(model: CrossEncoder, pairs: Sequence[TextPair]) -> list[GradedPair]:
    """Grade pairs with a cross-encoder, behind a progress bar.

    :returns: the pairs in their order, with scores from 0 to 1.
    :raises InputError: when grades are not from 0 to 1, such as those of a model for another task.
    """
    grades = np.zeros(len(pairs))
    lengths = [len(first) + len(second) for first, second in pairs]
    with bar("cross-encoder: pairs graded", len(pairs)) as ticker, fast_inference():
        for rows in group_by_length(lengths, lambda _: GRADING_CHUNK):
            grades[rows] = model.predict([pairs[row] for row in rows], show_progress_bar=False)
            ticker.advance(len(rows))
    if not ((grades >= 0) & (grades <= 1)).all():  # refuses NaN, too
        raise InputError(
            f"{KEY}: grades from {grades.min():g} to {grades.max():g}, but training needs 0 to 1; "
            "train it with labelled.augment.epochs, or give one made for similarity"
        )
    return [GradedPair(*pair, score) for pair, score in zip(pairs, grades.tolist(), strict=True)]


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence the library's warning about a new output layer: either it is trained, or an error follows."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class _GradeTrainer(Trainer):
    """A Trainer for the library's loss, which reads texts; the library's own trainer needs the package datasets."""

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: object, **__: object) -> Tensor:
        loss: Tensor = model([inputs["first"], inputs["second"]], inputs["scores"])
        return loss


def _train(model: CrossEncoder, graded: Sequence[GradedPair], epochs: float, seed: int, bf16: bool) -> None:
    steps = ceil(epochs * len(graded) / BATCH_SIZE)
    with bar("cross-encoder: steps", steps) as ticker, TemporaryDirectory() as folder:
        arguments = training_arguments(
            Path(folder),
            max_steps=steps,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            warmup_steps=round(WARMUP * steps),
            bf16=bf16,
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
        )
        pairs: Any = graded
        trainer = _GradeTrainer(
            model=BinaryCrossEntropyLoss(model),
            args=arguments,
            train_dataset=pairs,
            data_collator=_collate,
            callbacks=[ProgressBar(ticker)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()


def _collate(pairs: Sequence[GradedPair]) -> dict[str, Any]:
    return {
        "first": [pair.first for pair in pairs],
        "second": [pair.second for pair in pairs],
        "scores": torch.tensor([pair.score for pair in pairs]),
    }
