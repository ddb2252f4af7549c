"""Initial weights: a least-squares head, the student's layers, and an SVD of embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcompress.distillation.data.batches import word_labels
from xcompress.distillation.shape import student_config
from xcompress.modeling.student import Student
from xcompress.recipe import Recipe, StudentSection
from xcompress.tokenizer_file import read_tokenizer, tokenizer_to_json
from xcompress.vocab.tokenizer_json import check_trimmable
from xcompress.vocab.train import check_trainable

RCOND = 1e-4
"""Directions with less than this share of the largest singular value are left out of the least-squares fit.

A LayerNorm leaves one direction without variance; what is there is rounding noise, which must not be amplified.
"""
BOTTLENECK = ("embeddings.word.weight", "embeddings.projection.weight")


def least_squares_head(vectors: NDArray[np.float32], labels: NDArray[np.float32]) -> nn.Linear:
    """Fit W, b that minimise the sum over i of |W x_i + b - y_i|^2.

    :param vectors: pooled vectors x of the assistant, (N, H), not normalised.
    :param labels: teacher vectors y of the same sentences, (N, D).
    """
    design = np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)]).astype(np.float64)
    solution = np.linalg.lstsq(design, labels.astype(np.float64), rcond=RCOND)[0]
    head = nn.Linear(vectors.shape[1], labels.shape[1])
    head.load_state_dict({"weight": torch.tensor(solution[:-1].T), "bias": torch.tensor(solution[-1])})
    return head


def without_head(student: Student) -> Student:
    """Return the same encoder, sharing its weights, without prefix and head: pooled vectors, not normalised."""
    plain = Student(replace(student.config, normalize=False, prefix="", head_size=None))
    names = plain.state_dict().keys()
    plain.load_state_dict({name: weight for name, weight in student.state_dict().items() if name in names}, assign=True)
    return plain


def with_head(assistant: Student, head: nn.Linear) -> Student:
    """Return the assistant with a linear head in front of its pooling."""
    extended = Student(replace(assistant.config, head_size=head.out_features))
    state = assistant.state_dict() | {f"head.{name}": weight for name, weight in head.state_dict().items()}
    extended.load_state_dict(state)
    return extended.eval()


def check_vocabulary(recipe: Recipe, tokenizer: Path | None) -> None:
    """Check that the assistant's vocabulary can be changed as the recipe says, and has the tokens that stages need.

    :param tokenizer: its tokenizer.json; None for a student that starts from scratch.
    :raises InputError: when the tokenizer is damaged or of another kind, or lacks a mask that a stage needs.
    """
    if tokenizer is None:
        return
    opened, checks = read_tokenizer(tokenizer), {"trim": check_trimmable, "train": check_trainable}
    if check := checks.get(recipe.vocabulary.method):
        check(tokenizer_to_json(opened))
    for name, stage in recipe.stages.items():
        word_labels(name, stage, opened, recipe.seed)  # special tokens stay, whatever is done to the others


@torch.no_grad()
def initial_student(assistant: Student, section: StudentSection, counts: NDArray[np.int64]) -> Student:
    """Make the untrained student: some of the assistant's layers, its head, and its embeddings cut to the bottleneck.

    :param counts: how often each of the V tokens occurs in the text, (V,).
    :raises InputError: when the shape is impossible.
    """
    student = Student(student_config(assistant.config, section))
    replaced = (*BOTTLENECK, "prelude.", "unit.", "coda.")
    state = {name: weight for name, weight in assistant.state_dict().items() if not name.startswith(replaced)}
    layers, stack = assistant.layers(), assistant.config.stack
    for layer, number in zip(student.layers(), (*section.prelude, *section.unit, *section.coda), strict=True):
        weights = layers[stack[number - 1]].state_dict()
        state |= {f"{layer}.{name}": weight for name, weight in weights.items()}
    if section.bottleneck and section.embedding_init == "random":
        state |= {name: weight for name, weight in student.state_dict().items() if name in BOTTLENECK}
    else:
        word, projection = assistant.embeddings.word.weight, assistant.embeddings.projection
        embeddings = word if projection is None else projection(word)
        factors: tuple[Tensor, ...] = (embeddings,)
        if section.bottleneck is not None:
            factors = truncated_svd(embeddings, section.bottleneck, counts)
        state |= dict(zip(BOTTLENECK, factors, strict=False))
    student.load_state_dict(state)
    return student


def mean_of_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the means of the weights of models of one shape: a uniform soup (https://arxiv.org/abs/2203.05482)."""
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


def truncated_svd(embeddings: Tensor, rank: int, counts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Factor E (V, H) as E' P with E' (V, B) and P (B, H), minimising sum over v of f_v |E_v - E'_v P|^2.

    The minimum is reached with the top B right singular vectors of diag(sqrt f) E. f is the token frequency; one is
    added to every count, so that tokens that do not occur weigh a little.

    :returns: E' (V, B) and P transposed to the layout of nn.Linear, (H, B).
    """
    weights = torch.tensor(counts + 1, dtype=torch.float64).unsqueeze(1)
    rows = embeddings.double()
    _, directions = torch.linalg.eigh(rows.T @ (weights * rows))
    basis = directions[:, -rank:].flip(1)
    return (rows @ basis).float(), basis.float()
