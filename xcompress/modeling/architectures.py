"""Encoders of the BERT family by their own names: config.json to a `StudentConfig`, weights to those of a `Student`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from xcompress.errors import InputError
from xcompress.modeling.student import Student, StudentConfig

_ANCHOR = "embeddings.word_embeddings.weight"
_EMBEDDINGS = {
    "word.weight": "word_embeddings.weight",
    "position.weight": "position_embeddings.weight",
    "token_type.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}
_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "unit_layers": "num_hidden_layers",
    "max_position_embeddings": "max_position_embeddings",
}
_LAYER = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}


@dataclass(frozen=True)
class Family:
    """How one kind of encoder calls its sizes and weights, and what sets it apart from BERT."""

    sizes: Mapping[str, str]
    """Fields of `StudentConfig`, and their names in config.json."""
    layers: str
    """What stands in front of a layer's number."""
    joint: tuple[str, str, str]
    """Queries, keys and values, which are one product in a student's layer."""
    layer: Mapping[str, str]
    """The other parts of a student's layer, and their names."""
    activation: str = "hidden_act"
    """The key of the activation in config.json."""
    types: bool = True
    """Whether there are token types."""
    padding_id: int = 0
    """The id of padding, where config.json does not say."""
    skips_padding: bool = False
    """Whether positions begin behind that of the padding id, as in RoBERTa."""
    relative: str | None = None
    """The name of the table of relative attention biases."""


_ATTENTION = ("attention.self.query", "attention.self.key", "attention.self.value")
BERT = Family(_SIZES, "encoder.layer", _ATTENTION, _LAYER)
_ROBERTA = Family(_SIZES, "encoder.layer", _ATTENTION, _LAYER, padding_id=1, skips_padding=True)
_DISTILBERT = Family(
    _SIZES
    | {"hidden_size": "dim", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}
    | {"unit_layers": "n_layers"},
    "transformer.layer",
    ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    {
        "attention_output": "attention.out_lin",
        "attention_norm": "sa_layer_norm",
        "intermediate": "ffn.lin1",
        "output": "ffn.lin2",
        "output_norm": "output_layer_norm",
    },
    activation="activation",
    types=False,
)
_MPNET = Family(
    _SIZES,
    "encoder.layer",
    ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    _LAYER | {"attention_output": "attention.attn.o", "attention_norm": "attention.LayerNorm"},
    types=False,
    padding_id=1,
    skips_padding=True,
    relative="encoder.relative_attention_bias.weight",
)
FAMILIES = {
    "bert": BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": _DISTILBERT,
    "mpnet": _MPNET,
}
"""By model_type."""
BUCKETS = 32
"""Of MPNet: transformers computes with this many, whatever config.json says."""


def read_architecture(described: Mapping[str, Any], file: Path) -> tuple[StudentConfig, Family]:
    """Read a config.json.

    :param described: what is in it.
    :param file: where it is, for error texts.
    :raises InputError: when the encoder is of another kind, or has something a `Student` has not.
    """
    kind = described.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise InputError(f"{file}: model_type is {kind!r}; supported are {', '.join(FAMILIES)}")
    _check(described, family, file)
    missing = [name for name in family.sizes.values() if not isinstance(described.get(name), int)]
    if missing:
        raise InputError(f"{file}: no {', '.join(missing)}; give a complete encoder")
    padding = described.get("pad_token_id")
    padding = family.padding_id if padding is None else padding
    return StudentConfig(
        **{ours: described[theirs] for ours, theirs in family.sizes.items()},
        type_vocab_size=described.get("type_vocab_size", 2) if family.types else 0,
        layer_norm_eps=described.get("layer_norm_eps", 1e-12),
        pad_token_id=padding,
        position_offset=(family.padding_id if family.relative else padding) + 1 if family.skips_padding else 0,
        relative_buckets=BUCKETS if family.relative else None,
    ), family


def _check(described: Mapping[str, Any], family: Family, file: Path) -> None:
    expected = {
        family.activation: ("gelu", "gelu"),
        "position_embedding_type": ("absolute", "absolute"),
        "is_decoder": (False, False),
    }
    if family.relative:
        expected["relative_attention_num_buckets"] = (BUCKETS, BUCKETS)
    for name, (supported, default) in expected.items():
        found = described.get(name, default)
        if found != supported:
            raise InputError(f"{file}: {name} is {found!r}, only {supported!r} is supported; choose another encoder")


def student_state(weights: Mapping[str, Tensor], family: Family, layers: int) -> dict[str, Tensor]:
    """Give an encoder's weights the names they have in a `Student`, as far as they are there.

    :param weights: by the encoder's names, whatever stands in front of them (`bert.`, `roberta.`, `model.` ...).
    :param layers: how many layers there are.
    """
    found = _without_prefix(weights)
    names = {f"embeddings.{ours}": f"embeddings.{theirs}" for ours, theirs in _EMBEDDINGS.items()}
    if family.relative:
        names["relative.table.weight"] = family.relative
    state = {}
    for layer in range(layers):
        theirs, ours = f"{family.layers}.{layer}", f"unit.{layer}"
        for kind in ("weight", "bias"):
            names |= {f"{ours}.{part}.{kind}": f"{theirs}.{name}.{kind}" for part, name in family.layer.items()}
            parts = [found[name] for part in family.joint if (name := f"{theirs}.{part}.{kind}") in found]
            if len(parts) == len(family.joint):
                state[f"{ours}.attention.{kind}"] = torch.cat(parts)
    return state | {ours: found[theirs] for ours, theirs in names.items() if theirs in found}


def _without_prefix(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cut off what stands in front of every name, and use today's names of a LayerNorm's weights."""
    anchors = [name for name in weights if name == _ANCHOR or name.endswith(f".{_ANCHOR}")]
    prefix = anchors[0].removesuffix(_ANCHOR) if anchors else ""
    inside = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
    return {_todays(name): weight for name, weight in inside.items()}


def _todays(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def load_state(student: Student, state: Mapping[str, Tensor], file: Path) -> None:
    """Copy weights into a student, as float32.

    :param file: where they come from, for error texts.
    :raises InputError: when a weight is missing or has another shape.
    """
    for name, expected in student.state_dict().items():
        found = state.get(name)
        if found is None or found.shape != expected.shape:
            what = "missing" if found is None else f"of shape {tuple(found.shape)}"
            raise InputError(
                f"{file}: weight {name} is {what}, expected shape {tuple(expected.shape)}; give a complete encoder"
            )
    student.load_state_dict({name: state[name].float() for name in student.state_dict()})
