"""What layers with rotary positions are, and what the config.json of an encoder says of them. Imports no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from xcompress.errors import InputError, short_repr

LARGEST_WINDOW = 1_000_000
"""Far above those of real encoders."""
LARGEST_BASE = 10**15
"""Likewise; float32 holds its powers."""
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
"""Kinds of layers where positions are rotary: a token sees all tokens, or those near it."""
LayerKind = Literal["bert", "modernbert", "gemma", "qwen", "jina", "nomic", "gte"]
_ROPE_KEYS = ("rope_type", "type", "rope_theta", "factor")
"""Those of rope_parameters, and of the older rope_scaling, that are read."""


@dataclass(frozen=True)
class RotaryAttention:
    """The attention of a layer with rotary positions, where it may differ from that of the other layers."""

    rotary_base: float
    """Base of the wavelengths of the rotary positions (Su et al., 2021)."""
    window: int | None = None
    """How many tokens a token sees to either side; None: all."""
    factor: float = 1.0
    """Positions are divided by it (Chen et al., 2023, arXiv:2306.15595)."""

    def __post_init__(self) -> None:
        window = self.window
        for name, number in (("base", self.rotary_base), ("factor", self.factor)):
            if not isinstance(number, int | float) or not 1 <= number <= LARGEST_BASE:  # also refuses NaN
                raise InputError(
                    f"{name} of rotary positions is {short_repr(number)}, expected a number from 1 to "
                    f"{LARGEST_BASE:,}; correct it"
                )
        if window is not None and (not isinstance(window, int) or not 1 <= window <= LARGEST_WINDOW):
            raise InputError(
                f"window of attention is {short_repr(window)}, expected a whole number from 1 to {LARGEST_WINDOW:,}; "
                "correct it"
            )

    @property
    def rotation(self) -> tuple[float, float]:
        """Base and factor, which say by how much the numbers at a position are rotated."""
        return self.rotary_base, self.factor


@dataclass(frozen=True)
class ModernBertAttention(RotaryAttention):
    """The attention of a layer of ModernBERT."""

    norm: bool = True
    """Whether a norm comes in front of it. The first layer has none, as the embeddings end with one."""


@dataclass(frozen=True)
class RotaryBertAttention(RotaryAttention):
    """A layer of BERT with rotary positions, and what else may differ from BERT. All layers of a student are alike."""

    gate: Literal["gelu", "silu"] | None = None
    """Activation of a gated feed-forward part; None: that of BERT, with GELU and no gate."""
    biases: bool = True
    """Whether the products have biases, except the one that a gate is part of, which has none in any case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gate not in ("gelu", "silu", None) or not isinstance(self.biases, bool):
            raise InputError(
                f"gate is {short_repr(self.gate)} and biases {short_repr(self.biases)}, expected gelu, silu or null, "
                "and true or false; correct them"
            )


ROTARY_LAYERS: Mapping[str, type[RotaryAttention]] = {
    "modernbert": ModernBertAttention,
    "gemma": RotaryAttention,
    "qwen": RotaryAttention,
    "rotary_bert": RotaryBertAttention,
}
"""What describes a layer, by the field of `StudentConfig` that holds the layers of its kind."""
ROTARY_BERTS: Mapping[str, RotaryBertAttention] = {
    "jina_embeddings_v3": RotaryBertAttention(20_000.0),
    "nomic_bert": RotaryBertAttention(1_000.0, gate="silu", biases=False),
    "gte": RotaryBertAttention(160_000.0, gate="gelu"),
    "new": RotaryBertAttention(10_000.0, gate="gelu"),
}
"""Layers of BERT with rotary positions by model_type, with the bases that they have where config.json names none."""


def read_rotary(config: Mapping[str, Any], kind: LayerKind) -> dict[str, Any]:
    """Read what layers have beside their sizes, as fields of `StudentConfig`.

    :raises InputError: as `_read_modernbert`, `_read_gemma`, `_read_qwen` and `_read_rotary_bert`.
    """
    if kind == "bert":
        return {}
    readers = {"modernbert": _read_modernbert, "gemma": _read_gemma, "qwen": _read_qwen}
    return {kind: readers[kind](config)} if kind in readers else {"rotary_bert": _read_rotary_bert(config)}


