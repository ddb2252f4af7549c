"""The embeddings and the transformer layers of a student: those of BERT, ModernBERT, EmbeddingGemma and Qwen3."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from xcompress.errors import InputError
from xcompress.modeling.attention import BatchPart, attend, token_distances
from xcompress.modeling.packing import Packing
from xcompress.modeling.rotary_config import ROTARY_LAYERS, ModernBertAttention, RotaryAttention, RotaryBertAttention

if TYPE_CHECKING:
    from xcompress.modeling.student import StudentConfig

_UNSEEN = -1e4
"""Bias of the attention score of a token outside of the window; exp(-1e4) is 0 in float32."""


class Embeddings(nn.Module):
    """Token embeddings (projected from the bottleneck, if any) + position + token type, then LayerNorm.

    With rotary positions no position is added. A ModernBERT has no token types and no bias, either; EmbeddingGemma and
    Qwen3 have token embeddings alone.
    """

    def __init__(self, config: "StudentConfig") -> None:
        super().__init__()
        width = config.bottleneck or config.hidden_size
        self.word = nn.Embedding(config.vocab_size, width)
        self.projection = nn.Linear(width, config.hidden_size, bias=False) if config.bottleneck else None
        positions = config.max_position_embeddings
        self.position = None if config.rotary else nn.Embedding(positions, config.hidden_size)
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size) if config.type_vocab_size else None
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=not config.modernbert)
        self.norm = nn.Identity() if config.language_model else norm
        self.dropout = nn.Dropout(0.0)
        self.offset = config.position_offset

    def forward(self, input_ids: Tensor, packing: Packing | None = None) -> Tensor:
        """Map token ids (N, L) to token vectors (N, L, H), or to packed ones (T, H)."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        if packing:
            input_ids, places = input_ids.flatten()[packing.positions], packing.positions % packing.length
        tokens = self.word(input_ids)
        if self.projection is not None:
            tokens = self.projection(tokens)
        if self.position is not None:
            positions = self.position(places + self.offset)
            if self.token_type is not None:
                positions = positions + self.token_type.weight[0]
            tokens = tokens + positions
        elif self.token_type is not None:
            tokens = tokens + self.token_type.weight[0]
        return self.dropout(self.norm(tokens))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One post-norm transformer layer of BERT (Devlin et al., 2019), with queries, keys and values in one product.

    Its positions may be rotary; then its feed-forward part may be gated as in ModernBERT, and products lack biases.
    """

    def __init__(self, config: "StudentConfig", settings: RotaryBertAttention | None = None) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.heads, self.settings = config.num_attention_heads, settings
        self.gate = settings.gate if settings else None
        biases = settings is None or settings.biases
        self.attention = nn.Linear(width, 3 * width, bias=biases)
        self.attention_output = nn.Linear(width, width, bias=biases)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(width, 2 * inner if self.gate else inner, bias=biases and not self.gate)
        self.output = nn.Linear(inner, width, bias=biases)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tensor, parts: Sequence[BatchPart]) -> Tensor:
        """Map token vectors (N, L, H) to (N, L, H), or packed ones (T, H) to (T, H).

        :param parts: of packed vectors, in their order; of others one part, the whole batch.
        """
        joint = self.attention(tokens)
        context = self.attention_output(_attend_in_parts(joint, parts, self.heads, self.heads, self.settings))
        attended = self.attention_norm(tokens + self.dropout(context))
        inner = self.intermediate(attended)
        if self.gate:
            activated, gate = inner.chunk(2, dim=-1)
            inner = (functional.silu if self.gate == "silu" else functional.gelu)(activated) * gate
        else:
            inner = functional.gelu(inner)
        return self.output_norm(attended + self.dropout(self.output(inner)))  # type: ignore[no-any-return]


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
        context = self.attention_output(_attend_in_parts(joint, parts, self.heads, self.heads, self.settings))
        attended = tokens + self.dropout(context)
        activated, gate = self.intermediate(self.intermediate_norm(attended)).chunk(2, dim=-1)
        return attended + self.dropout(self.output(functional.gelu(activated) * gate))  # type: ignore[no-any-return]


class RmsNormLayer(nn.Module):
    """One transformer layer of EmbeddingGemma or Qwen3. Its norms are without means (RMSNorm).

    They come before attention and the feed-forward part, and on the queries and keys of each head. Groups of heads may
    share keys and values (Ainslie et al., 2023, arXiv:2305.13245). The feed-forward part is gated as in ModernBERT.

    Gemma 3 (Gemma Team, 2025, arXiv:2503.19786) has norms behind both parts, too, and the approximation of GELU by
    tanh. Qwen3 (Qwen Team, 2025, arXiv:2505.09388) has SiLU.
    """

    def __init__(self, config: "StudentConfig", settings: RotaryAttention) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.layer_norm_eps
        self.heads, self.settings = config.num_attention_heads, settings
        self.key_value_heads = config.key_value_heads or self.heads
        of_head, is_gemma = config.width_of_head, bool(config.gemma)
        self.attention_norm = nn.RMSNorm(width, eps=epsilon)
        self.attention = nn.Linear(width, (self.heads + 2 * self.key_value_heads) * of_head, bias=False)
        self.query_norm = nn.RMSNorm(of_head, eps=epsilon)
        self.key_norm = nn.RMSNorm(of_head, eps=epsilon)
        self.attention_output = nn.Linear(self.heads * of_head, width, bias=False)
        self.context_norm = nn.RMSNorm(width, eps=epsilon) if is_gemma else nn.Identity()
        self.intermediate_norm = nn.RMSNorm(width, eps=epsilon)
        self.intermediate = nn.Linear(width, 2 * config.intermediate_size, bias=False)
        self.output = nn.Linear(config.intermediate_size, width, bias=False)
        self.activation = nn.GELU("tanh") if is_gemma else nn.SiLU()
        self.output_norm = nn.RMSNorm(width, eps=epsilon) if is_gemma else nn.Identity()
        self.dropout = nn.Dropout(0.0)

    def forward(self, tokens: Tensor, parts: Sequence[BatchPart]) -> Tensor:
        """Map token vectors (N, L, H) to (N, L, H), or packed ones (T, H) to (T, H).

        :param parts: as for `Layer`.
        """
        heads, others = self.heads, self.key_value_heads
        joint = self.attention(self.attention_norm(tokens)).unflatten(-1, (heads + 2 * others, -1))
        query, key, value = torch.split(joint, [heads, others, others], dim=-2)
        joint = torch.cat([self.query_norm(query), self.key_norm(key), value], dim=-2).flatten(-2)
        context = self.attention_output(_attend_in_parts(joint, parts, heads, others, self.settings))
        attended = tokens + self.dropout(self.context_norm(context))
        activated, gate = self.intermediate(self.intermediate_norm(attended)).chunk(2, dim=-1)
        expanded = self.output(self.activation(activated) * gate)
        return attended + self.dropout(self.output_norm(expanded))  # type: ignore[no-any-return]


class Uninitialized(TorchFunctionMode):
    """A context in which new modules do not initialise their weights, as these are read or shared afterwards.

    Random numbers for 44 million weights take half a second. On the device meta, which has no numbers, the first ones
    make torch import its compiler, which takes more than a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Collection[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == nn.init.__name__:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


TransformerLayer = Layer | ModernBertLayer | RmsNormLayer
"""A layer of a student."""


def check_rotary(config: "StudentConfig") -> None:
    """Check what a configuration says about layers with rotary positions, and about heads that only some of them have.

    :raises InputError: when its parts do not fit together.
    """
    named = {name: getattr(config, name) for name in ROTARY_LAYERS if getattr(config, name)}
    if len(named) > 1:
        raise InputError(f"{' and '.join(named)}: layers are of one kind; leave all but one of them out")
    for name in ("key_value_heads", "head_width"):
        if getattr(config, name) and not config.language_model:
            raise InputError(f"{name}: only layers of gemma and qwen have it; set it to null")
    if config.num_attention_heads % (config.key_value_heads or 1):
        raise InputError(
            f"num_attention_heads {config.num_attention_heads} is not a multiple of key_value_heads "
            f"{config.key_value_heads}; correct one of them"
        )
    for name, layers in named.items():
        if len(layers) != config.prelude_layers + config.unit_layers + config.coda_layers:
            raise InputError(
                f"{name} has {len(layers)} entries, not one for each of the prelude_layers, unit_layers and "
                "coda_layers; correct one of them"
            )
    if config.width_of_head % 2:
        raise InputError(
            f"a head is {config.width_of_head} wide, and rotary positions need an even number; correct head_width, or "
            "hidden_size and num_attention_heads"
        )
    if config.relative_buckets or (config.type_vocab_size and not config.rotary_bert):
        raise InputError(
            "relative_buckets and type_vocab_size: with rotary positions there is neither, but for types of a "
            "rotary_bert; set them to null and 0"
        )
    unit = config.modernbert[config.prelude_layers :][: config.unit_layers]
    if config.recurrences > 1 and not all(layer.norm for layer in unit):
        raise InputError(
            "recurrences: the first layer of a ModernBERT has no norm in front of its attention, so it is applied "
            "once; make it the prelude, or leave it out of the unit"
        )


def make_layers(config: "StudentConfig") -> list[TransformerLayer]:
    """Make the distinct layers of a student: prelude, unit, coda."""
    if config.modernbert:
        return [ModernBertLayer(config, settings) for settings in config.modernbert]
    if config.language_model:
        return [RmsNormLayer(config, settings) for settings in config.rotary]
    if config.rotary_bert:
        return [Layer(config, settings) for settings in config.rotary_bert]
    return [Layer(config) for _ in range(config.prelude_layers + config.unit_layers + config.coda_layers)]


def _attend_in_parts(
    joint: Tensor,
    parts: Sequence[BatchPart],
    heads: int,
    key_value_heads: int,
    settings: RotaryAttention | None = None,
) -> Tensor:
    """Map queries, keys and values side by side, (N, L, W) or packed (T, W), to attention as wide as the queries.

    :param heads: number of heads of queries.
    :param key_value_heads: the same number, or a divisor of it: as many heads in a row share keys and values.
    """
    contexts = []
    rows = torch.split(joint, [part.rows for part in parts]) if len(parts) > 1 else (joint,)
    for part, own in zip(parts, rows, strict=True):
        padded = part.pad(own)
        batch, length, _ = padded.shape
        of_heads = padded.view(batch, length, heads + 2 * key_value_heads, -1).transpose(1, 2)
        query, key, value = torch.split(of_heads, [heads, key_value_heads, key_value_heads], dim=1)
        mask = part.mask
        if settings is not None:
            angles = rotary_angles(length, query.shape[-1], settings.rotation).to(query.device)
            query, key = _rotate(query, angles), _rotate(key, angles)
            mask = mask if settings.window is None else _window_mask(mask, settings.window).to(query.dtype)
        sharing = (-1, -1, heads // key_value_heads, -1, -1)
        key, value = (vectors[:, :, None].expand(sharing).flatten(1, 2) for vectors in (key, value))
        context = attend(query, key, value, mask).transpose(1, 2).reshape(batch, length, -1)
        contexts.append(part.unpad(context))
    return torch.cat(contexts) if len(contexts) > 1 else contexts[0]


def rotary_angles(length: int, width: int, rotation: tuple[float, float]) -> Tensor:
    """Return the angles by which the pairs of numbers at the positions 0 ... L - 1 are rotated, (L, W / 2).

    Pair i at position m is rotated by m base^(-2 i / W) / factor (Su et al., 2021, arXiv:2104.09864).

    :param width: W, numbers of a head, an even number.
    :param rotation: base and factor.
    """
    base, factor = rotation
    speeds = 1.0 / base ** (torch.arange(0, width, 2).float() / width) / factor
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
    seen = visible & (token_distances(visible.shape[-1], visible.device).abs() <= window)
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, _UNSEEN)
