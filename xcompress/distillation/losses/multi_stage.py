"""The training objectives of multi-stage distillation (Ding et al., 2022), as functions of tensors.

Each is named after its label. Sentence vectors are (N, D): row i of the sources and row i of the targets are
translations. All return a scalar. Squared differences are summed over the width and averaged over the batch.
"""

from torch import Tensor
from torch.nn.functional import log_softmax, normalize

TEMPERATURE = 0.05
"""tau of eq. 9, as printed."""


def teacher_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 2 and 6: mean |T(s) - X(s)|^2 + mean |T(s) - X(t)|^2, for X the assistant or the student.

    T is monolingual, so both sides regress on T of the source sentence (Reimers and Gurevych, 2020).
    """
    return squared_distance(teacher_sources, sources) + squared_distance(teacher_sources, targets)


def teacher_targets_loss(teacher_targets: Tensor, targets: Tensor) -> Tensor:
    """Mean |T(t) - X(t)|^2, half of eq. 4 with T instead of A: for a teacher that knows the target languages."""
    return squared_distance(teacher_targets, targets)


def assistant_loss(assistant_sources: Tensor, assistant_targets: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 4: mean |A(s) - S(s)|^2 + mean |A(t) - S(t)|^2."""
    return squared_distance(assistant_sources, sources) + squared_distance(assistant_targets, targets)


def embedding_loss(assistant_tokens: Tensor, student_tokens: Tensor, attention_mask: Tensor) -> Tensor:
    """Eq. 3: mean over tokens of |Ae(x) - Be(x)|^2.

    :param assistant_tokens: output of the assistant's embedding layer for sources and targets, (N, L, H).
    :param student_tokens: output of the student's bottlenecked embedding layer, (N, L, H).
    :param attention_mask: 1 for tokens, 0 for padding, (N, L).
    """
    weights = attention_mask.to(student_tokens.dtype)
    distances = (assistant_tokens - student_tokens).square().sum(-1)
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


def squared_distance(left: Tensor, right: Tensor) -> Tensor:
    """Return the mean over rows of |left_i - right_i|^2; both (N, D)."""
    return (left - right).square().sum(-1).mean()


def cosine_matrix(left: Tensor, right: Tensor) -> Tensor:
    """Return the (N, M) cosines of the rows of `left` (N, D) with those of `right` (M, D)."""
    return normalize(left, dim=-1) @ normalize(right, dim=-1).T
