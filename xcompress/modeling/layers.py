"""The transformer layers of a student: those of BERT, and those of ModernBERT."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from xcompress.errors import InputError, short_repr
from xcompress.modeling.attention import BatchPart, attend

if TYPE_CHECKING:
    from xcompress.modeling.student import StudentConfig

LARGEST_WINDOW = 1_000_000
"""Far above those of real encoders."""
_UNSEEN = -1e4
"""Bias of the attention score of a token outside of the window; exp(-1e4) is 0 in float32."""


@dataclass(frozen=True)
class ModernBertAttention:
    """What sets the attention of a layer of ModernBERT apart from that of its other layers."""

    rotary_base: float
    """Base of the wavelengths of the rotary positions (Su et al., 2021)."""
    window: int | None = None
    """How many tokens a token sees to either side; None: all."""
    norm: bool = True
    """Whether a norm comes in front of it. The first layer has none, as the embeddings end with one."""

    def __post_init__(self) -> None:
        base, window = self.rotary_base, self.window
        if not isinstance(base, int | float) or not 1 <= base < math.inf:  # also refuses NaN
            raise InputError(f"base of rotary positions is {short_repr(base)}, expected a number from 1 on; correct it")
        if window is not None and (not isinstance(window, int) or not 1 <= window <= LARGEST_WINDOW):
            raise InputError(
                f"window of attention is {short_repr(window)}, expected a whole number from 1 to {LARGEST_WINDOW:,}; "
                "correct it"
            )


class Layer(nn.Module):
    """One post-norm transformer layer of BERT (Devlin et al., 2019), with queries, keys and values in one product."""

    def __init__(self, config: "StudentConfig") -> None:
        super().__init__()
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.attention = nn.Linear(width, 3 * width)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(width, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, width)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tensor, parts: Sequence[BatchPart]) -> Tensor:
        """Map token vectors (N, L, H) to (N, L, H), or packed ones (T, H) to (T, H).

        :param parts: of packed vectors, in their order; of others one part, the whole batch.
        """
        context = self.attention_output(_attend_in_parts(self.attention(tokens), parts, self.heads))
        attended = self.attention_norm(tokens + self.dropout(context))
        expanded = self.output(functional.gelu(self.intermediate(attended)))
        return self.output_norm(attended + self.dropout(expanded))  # type: ignore[no-any-return]


class ModernBertLayer(nn.Module):
    """One pre-norm transformer layer of ModernBERT (Warner et al., 2024, arXiv:2412.13663), without biases.

    Its feed-forward part is gated: the first half of a product, through GELU, is multiplied by the second half.
    """

    def __init__(self, config: "StudentConfig", settings: ModernBertAttention) -> None:
        super().__init__()
        width = config.hidden_size
        self.heads, self.settings = config.num_attention_heads, settings
        norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=False)
        self.attention_norm = norm if settings.norm else nn.Identity()
        self.attention = nn.Linear(width, 3 * width, bias=False)
        self.attention_output = nn.Linear(width, width, bias=False)
        self.intermediate_norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=False)
        self.intermediate = nn.Linear(width, 2 * config.intermediate_size, bias=False)
        self.output = nn.Linear(config.intermediate_size, width, bias=False)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tensor, parts: Sequence[BatchPart]) -> Tensor:
        """Map token vectors (N, L, H) to (N, L, H), or packed ones (T, H) to (T, H).

        :param parts: as for `Layer`.
        """
        joint = self.attention(self.attention_norm(tokens))
        context = self.attention_output(_attend_in_parts(joint, parts, self.heads, self.settings))
        attended = tokens + self.dropout(context)
        activated, gate = self.intermediate(self.intermediate_norm(attended)).chunk(2, dim=-1)
        return attended + self.dropout(self.output(functional.gelu(activated) * gate))  # type: ignore[no-any-return]


def _attend_in_parts(
    joint: Tensor, parts: Sequence[BatchPart], heads: int, settings: ModernBertAttention | None = None
) -> Tensor:
    """Map queries, keys and values side by side, (N, L, 3 H) or packed (T, 3 H), to their attention."""
    contexts = []
    rows = torch.split(joint, [part.rows for part in parts]) if len(parts) > 1 else (joint,)
    for part, own in zip(parts, rows, strict=True):
        padded = part.pad(own)
        batch, length, _ = padded.shape
        query, key, value = padded.view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mask = part.mask
        if settings is not None:
            angles = rotary_angles(length, query.shape[-1], settings.rotary_base).to(query.device)
            query, key = _rotate(query, angles), _rotate(key, angles)
            mask = mask if settings.window is None else _window_mask(mask, settings.window).to(query.dtype)
        context = attend(query, key, value, mask).transpose(1, 2).reshape(batch, length, -1)
        contexts.append(part.unpad(context))
    return torch.cat(contexts) if len(contexts) > 1 else contexts[0]


def rotary_angles(length: int, width: int, base: float) -> Tensor:
    """Return the angles by which the pairs of numbers at the positions 0 ... L - 1 are rotated, (L, W / 2).

    Pair i at position m is rotated by m base^(-2 i / W) (Su et al., 2021, arXiv:2104.09864).

    :param width: W, numbers of a head, an even number.
    """
    speeds = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
    return torch.arange(length).float()[:, None] * speeds


def _rotate(vectors: Tensor, angles: Tensor) -> Tensor:
    """Rotate the pairs (i, i + W / 2) of vectors (N, heads, L, W) by the angles (L, W / 2)."""
    first, second = vectors.chunk(2, dim=-1)
    cosines, sines = angles.cos(), angles.sin()
    rotated = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
    return rotated.to(vectors.dtype)


def _window_mask(visible: Tensor, window: int) -> Tensor:
    """Return a bias of the attention scores (N, 1, L, L): tokens see those at most `window` positions away.

    It is finite, also in half precision: padding beyond the window of the last token sees nothing.

    :param visible: True for tokens, (N, 1, 1, L).
    """
    positions = torch.arange(visible.shape[-1], device=visible.device)
    seen = visible & ((positions[:, None] - positions).abs() <= window)
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, _UNSEEN)
