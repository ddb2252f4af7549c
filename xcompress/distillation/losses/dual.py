"""The training objectives of the lightweight dual transformer (Mao et al., 2021), as functions of tensors.

Sentence vectors u of sources and v of targets are (N, D): row i of both is a translation pair. All return a scalar: the
mean over pairs where the paper has a sum. They are computed in float32 even for a model in bfloat16: inner products of
vectors that are not normalised are in the hundreds, where bfloat16 represents only every second number.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import cross_entropy, embedding_bag
from torch.special import xlogy

MAX_LOGITS = 2**20
"""Maximum number of logits in memory (unless there are more sentences): 4 MB in float32."""
DAMPING = 1 - 1e-6
"""Scales the differences of eq. 6, to keep their cosine above 0."""


def word_loss(hidden: Tensor, embeddings: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Eq. 2 (eq. 1 where q is one word): mean over pairs of KL(q_u || p_u) + KL(q_v || p_v).

    p = softmax(h E^T) for the token embeddings E. The paper prints -D(p || q), which is infinite, as q is 0 for most
    words, and would be maximal at p = q. We take KL(q || p) = sum of q (log q - log p), which is 0 there. The printed
    sum over both orders of the two languages counts everything twice; we count it once.

    Neither forward nor backward keeps the (2N, V) logits: at most `MAX_LOGITS` of them are in memory.

    :param hidden: h, one vector for each sentence, sources first, (2N, W).
    :param embeddings: E, (V, W).
    :param ids: token ids with a share in q, each at most once in a row, (2N, K).
    :param weights: their shares, (2N, K). A row of zeros has nothing to predict and adds nothing.
    """
    hidden, embeddings = _at_least_float32(hidden), _at_least_float32(embeddings)
    shares = weights.to(hidden.dtype)
    # sum of q E: (2N, W) without a (2N, K, W)
    expected = embedding_bag(ids, embeddings, mode="sum", per_sample_weights=shares)
    log_p = (hidden * expected).sum(-1) - shares.sum(-1) * log_partition(hidden, embeddings)
    divergences: Tensor = xlogy(shares, shares).sum(-1) - log_p
    return 2 * divergences.mean()


def log_partition(hidden: Tensor, embeddings: Tensor) -> Tensor:
    """Return log sum_w exp(h . E_w) for each row h of `hidden` (R, W) and the rows E_w of `embeddings` (V, W), (R,).

    The logits are computed in blocks of words, and again for the gradients softmax(H E^T) E and softmax(H E^T)^T H.
    Plain autograd would keep them. A checkpoint around each block would not help: its backward pass allocates large
    logits and lasting gradients in turns, and leaves gaps that the allocator cannot reuse.
    """
    partition: Tensor = _LogPartition.apply(hidden, embeddings)  # type: ignore[no-untyped-call]
    return partition


class _LogPartition(Function):
    """`log_partition` and its first derivative."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, embeddings: Tensor) -> Tensor:  # noqa: ANN401
        partition = hidden.new_full((len(hidden),), -math.inf)
        for block in _blocks(hidden, embeddings):
            partition = partition.logaddexp(inner_products(hidden, embeddings[block]).logsumexp(-1))
        ctx.save_for_backward(hidden, embeddings, partition)
        return partition

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        hidden, embeddings, partition = ctx.saved_tensors
        hidden_gradient, embeddings_gradient = torch.zeros_like(hidden), torch.empty_like(embeddings)
        for block in _blocks(hidden, embeddings):
            shares = inner_products(hidden, embeddings[block]).sub_(partition[:, None]).exp_().mul_(gradient[:, None])
            hidden_gradient.addmm_(shares, embeddings[block])
            torch.mm(shares.T, hidden, out=embeddings_gradient[block])
        return hidden_gradient, embeddings_gradient


def _blocks(hidden: Tensor, embeddings: Tensor) -> Iterator[slice]:
    """Yield blocks of token embeddings whose logits for all of `hidden` are at most `MAX_LOGITS`."""
    size = max(1, MAX_LOGITS // len(hidden))
    yield from (slice(start, start + size) for start in range(0, len(embeddings), size))


def alignment_loss(sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 5: mean over j of -log softmax_k(u_j . v_k)[j] - log softmax_k(u_k . v_j)[j]; both (N, D)."""
    products = inner_products(sources, targets)
    pairs = torch.arange(len(products), device=products.device)
    return cross_entropy(products, pairs) + cross_entropy(products.T, pairs)


def similarity_loss(sources: Tensor, targets: Tensor) -> Tensor:
    """Eq. 6: mean over j of sum over k of -log cos(pi / 2 (P_jk - Q_jk)), for the softmaxes of similarities.

    P = softmax(U U^T) and Q = softmax(V V^T), both (N, N), each row over all sentences of the batch, its own included.
    Where P and Q are opposite, P - Q is 1 and the printed loss and its gradient are infinite. So the difference is
    scaled by 1 - 1e-6, and one entry adds at most 13.4. The gradient of the inner products is bounded, too, as the
    slope of a softmax falls where that of log cos grows.
    """
    differences = inner_products(sources, sources).softmax(-1) - inner_products(targets, targets).softmax(-1)
    return -(math.pi / 2 * DAMPING * differences).cos().log().sum(-1).mean()


def inner_products(left: Tensor, right: Tensor) -> Tensor:
    """Return the (N, M) inner products of the rows of `left` (N, D) with those of `right` (M, D), without autocast."""
    with torch.autocast(left.device.type, enabled=False):
        return _at_least_float32(left) @ _at_least_float32(right).T


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))
