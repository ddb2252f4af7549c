"""Encoders that are BERT with rotary positions: saved as they are published, and computed in a plain way in float64.

This is written from what their configurations and papers say, without the layers of xcompress and of transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from tests.helpers.foreign import SHAPE
from tests.helpers.student import make_tokenizer
from xcompress.files import read_json, write_json


@dataclass(frozen=True)
class Names:
    """The weights of a layer. `up` and `gate` may be one weight, with `up` first."""

    layer: str
    joint: str
    context: str
    norms: tuple[str, str]
    up: str
    gate: str | None
    down: str
    embeddings_norm: str = "embeddings.LayerNorm"
    prefix: str = ""


JINA = Names(
    *("encoder.layers.{}.", "mixer.Wqkv", "mixer.out_proj", ("norm1", "norm2"), "mlp.fc1", None, "mlp.fc2", "emb_ln"),
    prefix="roberta.",
)
NOMIC = Names(
    *("encoder.layers.{}.", "attn.Wqkv", "attn.out_proj", ("norm1", "norm2"), "mlp.fc11", "mlp.fc12", "mlp.fc2"),
    embeddings_norm="emb_ln",
)
GTE = Names(
    *("encoder.layer.{}.", "attention.qkv_proj", "attention.o_proj", ("attn_ln", "mlp_ln")),
    *("mlp.up_gate_proj", "mlp.up_gate_proj", "mlp.down_proj"),
)
NEW = Names(**vars(GTE) | {"prefix": "new."})
NAMES = {"jina_embeddings_v3": JINA, "nomic_bert": NOMIC, "gte": GTE, "new": NEW}
CONFIGS: dict[str, dict[str, Any]] = {
    "jina_embeddings_v3": {"rope_parameters": {"rope_type": "default", "rope_theta": 200.0}, "type_vocab_size": 1},
    "nomic_bert": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}, "type_vocab_size": 2}
    | {"hidden_act": "silu", "head_dim": 8},
    "gte": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 300.0}, "type_vocab_size": 0},
    "new": {"rope_theta": 50.0, "rope_scaling": {"type": "ntk", "factor": 8.0}, "type_vocab_size": 1}
    | {"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "pack_qkv": True}
    | {"logn_attention_scale": False, "logn_attention_clip1": False, "unpad_inputs": False}
    | {"auto_map": {"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"}},
}


def save_rotary(folder: Path, kind: str, pooling: str = "cls", **changes: object) -> Path:
    """Write a pipeline of random weights: the encoder, pooling and normalisation."""
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPE | {"model_type": kind, "hidden_act": "gelu", "layer_norm_eps": 1e-5} | CONFIGS[kind] | changes
    write_json(folder / "config.json", config)
    save_file(_random_weights(kind, config), folder / "model.safetensors", metadata={"format": "pt"})
    make_tokenizer().save(str(folder / "tokenizer.json"))
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
        for number, (path, name) in enumerate(types.items())
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", {"pooling_mode": pooling})
    return folder


def rotary_vectors(folder: Path, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the unit vectors of sentences, (N, H), of token ids with the special tokens."""
    config, weights = read_json(folder / "config.json"), load_file(folder / "model.safetensors")
    names = NAMES[config["model_type"]]
    doubles = {name.removeprefix(names.prefix): weight.double() for name, weight in weights.items()}
    mean = read_json(folder / "1_Pooling" / "config.json")["pooling_mode"] == "mean"
    tokens = [_token_vectors(config, names, doubles, torch.tensor(ids)) for ids in sequences]
    vectors = torch.stack([row.mean(0) if mean else row[0] for row in tokens])
    return functional.normalize(vectors, dim=-1).numpy()


