"""The attention of a layer: its kernel, its bias by distance, and the parts of a batch that it is computed on."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from xcompress.modeling.packing import Packing, shortest_first

MAX_DISTANCE = 128
"""Tokens this far apart, or farther, share the last bucket of a relative attention bias."""
SENTENCES_IN_PART = 32
"""A training step on 128 sentences of 3 to 57 tokens took 0.84 times as long in four parts as in one; in eight 0.88."""


@dataclass(frozen=True)
class BatchPart:
    """Sentences of a batch whose attention is computed together, padded to the longest of them."""

    mask: Tensor
    """True for visible tokens, (N, 1, 1, L); or a bias of the attention scores, (N, heads, L, L)."""
    packing: Packing | None = None
    """Of their token vectors; None where these are padded, as outside of training."""

    @property
    def rows(self) -> int:
        """Number of rows of their token vectors: T where they are packed, else N."""
        return len(self.packing.positions) if self.packing else len(self.mask)

    def pad(self, vectors: Tensor) -> Tensor:
        """Return vectors of tokens, packed or not, as (N, L, W)."""
        return self.packing.unpack(vectors) if self.packing else vectors

    def unpad(self, vectors: Tensor) -> Tensor:
        """Undo `pad`."""
        return self.packing.pack(vectors) if self.packing else vectors


def parts_by_length(attention_mask: Tensor, to_mask: Callable[[Tensor], Tensor]) -> Iterator[BatchPart]:
    """Cut a batch of packed tokens into parts of sentences of similar length, in the order of the tokens.

    :param attention_mask: 1 for tokens, 0 for padding, (N, L).
    :param to_mask: maps the attention mask of a part to its `BatchPart.mask`.
    """
    for sentences in torch.split(shortest_first(attention_mask), SENTENCES_IN_PART):
        part = attention_mask[sentences]
        part = part[:, : int(part.sum(1).max())]
        yield BatchPart(to_mask(part), Packing(part.flatten().nonzero()[:, 0], *part.shape))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return the attention of each query, (N, heads, L, H / heads); every query sees one token or more.

    :param mask: as for `BatchPart`.
    """
    if query.device.type != "cpu" or not query.requires_grad:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    # For the short texts that are trained on, the kernels of torch take half as long again, or longer: the flash kernel
    # because of its backward pass, the plain one because it allows for queries that see no token.
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores, -1).to(value.dtype) @ value


class RelativeBias(nn.Module):
    """Bias of the attention score by the distance between two tokens (Raffel et al., 2020; MPNet)."""

    def __init__(self, buckets: int, heads: int) -> None:
        super().__init__()
        self.table = nn.Embedding(buckets, heads)

    def forward(self, length: int) -> Tensor:
        """Return the biases of a sentence of L tokens for query i and key j, (1, heads, L, L)."""
        rows = self.by_distance(length)
        return rows[token_distances(length, rows.device) + length - 1].permute(2, 0, 1)[None]

    def by_distance(self, length: int) -> Tensor:
        """Return the biases of the distances j - i = -(L - 1) ... L - 1 between key and query, (2 L - 1, heads)."""
        distances = torch.arange(1 - length, length, device=self.table.weight.device)
        return self.table(distance_buckets(distances, self.table.num_embeddings))  # type: ignore[no-any-return]


def token_distances(length: int, device: torch.device | None = None) -> Tensor:
    """Return the distances j - i between keys and queries, (L, L)."""
    positions = torch.arange(length, device=device)
    return positions[None, :] - positions[:, None]


def distance_buckets(distances: Tensor, buckets: int) -> Tensor:
    """Map distances j - i between key and query to buckets, half of them for each direction.

    Of the n = buckets / 2 of a direction, distances below n / 2 have a bucket each. Longer distances share buckets
    whose width grows with the logarithm of the distance, up to `MAX_DISTANCE`.
    """
    half = buckets // 2
    exact = half // 2
    away = distances.abs()
    steps = torch.log(away.clamp(min=1).float() / exact) / math.log(MAX_DISTANCE / exact) * (half - exact)
    near = torch.where(away < exact, away, (exact + steps.long()).clamp(max=half - 1))
    return near + (distances > 0) * half
