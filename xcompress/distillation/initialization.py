"""Where training starts: a head by least squares for the assistant, layers and an SVD of its table for the student."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from xcompress.distillation.losses.multi_stage import embedding_loss
from xcompress.distillation.teachers.vectors import Vectors
from xcompress.errors import InputError
from xcompress.modeling.student import Student, StudentConfig, pad, token_ids
from xcompress.recipe import Recipe, StudentSection
from xcompress.recipe.parameters import check_layers

BLOCK = 8192


def principal_axes(
    vectors: NDArray[np.floating] | Vectors, width: int, key: str = "widths: pca"
) -> NDArray[np.float32]:
    """Find the axes on which vectors have the largest second moment, (width, D), orthonormal, the largest first.

    They are the top eigenvectors of M = sum over i of x_i x_i^T, and minimise sum over i of |x_i - A^T A x_i|^2. This
    is PCA without centring: cosines are taken about the origin, and a shift would change them.

    :param vectors: rows x_i, (N, D).
    :param key: the recipe's key that asks for it, for error texts.
    :raises InputError: when the vectors are narrower than `width`, or fewer.
    """
    count, dimension = vectors.shape
    if width > dimension:
        raise InputError(f"{key} cannot widen vectors of width {dimension} to {width}; ask for {dimension} or fewer")
    if count < width:
        raise InputError(
            f"{key} needs {width} sentences or more for {width} axes, and there are {count}; add text, or ask for fewer"
        )
    moment = np.zeros((dimension, dimension), dtype=np.float64)
    for block in _blocks(vectors):
        moment += block.T @ block
    axes = np.linalg.eigh(moment)[1][:, ::-1][:, :width].T
    return _signed(axes).astype(np.float32)


def _blocks(vectors: NDArray[np.floating] | Vectors) -> Iterator[NDArray[np.float64]]:
    for start in range(0, len(vectors), BLOCK):
        stop = min(start + BLOCK, len(vectors))
        block = vectors.rows(range(start, stop)) if isinstance(vectors, Vectors) else vectors[start:stop]
        yield block.astype(np.float64)


def _signed(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make the largest coordinate of each axis positive: an eigenvector's sign is the library's whim."""
    largest = np.abs(axes).argmax(1)
    signs: NDArray[np.float64] = np.sign(axes[np.arange(len(axes)), largest])
    return axes * signs[:, None]


_UNIT = "unit."
_FACTORS = ("word", "projection")
_BOTTLENECK = ("embeddings.word.weight", "embeddings.projection.weight")

FLAT = 1e-4
"""Directions with less than this share of the largest singular value are left out of the least-squares fit.

A LayerNorm leaves one direction without variance; what is there is rounding noise, which must not be amplified.
"""


def least_squares_head(vectors: NDArray[np.float32], goals: NDArray[np.float32]) -> nn.Linear:
    """Fit W, b that minimise the sum over i of |W x_i + b - y_i|^2.

    :param vectors: pooled vectors x of the assistant, (N, H), not normalised.
    :param goals: teacher vectors y of the same sentences, (N, D).
    """
    design = np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)]).astype(np.float64)
    solution = np.linalg.lstsq(design, goals.astype(np.float64), rcond=FLAT)[0]
    head = nn.Linear(vectors.shape[1], goals.shape[1])
    head.load_state_dict({"weight": torch.tensor(solution[:-1].T), "bias": torch.tensor(solution[-1])})
    return head


def pooled(student: Student) -> Student:
    """Return the same encoder, sharing its weights, without a prefix and with sentence vectors not normalised."""
    plain = Student(replace(student.config, normalize=False, prefix=""))
    plain.load_state_dict(student.state_dict(), assign=True)
    return plain


def headless(student: Student) -> Student:
    """Return the same encoder, sharing its weights, with pooled vectors of its last layer, not normalised."""
    plain = Student(replace(student.config, normalize=False, prefix="", head_size=None))
    own = plain.state_dict().keys()
    plain.load_state_dict({name: weight for name, weight in student.state_dict().items() if name in own}, assign=True)
    return plain


def with_head(assistant: Student, head: nn.Linear) -> Student:
    """Return the assistant with a linear head in front of its pooling."""
    extended = Student(replace(assistant.config, head_size=head.out_features))
    state = assistant.state_dict() | {f"head.{name}": weight for name, weight in head.state_dict().items()}
    extended.load_state_dict(state)
    return extended.eval()


def recurrences_of(layers: int, unit_layers: int) -> int:
    """Return R = layers / M.

    :raises InputError: when the unit does not divide the layers.
    """
    if layers % unit_layers:
        divisors = ", ".join(str(unit) for unit in range(1, layers + 1) if layers % unit == 0)
        raise InputError(
            f"student.unit_layers: {unit_layers} does not divide the assistant's {layers} layers; choose {divisors}"
        )
    return layers // unit_layers