def speeds_of(config: Mapping[str, Any]) -> Tensor:
    """Return the angle of each pair of numbers at position 1, (W / 2,).

    NTK scaling by s (https://kexue.fm/archives/9706, equation 6): the base is s times as large, and all are divided by
    s^(2 / W).
    """
    width = config["hidden_size"] // config["num_attention_heads"]
    pairs = torch.arange(width // 2, dtype=torch.float64)
    rope = config.get("rope_parameters") or {}
    base = rope.get("rope_theta", config.get("rope_theta"))
    scaling = config.get("rope_scaling")
    if scaling:
        return (base * scaling["factor"]) ** (-2 * pairs / width) / scaling["factor"] ** (2 / width)
    return base ** (-2 * pairs / width) / rope.get("factor", 1.0)


def _token_vectors(config: Mapping[str, Any], names: Names, weights: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Return the vectors (L, H) behind the last layer."""
    heads = config["num_attention_heads"]

    def linear(inputs: Tensor, name: str) -> Tensor:
        return functional.linear(inputs, weights[f"{name}.weight"], weights.get(f"{name}.bias"))

    def norm(inputs: Tensor, name: str) -> Tensor:
        scaled = functional.layer_norm(inputs, inputs.shape[-1:], eps=config["layer_norm_eps"])
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def paired(vectors: Tensor) -> Tensor:
        """Return the pairs (i, i + W / 2) as complex numbers, turned by their positions."""
        angles = torch.arange(len(ids), dtype=torch.float64)[:, None] * speeds_of(config)
        return torch.complex(*vectors.chunk(2, dim=-1)) * torch.polar(torch.ones_like(angles), angles)

    tokens = weights["embeddings.word_embeddings.weight"][ids]
    if config["type_vocab_size"]:
        tokens = tokens + weights["embeddings.token_type_embeddings.weight"][0]
    tokens = norm(tokens, names.embeddings_norm)
    for number in range(config["num_hidden_layers"]):
        layer = names.layer.format(number)
        joint = linear(tokens, layer + names.joint)
        query, key, value = (part.view(len(ids), heads, -1).transpose(0, 1) for part in joint.chunk(3, dim=-1))
        scores = (paired(query) @ paired(key).conj().transpose(1, 2)).real / value.shape[-1] ** 0.5
        context = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
        tokens = norm(tokens + linear(context, layer + names.context), layer + names.norms[0])
        inner = linear(tokens, layer + names.up)
        activate = functional.silu if config["hidden_act"] == "silu" else functional.gelu
        if names.gate is None:
            inner = activate(inner)
        elif names.gate == names.up:
            up, gate = inner.chunk(2, dim=-1)
            inner = up * activate(gate)
        else:
            inner = inner * activate(linear(tokens, layer + names.gate))
        tokens = norm(tokens + linear(inner, layer + names.down), layer + names.norms[1])
    return tokens


def _random_weights(kind: str, config: Mapping[str, Any]) -> dict[str, Tensor]:
    generator, names = torch.Generator().manual_seed(5), NAMES[kind]
    width, inner = config["hidden_size"], config["intermediate_size"]
    biases = kind != "nomic_bert"
    shapes: dict[str, tuple[int, ...]] = {"embeddings.word_embeddings.weight": (config["vocab_size"], width)}
    if config["type_vocab_size"]:
        shapes["embeddings.token_type_embeddings.weight"] = (config["type_vocab_size"], width)
    norms = [names.embeddings_norm]
    for number in range(config["num_hidden_layers"]):
        layer = names.layer.format(number)
        norms += [layer + norm for norm in names.norms]
        products = {names.joint: (3 * width, width), names.context: (width, width), names.down: (width, inner)}
        products |= {names.gate or names.up: (inner, width), names.up: (inner, width)}
        if names.gate == names.up:
            products[names.up] = (2 * inner, width)
        shapes |= {f"{layer}{name}.weight": shape for name, shape in products.items()}
        with_bias = {name: shape for name, shape in products.items() if biases and name != names.gate}
        shapes |= {f"{layer}{name}.bias": shape[:1] for name, shape in with_bias.items()}
    weights = {
        name: config["initializer_range"] * torch.randn(shape, generator=generator) for name, shape in shapes.items()
    }
    for norm in norms:
        weights |= {
            f"{norm}.weight": 1 + 0.1 * torch.randn(width, generator=generator),
            f"{norm}.bias": 0.1 * torch.randn(width, generator=generator),
        }
    weights |= {"pooler.dense.weight": torch.ones(width, width)}
    return {names.prefix + name: weight for name, weight in weights.items()}
