"""The objective correlation: a student learns a teacher's cosines up to scale and offset.

Its form, 1 - Pearson's correlation, is that of "Knowledge Distillation from A Stronger Teacher" (Huang et al., 2022);
here it is the correlation of cosines between sentences.
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from xcompress.distillation.losses.multi_stage import cosine_matrix

GROUPS_COMPARED = 2
"""Each sentence is compared with one of each of so many other groups."""


def correlation_loss(teacher_sources: Tensor, sources: Tensor, targets: Tensor, group_size: int) -> Tensor:
    """Sum of 1 - r(cos(T(s_i), T(s_j)), cos(X(a_i), X(b_j))) over the sides (a, b): (s, s), (s, t) and (t, t).

    s and t are sentences and their translations. r is Pearson's correlation over the compared i and j: two of one
    group, which are similar, and two at the same place of a group and of one of the next two, which seldom are.

    :param teacher_sources: vectors of the sentences, (N, D'), of any width.
    :param sources: vectors of the sentences, (N, D).
    :param targets: vectors of their translations, (N, D).
    :param group_size: number of sentences in a group; it divides N, which is more than 1.
    """
    rows = torch.arange(len(sources), device=sources.device)
    start, place = rows - rows % group_size, rows % group_size
    within = [start + (place + step) % group_size for step in range(1, group_size)]
    others = min(GROUPS_COMPARED, len(rows) // group_size - 1)
    across = [(rows + step * group_size) % len(rows) for step in range(1, others + 1)]
    columns = torch.stack([*within, *across], dim=1)
    # In float32: cosines of some teachers differ by less than bfloat16 can tell apart.
    with torch.autocast(sources.device.type, enabled=False):
        wanted = cosine_matrix(teacher_sources, teacher_sources).gather(1, columns)
        found = [
            cosine_matrix(left, right).gather(1, columns)
            for left, right in ((sources, sources), (sources, targets), (targets, targets))
        ]
        return torch.stack([1 - _pearson(wanted.ravel(), cosines.ravel()) for cosines in found]).sum()


def _pearson(left: Tensor, right: Tensor) -> Tensor:
    """Return the correlation of two vectors (K,); 0 where one is constant, for which torch.corrcoef gives NaN."""
    return cosine_similarity(left - left.mean(), right - right.mean(), dim=0)
