"""The training objectives of the lightweight dual transformer (Mao et al., 2021), as functions of tensors.

Sentence vectors u of sources and v of targets are (N, D): row i of both is a translation pair. All return a scalar,
the mean over pairs of what the paper sums over them, in float32 even where the model around is in bfloat16: inner
products of vectors that are not scaled are in the hundreds, where bfloat16 knows only every second number.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import cross_entropy, embedding_bag
from torch.special import xlogy

CELLS = 2**20
"""Logits that exist at one time, at most (unless there are more sentences): 4 MB in float32."""
BELOW_ONE = 1 - 1e-6
"""Keeps the cosine of eq. 6 above 0."""


def word_loss(hidden: Tensor, table: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Eq. 2 (eq. 1 where q is one word): mean over pairs of KL(q_u || p_u) + KL(q_v || p_v).

    p = softmax(h E^T) for the word table E. Printed is -D(p || q), which is infinite, as q is 0 for most words, and
    would be maximal at p = q; what is meant is KL(q || p) = sum of q (log q - log p), which is 0 there. The printed sum
    over both orders of the two languages says the same twice, and is counted once.

    Neither forward nor backward keeps the (2N, V) logits: at any time there are at most `CELLS` of them.

    :param hidden: h, one vector for each sentence, sources first, (2N, W).
    :param table: E, (V, W).
    :param ids: words that have a share in q, none twice in a row, (2N, K).
    :param weights: their shares, (2N, K). A row of zeros has nothing to predict and adds nothing.
    """
    hidden, table = _widened(hidden), _widened(table)
    shares = weights.to(hidden.dtype)
    expected = embedding_bag(ids, table, mode="sum", per_sample_weights=shares)  # sum of q E: (2N, W), not (2N, K, W)
    log_p = (hidden * expected).sum(-1) - shares.sum(-1) * log_partition(hidden, table)
    divergences: Tensor = xlogy(shares, shares).sum(-1) - log_p
    return 2 * divergences.mean()


def log_partition(hidden: Tensor, table: Tensor) -> Tensor:
    """Return log sum_w exp(h . E_w) for each row h of `hidden` (R, W) and the rows E_w of `table` (V, W), (R,).

    The logits are computed by blocks of words, and again for the gradients, softmax(H E^T) E and softmax(H E^T)^T H.
    Plain autograd would keep them. So, in effect, would a checkpoint around each block: in its backward pass large
    logits that go and gradients that stay take turns, and leave gaps that the allocator cannot use again.
    """
    partition: Tensor = _LogPartition.apply(hidden, table)  # type: ignore[no-untyped-call]
    return partition


class _LogPartition(Function):
    """`log_partition` with its first derivative."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, table: Tensor) -> Tensor:  # noqa: ANN401
        partition = hidden.new_full((len(hidden),), -math.inf)
        for block in _blocks(hidden, table):
            partition = partition.logaddexp(inner_products(hidden, table[block]).logsumexp(-1))
        ctx.save_for_backward(hidden, table, partition)
        return partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        hidden, table, partition = ctx.saved_tensors
        of_hidden, of_table = torch.zeros_like(hidden), torch.empty_like(table)
        for block in _blocks(hidden, table):
            shares = inner_products(hidden, table[block]).sub_(partition[:, None]).exp_().mul_(gradient[:, None])
            of_hidden.addmm_(shares, table[block])
            torch.mm(shares.T, hidden, out=of_table[block])
        return of_hidden, of_table


def _blocks(hidden: Tensor, table: Tensor) -> Iterator[slice]:
    """Yield rows of the table so few that their logits for all of `hidden` are at most `CELLS`."""
    size = max(1, CELLS // len(hidden))
    yield from (slice(start, start + size) for start in range(0, len(table), size))


def alignment_loss(sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 5: mean over j of -log softmax_k(u_j . v_k)[j] - log softmax_k(u_k . v_j)[j]; both (N, D)."""
    products = inner_products(sources, targets)
    pairs = torch.arange(len(products), device=products.device)
    return cross_entropy(products, pairs) + cross_entropy(products.T, pairs)


def similarity_loss(sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 6: mean over j of sum over k of -log cos(pi / 2 (P_jk - Q_jk)), for the softmaxes of similarities.

    P = softmax(U U^T) and Q = softmax(V V^T), both (N, N), each row over all sentences of the batch, its own included.
    Where P and Q are opposite, P - Q is 1 and the printed loss infinite, as is its gradient: the difference is scaled
    by 1 - 1e-6, so that one entry adds at most 13.4. The gradient of the inner products is bounded all the same, since
    the slope of a softmax falls as that of log cos grows.
    """
    differences = _similarities(sources) - _similarities(targets)
    return -(math.pi / 2 * BELOW_ONE * differences).cos().log().sum(-1).mean()


def _similarities(vectors: Tensor) -> Tensor:
    return inner_products(vectors, vectors).softmax(-1)


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """Return the (N, M) inner products of the rows of `left` (N, D) with those of `right` (M, D), without autocast."""
    with torch.autocast(left.device.type, enabled=False):
        return _widened(left) @ _widened(right).T


def _widened(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
