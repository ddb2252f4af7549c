"""Shorter sentence vectors: the head of a student with fewer outputs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress import console
from xcompress.errors import InputError
from xcompress.student import Student, encode

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