def _read_modernbert(config: Mapping[str, Any]) -> tuple[ModernBertAttention, ...]:
    """Read what each layer of a ModernBERT is.

    :raises InputError: when a key has another type, or the positions are scaled.
    """
    every, local = config.get("global_attn_every_n_layers", 3), config.get("local_attention", 128)
    if not isinstance(every, int) or every < 1 or not isinstance(local, int) or local < 2:
        raise InputError(
            f"global_attn_every_n_layers is {short_repr(every)} and local_attention {short_repr(local)}, expected "
            "whole numbers from 1 and from 2 on; correct them"
        )
    bases = config.get("global_rope_theta", 160_000.0), config.get("local_rope_theta", 10_000.0)
    kinds = [_LOCAL if number % every else _GLOBAL for number in range(config["num_hidden_layers"])]
    layers = _read_rotary_layers(config, kinds, (bases[0], bases[0] if bases[1] is None else bases[1]), local // 2)
    return tuple(ModernBertAttention(layer.rotary_base, layer.window, norm=row > 0) for row, layer in enumerate(layers))


def _read_gemma(config: Mapping[str, Any]) -> tuple[RotaryAttention, ...]:
    """Read what each layer of an EmbeddingGemma is.

    :raises InputError: when a key has another type, tokens see only those before them, or the scale of the attention
        scores or the positions are others.
    """
    every, local = config.get("sliding_window_pattern", 6), config.get("sliding_window", 4096)
    if not isinstance(every, int) or every < 1 or not isinstance(local, int) or local < 2:
        raise InputError(
            f"sliding_window_pattern is {short_repr(every)} and sliding_window {short_repr(local)}, expected whole "
            "numbers from 1 and from 2 on; correct them"
        )
    if config.get("use_bidirectional_attention") is not True:
        raise InputError(
            "use_bidirectional_attention is not true, so that a token sees only those before it; choose an encoder "
            "such as EmbeddingGemma, or take this one as the teacher of a recipe"
        )
    scale = config.get("query_pre_attn_scalar", 256)
    if scale != config["head_dim"]:
        raise InputError(
            f"query_pre_attn_scalar is {short_repr(scale)}, only that of head_dim, {config['head_dim']}, is supported; "
            "choose another encoder"
        )
    kinds = [_LOCAL if (row + 1) % every else _GLOBAL for row in range(config["num_hidden_layers"])]
    bases = config.get("rope_theta", 1_000_000.0), config.get("rope_local_base_freq", 10_000.0)
    # transformers reads the window as that of both sides together
    return _read_rotary_layers(config, kinds, bases, local // 2)


def _read_qwen(config: Mapping[str, Any]) -> tuple[RotaryAttention, ...]:
    """Read what each layer of a Qwen3 is.

    :raises InputError: when a key has another type, a layer has a window, or the positions are scaled.
    """
    kinds, base = [_GLOBAL] * config["num_hidden_layers"], config.get("rope_theta", 10_000.0)
    return _read_rotary_layers(config, kinds, (base, base), 0)


def _read_rotary_bert(config: Mapping[str, Any]) -> tuple[RotaryBertAttention, ...]:
    """Read what each layer of a BERT with rotary positions is. All are the same.

    GTE's code calls its scaling NTK. For a factor s and heads W wide, it multiplies the base by s and divides positions
    by s^(2 / W). transformers 5 has the results in place of s: another base, and a linear scaling.

    :raises InputError: when a key has another type, or the positions are scaled in other ways.
    """
    layer = ROTARY_BERTS[config["model_type"]]
    width = config["hidden_size"] / config["num_attention_heads"]
    if config.get("head_dim") not in (width, None):
        raise InputError(
            f"head_dim is {short_repr(config['head_dim'])}, only hidden_size / num_attention_heads, {width:g}, is "
            "supported; choose another encoder"
        )
    given: Any = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = given.get("rope_type", given.get("type", "default")) if isinstance(given, dict) else None
    # such as mixed_b, with which ntk is another scaling
    unread = [value for name, value in given.items() if name not in _ROPE_KEYS] if kind else []
    if kind not in ("default", "linear", "ntk") or any(value not in (None, 1) for value in unread):
        raise InputError(
            f"the rotary positions are scaled by {short_repr(given)}, only the types default, linear and ntk are "
            "supported; choose another encoder"
        )
    layer = replace(
        layer,
        rotary_base=given.get("rope_theta", config.get("rope_theta", layer.rotary_base)),
        factor=1.0 if kind == "default" else given.get("factor"),
    )
    if kind == "ntk":
        layer = replace(layer, rotary_base=layer.rotary_base * layer.factor, factor=layer.factor ** (2 / width))
    return tuple(layer for _ in range(config["num_hidden_layers"]))


def _read_rotary_layers(
    config: Mapping[str, Any], kinds: object, bases: tuple[float, float], window: int
) -> tuple[RotaryAttention, ...]:
    """Read the rotary base and the window of each layer, from the keys of transformers 5 or of the versions before it.

    :param kinds: of the layers, where config.json has no layer_types.
    :param bases: of layers where a token sees all tokens and of those where it sees near ones, likewise.
    :raises InputError: when a key has another type, or the positions are scaled.
    """
    kinds = kinds if config.get("layer_types") is None else config["layer_types"]
    if (
        not isinstance(kinds, list)
        or len(kinds) != config["num_hidden_layers"]
        or {*map(str, kinds)} - {_GLOBAL, _LOCAL}
    ):
        raise InputError(
            f"layer_types is {short_repr(kinds)}, expected {_GLOBAL} or {_LOCAL} for each layer; correct it"
        )
    given, base_of = config.get("rope_parameters") or {}, dict[str, float]()
    for kind, base in zip((_GLOBAL, _LOCAL), bases, strict=True):
        own = given.get(kind, given) if isinstance(given, dict) else given
        if not isinstance(own, dict) or own.get("rope_type", "default") != "default":
            raise InputError(f"rope_parameters has {short_repr(own)}, only the rope_type 'default' is supported")
        base_of[kind] = own.get("rope_theta", base)
    return tuple(RotaryAttention(base_of[kind], window if kind == _LOCAL else None) for kind in kinds)