def student_config(assistant: StudentConfig, part: StudentSection) -> StudentConfig:
    """Derive the student's shape from the assistant's.

    :raises InputError: when M does not divide the assistant's layers, or B is not below H, or a layer is not there.
    """
    check_layers(part, assistant.depth)
    return replace(
        assistant,
        unit_layers=part.unit_layers,
        recurrences=part.recurrences or recurrences_of(assistant.depth, part.unit_layers),
        bottleneck=part.bottleneck,
        max_tokens=part.max_tokens,
        prefix="",
    )


def config_from_nothing(recipe: Recipe, pieces: int, pad_token_id: int) -> StudentConfig:
    """Return the shape of a student that no assistant lends its layers to.

    :param pieces: V, rows of the word table.
    """
    part = recipe.student
    assert part.hidden and part.heads and part.intermediate  # the recipe's checks made sure of it
    return StudentConfig(
        vocab_size=pieces,
        hidden_size=part.hidden,
        num_attention_heads=part.heads,
        intermediate_size=part.intermediate,
        unit_layers=part.unit_layers,
        recurrences=part.recurrences or 1,
        bottleneck=part.bottleneck,
        max_position_embeddings=part.max_tokens,
        type_vocab_size=0,
        pad_token_id=pad_token_id,
        normalize=recipe.normalizes,
        max_tokens=part.max_tokens,
    )


@torch.no_grad()
def initial_student(assistant: Student, part: StudentSection, counts: NDArray[np.int64]) -> Student:
    """Make the untrained student: M of the assistant's layers, its head, and its table cut down to the bottleneck.

    :param counts: how often each of the V pieces stands in the text, (V,).
    :raises InputError: when the shape is impossible.
    """
    student = Student(student_config(assistant.config, part))
    made = (*_BOTTLENECK, _UNIT)
    state = {name: weight for name, weight in assistant.state_dict().items() if not name.startswith(made)}
    for number, layer in enumerate(part.layers or range(1, part.unit_layers + 1)):
        lent = assistant.unit[(layer - 1) % assistant.config.unit_layers].state_dict()
        state |= {f"{_UNIT}{number}.{name}": weight for name, weight in lent.items()}
    if part.bottleneck and part.embedding_init == "random":
        state |= {name: weight for name, weight in student.state_dict().items() if name in _BOTTLENECK}
    else:
        state |= _table(assistant, part.bottleneck, counts)
    student.load_state_dict(state)
    return student


def _table(assistant: Student, bottleneck: int | None, counts: NDArray[np.int64]) -> dict[str, Tensor]:
    """Return the assistant's word table by name, cut down to the bottleneck where there is one."""
    words = assistant.embeddings
    table = words.word.weight if words.projection is None else words.projection(words.word.weight)
    if bottleneck is None:
        return {_BOTTLENECK[0]: table}
    return dict(zip(_BOTTLENECK, truncated_svd(table, bottleneck, counts), strict=True))


def embedding_errors(
    assistant: Student, student: Student, tokenizer: Tokenizer, texts: Sequence[str]
) -> dict[str, float]:
    """Return eq. 3's error on texts: `start` of the student as it is, `random` with a random table and projection."""
    random = Student(student.config).embeddings
    fixed = {name: weight for name, weight in student.embeddings.state_dict().items() if not name.startswith(_FACTORS)}
    random.load_state_dict(fixed, strict=False)
    input_ids, mask = pad(token_ids(tokenizer, texts, student.config), student.config.pad_token_id)
    with torch.no_grad():
        goal = assistant.embeddings(input_ids)
        errors = {"start": student.embeddings(input_ids), "random": random(input_ids)}
    return {name: float(embedding_loss(goal, tokens, mask)) for name, tokens in errors.items()}


def truncated_svd(table: Tensor, rank: int, counts: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Factor E (V, H) as E' P with E' (V, B) and P (B, H), minimising sum over v of f_v |E_v - E'_v P|^2.

    The minimum is reached with the top B right singular vectors of diag(sqrt f) E. f is the piece frequency; one is
    added to every count, so that unseen pieces weigh a little.

    :returns: E' (V, B) and P transposed to the layout of nn.Linear, (H, B).
    """
    weights = torch.tensor(counts + 1, dtype=torch.float64).unsqueeze(1)
    rows = table.double()
    _, directions = torch.linalg.eigh(rows.T @ (weights * rows))
    basis = directions[:, -rank:].flip(1)
    return (rows @ basis).float(), basis.float()
