"""The losses on labelled pairs of calibrated similarity (Ham and Kim, 2021), and CoSENT, as functions of tensors.

Sentence vectors are (N, D): row i of one batch and row i of the other are a pair. Losses are scalars.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, mse_loss

COSENT_SCALE = 20.0
"""lambda of CoSENT."""


def entailment_features(first: Tensor, second: Tensor) -> Tensor:
    """Return (u, v, |u - v|), (N, 3 D), the input of the classifier of section 5.1, for sentence vectors u and v."""
    return torch.cat([first, second, (first - second).abs()], dim=-1)


def graded_loss(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """Return the mean of (cos(u, v) - score)^2 (section 5.1).

    :param scores: similarity as graded by people, from 0 to 1, (N,).
    """
    return mse_loss(cosine_similarity(first, second), scores)


def cosent_loss(first: Tensor, second: Tensor, scores: Tensor) -> Tensor:
    """CoSENT (Su, 2022): log(1 + the sum over all i, j with score_i < score_j of exp(lambda (cos_i - cos_j))).

    cos_i is the cosine of pair i. Only the order of the scores counts, as in Spearman's correlation.

    :param scores: similarity as graded by people, on any scale, (N,).
    """
    scaled = COSENT_SCALE * cosine_similarity(first, second)
    # Pairs in the wrong order of scores are filled in, not left out: their number would have to be read from a GPU.
    is_below = scores[:, None] < scores[None, :]
    differences = (scaled[:, None] - scaled[None, :]).masked_fill(~is_below, -torch.inf).ravel()
    return torch.logsumexp(torch.cat([differences.new_zeros(1), differences]), dim=0)
