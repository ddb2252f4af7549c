"""Foreign encoders become a `Student` with M = their layers, R = 1 and no bottleneck: weights are mapped in."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from xcompress.e5s1 import is_e5s1, read_e5s1
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.student import MODEL_TYPE, Student, StudentConfig

_OLD_MODE = "pooling_mode_"
BERT_FAMILY = ("bert", "roberta", "xlm-roberta")

_LAYER = {
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_EMBEDDINGS = {
    "word.weight": "word_embeddings.weight",
    "position.weight": "position_embeddings.weight",
    "token_type.weight": "token_type_embeddings.weight",
    "norm.weight": "LayerNorm.weight",
    "norm.bias": "LayerNorm.bias",
}


def import_encoder(
    path: Path, tokenizer: Path | None = None, *, prefix: str = "", max_tokens: int = 128
) -> tuple[Student, Tokenizer]:
    """Open an encoder as a `Student`.

    :param path: one of our own folders, a folder with config.json and model.safetensors of BERT, RoBERTa or XLM-R, or
        an E5S1 file (4-bit BERT).
    :param tokenizer: a tokenizer.json; needed where the model does not bring one.
    :param prefix: text the model expects in front of every sentence.
    :param max_tokens: longer texts are cut.
    :raises InputError: when the model is of another kind, damaged, or has no tokenizer.
    """
    if path.is_dir() and read_json(path / "config.json").get("model_type") == MODEL_TYPE:
        return Student.load(path)
    config, weights = read_e5s1(path) if is_e5s1(path) else _read_bert_folder(path)
    student = Student(replace(config, prefix=prefix, max_tokens=min(max_tokens, _longest(config))))
    load_bert_weights(student, weights)
    return student.eval(), _open_tokenizer(tokenizer or path / "tokenizer.json")


def pooling_of(path: Path) -> str | None:
    """Return how a sentence-transformers folder makes sentence vectors (mean, cls, ...), or None where it does not say.

    Several ways, whose results are put side by side, are joined by a plus.
    """
    modules = read_json(path / "modules.json") if (path / "modules.json").is_file() else []
    for module in modules:
        if module["type"].endswith("Pooling"):
            return _pooling_mode(read_json(path / module["path"] / "config.json"))
    return None


def _pooling_mode(described: Mapping[str, Any]) -> str:
    """Read both notations: `pooling_mode: cls`, and the older `pooling_mode_cls_token: true`."""
    mode = described.get("pooling_mode")
    if mode is None:
        on = [name for name, value in described.items() if name.startswith(_OLD_MODE) and value]
        return "+".join(re.sub(r"_tokens?$", "", name.removeprefix(_OLD_MODE)) for name in on) or "mean"
    return mode if isinstance(mode, str) else "+".join(mode)


def load_bert_weights(student: Student, weights: Mapping[str, Tensor]) -> None:
    """Copy BERT-family weights, named as in transformers' BertModel without a prefix, into the student.

    :raises InputError: when a weight is missing or has another shape.
    """
    state = {f"embeddings.{ours}": weights.get(f"embeddings.{theirs}") for ours, theirs in _EMBEDDINGS.items()}
    for layer in range(student.config.unit_layers):
        state |= _layer_state(f"encoder.layer.{layer}", f"unit.{layer}", weights)
    for name, expected in student.state_dict().items():
        found = state.get(name)
        if found is None or found.shape != expected.shape:
            what = "missing" if found is None else f"of shape {tuple(found.shape)}"
            raise InputError(f"weight {name}: {what}, expected shape {tuple(expected.shape)}; is this a BERT encoder?")
    student.load_state_dict({name: weight.float() for name, weight in state.items() if weight is not None})


def _layer_state(theirs: str, ours: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor | None]:
    state: dict[str, Tensor | None] = {}
    for kind in ("weight", "bias"):
        parts = [weights.get(f"{theirs}.attention.self.{part}.{kind}") for part in ("query", "key", "value")]
        present = [part for part in parts if part is not None]
        state[f"{ours}.attention.{kind}"] = torch.cat(present) if len(present) == len(parts) else None
        for name, foreign in _LAYER.items():
            state[f"{ours}.{name}.{kind}"] = weights.get(f"{theirs}.{foreign}.{kind}")
    return state


def _read_bert_folder(path: Path) -> tuple[StudentConfig, dict[str, Tensor]]:
    described = read_json(path / "config.json")
    kind = described.get("model_type")
    if kind not in BERT_FAMILY:
        raise InputError(f"{path}: model_type is {kind!r}; supported are {', '.join(BERT_FAMILY)}")
    if described.get("hidden_act") != "gelu":
        raise InputError(f"{path}: hidden_act is {described.get('hidden_act')!r}; only 'gelu' is supported")
    shared = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    config = StudentConfig(
        **{name: described[name] for name in (*shared, "type_vocab_size", "layer_norm_eps", "pad_token_id")},
        unit_layers=described["num_hidden_layers"],
        position_offset=0 if kind == "bert" else described["pad_token_id"] + 1,
    )
    weights_file = path / "model.safetensors"
    if not weights_file.is_file():
        raise InputError(f"{weights_file}: no such file; only safetensors weights are read (never pickles)")
    return config, {_without_model_prefix(name): weight for name, weight in load_file(weights_file).items()}


def _without_model_prefix(name: str) -> str:
    return name.removeprefix("bert.").removeprefix("roberta.")


def _longest(config: StudentConfig) -> int:
    return config.max_position_embeddings - config.position_offset


def _open_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise InputError(f"{path}: no tokenizer.json; name one in the recipe under tokenizer")
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise InputError(f"{path}: not a tokenizer.json ({error})") from error
