"""The student as it is to be exported: depth, vocabulary, longest text, and length of its vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress import console
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.modeling.load import MIN_TEXT_TOKENS
from xcompress.modeling.student import Student, encode, shallower
from xcompress.vocab.choose import choose_tokens
from xcompress.vocab.student import trim_student
from xcompress.vocab.trim import count

_TABLE = "embeddings.position.weight"


def for_shorter_texts(student: Student, max_tokens: int) -> Student:
    """Return a student of the same weights that cuts texts at `max_tokens` and has positions for no more.

    :raises InputError: when the student cuts them earlier, or no text fits.
    """
    config, state = student.config, student.state_dict()
    if not MIN_TEXT_TOKENS <= max_tokens <= config.max_tokens:
        raise InputError(
            f"max_tokens: {max_tokens} asked for, the student cuts texts at {config.max_tokens}; choose "
            f"{MIN_TEXT_TOKENS} to {config.max_tokens}"
        )
    positions = config.position_offset + max_tokens
    with torch.device("meta"):
        made = Student(replace(config, max_tokens=max_tokens, max_position_embeddings=positions))
    made.load_state_dict({**state, _TABLE: state[_TABLE][:positions]}, assign=True)
    return made.train(student.training)


ENOUGH = 4
"""Sentences for each axis, below which axes are not well determined."""


def shortened(
    student: Student, tokenizer: Tokenizer, texts: Sequence[str], dimension: int, *, sliced: bool
) -> tuple[Student, float]:
    """Return the student with vectors of fewer numbers, and the share of the vectors' squared lengths that is kept.

    :param texts: real sentences, whose vectors have the axes.
    :param sliced: take the first numbers, as in models trained for that (Kusupati et al., 2022), in place of the
        coordinates on the principal axes.
    :raises InputError: when the vectors have no more numbers than that, or the head has an activation.
    """
    config = student.config
    if dimension >= config.dimension:
        raise InputError(f"dimension: {dimension} asked for, the vectors have {config.dimension}; choose fewer")
    if config.head_activation:
        raise InputError(f"dimension: vectors that pass {config.head_activation} cannot be shortened; leave it out")
    if not sliced and len(texts) < ENOUGH * dimension:
        console.warn(f"dimension: {len(texts)} sentences for {dimension} axes; give more with --text")
    vectors = encode(student, tokenizer, texts)
    axes = np.eye(config.dimension, dtype=np.float32)[:dimension] if sliced else principal_axes(vectors, dimension)
    kept = float(np.square(vectors @ axes.T).sum() / np.square(vectors).sum())
    return _projected(student, torch.from_numpy(axes)), kept


def principal_axes(vectors: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return the axes (count, D), about the origin, on which vectors (N, D) keep most of their squared lengths."""
    exact = vectors.astype(np.float64)
    axes = np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :count]
    return np.ascontiguousarray(axes.T, dtype=np.float32)


def _projected(student: Student, axes: torch.Tensor) -> Student:
    """Multiply the head by axes (D', D); a student without one gets them as its head."""
    changed = Student(replace(student.config, head_size=len(axes)))
    head = student.head
    weight = axes if head is None else axes @ head.weight.detach()
    bias = torch.zeros(len(axes)) if head is None else axes @ head.bias.detach()
    changed.load_state_dict(student.state_dict() | {"head.weight": weight, "head.bias": bias})
    return changed.eval()


@dataclass(frozen=True)
class Prepared:
    """A student, its tokenizer, and what was changed, for the manifest."""

    student: Student
    tokenizer: Tokenizer
    changes: dict[str, Any] = field(default_factory=dict)


def prepare(
    student: Student, tokenizer: Tokenizer, options: ExportConfig, sentences: Callable[[], Sequence[str]]
) -> Prepared:
    """Change a student as the options say.

    :param sentences: gives real text, where vectors are shortened.
    :raises InputError: when it cannot be changed so.
    """
    changes: dict[str, Any] = {}
    if options.recurrences is not None:
        student = shallower(student, options.recurrences)
    if options.max_tokens is not None:
        before = student.config.max_position_embeddings
        student = for_shorter_texts(student, options.max_tokens)
        console.say(f"positions: {before} to {student.config.max_position_embeddings} rows")
    if options.languages or options.vocabulary:
        student, tokenizer, changes["vocabulary"] = _trimmed(student, tokenizer, options)
    if options.dimension:
        before, sliced = student.config.dimension, options.shorten == "slice"
        student, kept = shortened(student, tokenizer, sentences(), options.dimension, sliced=sliced)
        changes["shortened"] = {"before": before, "by": options.shorten, "kept": kept}
        console.say(f"vectors: {before} to {options.dimension} numbers, {100 * kept:.1f} % of their lengths kept")
    return Prepared(student, tokenizer, changes)


def _trimmed(
    student: Student, tokenizer: Tokenizer, options: ExportConfig
) -> tuple[Student, Tokenizer, dict[str, Any]]:
    counts = count(tokenizer, options.languages, options.text)
    needed = [student.config.pad_token_id, *tokenizer.encode(student.config.prefix).ids]
    kept = choose_tokens(tokenizer, counts, size=options.vocabulary, needed=needed)
    before = student.config.vocab_size
    student, tokenizer = trim_student(student, tokenizer, kept.ids)
    console.say(f"vocabulary: {before:,} to {len(kept.ids):,} rows")
    return student, tokenizer, kept.report.to_json()
