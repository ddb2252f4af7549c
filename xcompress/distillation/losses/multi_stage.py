"""The training objectives of multi-stage distillation (Ding et al., 2022), as functions of tensors.

Each is named after its label. Sentence vectors are (N, D): row i of the sources and row i of the targets are
translations. All return a scalar. MSE is the mean over rows and components, as in figure 2 of the paper and in the
authors' code.
"""

from torch import Tensor
from torch.nn.functional import log_softmax, mse_loss, normalize

TEMPERATURE = 0.05
"""tau of eq. 9, as printed."""


def teacher_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 2 and 6: MSE(T(s), X(s)) + MSE(T(s), X(t)), for X the assistant or the student.

    T is monolingual, so both sides regress on T of the source sentence (Reimers and Gurevych, 2020).
    """
    return mse_loss(sources, teacher_sources) + mse_loss(targets, teacher_sources)


def assistant_loss(assistant_sources: Tensor, assistant_targets: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 4: MSE(A(s), S(s)) + MSE(A(t), S(t))."""
    return mse_loss(sources, assistant_sources) + mse_loss(targets, assistant_targets)


def embedding_loss(assistant_tokens: Tensor, student_tokens: Tensor, attention_mask: Tensor) -> Tensor:
    """Eq. 3: MSE(Ae(x), Be(x)), the mean over tokens x and components.

    :param assistant_tokens: output of the assistant's embedding layer for sources and targets, (N, L, H).
    :param student_tokens: output of the student's bottlenecked embedding layer, (N, L, H).
    :param attention_mask: 1 for tokens, 0 for padding, (N, L).
    """
    weights = attention_mask.to(student_tokens.dtype)
    distances = (assistant_tokens - student_tokens).square().mean(-1)
    return (distances * weights).sum() / weights.sum()


def contrast_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 5: mean over i, j of (cos(T(s_i), T(s_j)) - cos(X(s_i), X(t_j)))^2."""
    return (cosine_matrix(teacher_sources, teacher_sources) - cosine_matrix(sources, targets)).square().mean()


def contrast_bool_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 8: mean over i, j of (d(T(s_i), T(s_j)) - cos(X(s_i), X(t_j)))^2, with d = 1 for equal vectors, else 0."""
    same = (teacher_sources.unsqueeze(1) == teacher_sources.unsqueeze(0)).all(-1)
    return (same.to(sources.dtype) - cosine_matrix(sources, targets)).square().mean()


def contrast_ce_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 9: -sum over i, j of cos(T(s_i), T(s_j)) log softmax_j(cos(X(s_i), X(t_j)) / tau).

    It is a sum, as printed, and grows with the batch: a weight of 1/N makes it comparable to the other objectives.
    """
    labels = cosine_matrix(teacher_sources, teacher_sources)
    return -(labels * log_softmax(cosine_matrix(sources, targets) / TEMPERATURE, dim=1)).sum()


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Return the (N, M) cosines of the rows of `left` (N, D) with those of `right` (M, D)."""
    return normalize(left, dim=-1) @ normalize(right, dim=-1).T
