"""Packed tokens: the vectors of a batch's tokens one after the other, without those of the padding."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Packing:
    """Where the T tokens of a padded batch (N, L) stand in it."""

    positions: Tensor
    """Of each token, as the number of its cell among N L, (T,)."""
    sentences: int
    """N."""
    length: int
    """L."""

    def pack(self, vectors: Tensor) -> Tensor:
        """Map the vectors of a batch, (N, L, W), to those of its tokens, (T, W)."""
        return _Pack.apply(vectors.flatten(0, 1), self.positions)  # type: ignore[no-any-return, no-untyped-call]

    def unpack(self, vectors: Tensor) -> Tensor:
        """Map the vectors of the tokens, (T, W), to those of the batch, (N, L, W), with zeros as padding."""
        cells = vectors.new_zeros(self.sentences * self.length, vectors.shape[1])
        return cells.index_copy(0, self.positions, vectors).view(self.sentences, self.length, -1)


def shortest_first(attention_mask: Tensor) -> Tensor:
    """Return the numbers of the sentences of a batch in ascending order of their lengths, (N,)."""
    return attention_mask.sum(1).argsort(stable=True)


def token_positions(attention_mask: Tensor) -> Tensor:
    """Return where the T tokens of a batch stand in it, as numbers of its N L cells, (T,).

    The tokens of the shortest sentence come first, as attention is computed on sentences of similar length.
    """
    order, length = shortest_first(attention_mask), attention_mask.shape[1]
    cells = order[:, None] * length + torch.arange(length, device=order.device)
    return cells[attention_mask[order].bool()]


class _Pack(torch.autograd.Function):
    """Select rows, each at most once: a gradient is copied, where that of `index_select` is added row by row."""

    @staticmethod
    def forward(ctx: Any, cells: Tensor, positions: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(positions)
        ctx.cells = len(cells)
        return cells.index_select(0, positions)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (positions,) = ctx.saved_tensors
        return gradient.new_zeros(ctx.cells, gradient.shape[1]).index_copy(0, positions, gradient), None
