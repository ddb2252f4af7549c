"""A sentence-transformers folder, read without that library: what happens between a text and its vector."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from xcompress.errors import InputError
from xcompress.files import read_json

MODULES = "modules.json"
SUPPORTED = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules that a `Student` has a place for, in the order in which they may come."""
ENDLESS = 1_000_000
"""A tokenizer that knows no limit says that its longest text has more tokens than this."""
_ORDER = re.compile("Transformer Pooling( Dense)*( Normalize)?")
_OLD_MODE = "pooling_mode_"
_IDENTITY = "torch.nn.modules.linear.Identity"
_TANH = "torch.nn.modules.activation.Tanh"


@dataclass(frozen=True)
class Head:
    """The dense modules, as one: x -> activation(W x + b)."""

    weight: Tensor
    """W, (D, H)."""
    bias: Tensor
    """b, (D,)."""
    activation: Literal["tanh"] | None


@dataclass(frozen=True)
class Pipeline:
    """What a folder's files say about the way from a text to its vector."""

    transformer: Path
    """Folder of the encoder and its tokenizer."""
    pooling: str
    pools_prompt: bool
    """Whether the tokens of a prompt count."""
    head: Head | None
    normalize: bool
    prefix: str
    """The prompt that is used where none is named."""


def is_pipeline(folder: Path) -> bool:
    """Tell whether sentence-transformers saved a model in this folder."""
    return (folder / MODULES).is_file()


def folders_of(folder: Path) -> list[Path]:
    """List the folders that an encoder's files lie in, that of the transformer first; the folder itself if no pipeline.

    :raises InputError: when modules.json is damaged.
    """
    return [folder / module["path"] for module in _modules(folder)] if is_pipeline(folder) else [folder]


def read_pipeline(folder: Path) -> Pipeline:
    """Read modules.json and what it names.

    :raises InputError: when there is a module that has no place in a `Student`, or a file is missing or damaged.
    """
    modules = _modules(folder)
    kinds = [_kind(module) for module in modules]
    for module, kind in zip(modules, kinds, strict=True):
        if kind not in SUPPORTED:
            raise InputError(
                f"{folder / MODULES}: module {module['type']} is not supported, only {', '.join(SUPPORTED)} are; "
                "choose another model"
            )
    if not _ORDER.fullmatch(" ".join(kinds)):
        raise InputError(
            f"{folder / MODULES}: modules come as {', '.join(kinds)}, supported is Transformer, Pooling, any number of "
            "Dense, Normalize or none; choose another model"
        )
    _check_output(folder / modules[0]["path"])
    pooling = read_mapping(folder / modules[1]["path"] / "config.json")
    dense = [folder / module["path"] for module, kind in zip(modules, kinds, strict=True) if kind == "Dense"]
    return Pipeline(
        transformer=folder / modules[0]["path"],
        pooling=_pooling_mode(pooling),
        pools_prompt=pooling.get("include_prompt", True),
        head=_read_head(dense) if dense else None,
        normalize=kinds[-1] == "Normalize",
        prefix=_default_prompt(folder / "config_sentence_transformers.json"),
    )


def pooling_of(folder: Path) -> str | None:
    """Return how a sentence-transformers folder makes sentence vectors (mean, cls, ...), or None where it does not say.

    Several ways, whose results are put side by side, are joined by a plus.
    """
    modules = _modules(folder) if is_pipeline(folder) else []
    for module in modules:
        if module["type"].endswith("Pooling"):
            return _pooling_mode(read_mapping(folder / module["path"] / "config.json"))
    return None


def longest_text(transformer: Path) -> int | None:
    """Return how many tokens a text may have: the encoder's setting, else the tokenizer's; None where neither says.

    :param transformer: the folder of the encoder.
    """
    limit = _settings(transformer).get("max_seq_length")
    tokenizer = transformer / "tokenizer_config.json"
    if limit is None and tokenizer.is_file():
        limit = read_mapping(tokenizer).get("model_max_length")
    return int(limit) if isinstance(limit, int | float) and 0 < limit < ENDLESS else None


def is_lowercased(transformer: Path) -> bool:
    """Tell whether texts are put in lower case in front of the tokenizer.

    :param transformer: the folder of the encoder.
    """
    return bool(_settings(transformer).get("do_lower_case"))


def _modules(folder: Path) -> list[dict[str, Any]]:
    modules = read_json(folder / MODULES)
    if not modules or not isinstance(modules, list) or not all(map(_is_module, modules)):
        raise InputError(f"{folder / MODULES}: expected a list of modules with type and path; save the model again")
    return modules


def _is_module(entry: object) -> bool:
    return isinstance(entry, dict) and "type" in entry and "path" in entry


def _kind(module: Mapping[str, Any]) -> str:
    """Shorten the library's own types, which have moved within it, to the name of the class."""
    package, _, name = str(module["type"]).rpartition(".")
    return name if package.split(".")[0] == "sentence_transformers" else str(module["type"])


def _pooling_mode(described: Mapping[str, Any]) -> str:
    """Read both notations: `pooling_mode: cls`, and the older `pooling_mode_cls_token: true`."""
    mode = described.get("pooling_mode")
    if mode is None:
        on = [name for name, value in described.items() if name.startswith(_OLD_MODE) and value]
        return "+".join(re.sub(r"_tokens?$", "", name.removeprefix(_OLD_MODE)) for name in on) or "mean"
    return mode if isinstance(mode, str) else "+".join(mode)


def _settings(transformer: Path) -> dict[str, Any]:
    """Read sentence_bert_config.json, which was named after other encoders once."""
    files = sorted(transformer.glob("sentence_*_config.json"))
    return read_mapping(files[0]) if files else {}


def _check_output(transformer: Path) -> None:
    """Newer versions can pass on something else than the last layer's token vectors."""
    text = (_settings(transformer).get("modality_config") or {}).get("text") or {}
    output = text.get("method_output_name", "last_hidden_state")
    if output != "last_hidden_state":
        raise InputError(f"{transformer}: passes on {output!r}, only 'last_hidden_state' is supported")


def _default_prompt(file: Path) -> str:
    described = read_mapping(file) if file.is_file() else {}
    name, prompts = described.get("default_prompt_name"), described.get("prompts") or {}
    if name is None:
        return ""
    if name not in prompts:
        raise InputError(f"{file}: default_prompt_name is {name!r}, prompts are {list(prompts)}; correct the file")
    return str(prompts[name])


def _read_head(folders: Sequence[Path]) -> Head:
    """Multiply linear modules out: W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)."""
    *inner, last = folders
    for folder in inner:
        if _activation(folder):
            raise InputError(f"{folder}: tanh between dense modules is not supported; choose another model")
    weight, bias = _read_dense(folders[0])
    for folder in folders[1:]:
        outer, shift = _read_dense(folder)
        if outer.shape[1] != weight.shape[0]:
            raise InputError(f"{folder}: takes {outer.shape[1]} components, gets {weight.shape[0]}; save it again")
        weight, bias = outer @ weight, outer @ bias + shift
    return Head(weight.float(), bias.float(), _activation(last))


def _activation(folder: Path) -> Literal["tanh"] | None:
    named = read_mapping(folder / "config.json").get("activation_function", _TANH)
    if named not in (_IDENTITY, _TANH):
        raise InputError(f"{folder}: activation_function is {named}; only Identity and Tanh are supported")
    return "tanh" if named == _TANH else None


def _read_dense(folder: Path) -> tuple[Tensor, Tensor]:
    """Return W (D, H) and b (D,) of one dense module, as float64."""
    config = read_mapping(folder / "config.json")
    places = {config.get(name, "sentence_embedding") for name in ("module_input_name", "module_output_name")}
    if places - {"sentence_embedding", None} or config.get("use_residual"):
        raise InputError(f"{folder}: only dense modules from sentence vector to sentence vector, without a residual")
    weights = load_weights(folder)
    if "linear.weight" not in weights:
        raise InputError(f"{folder / 'model.safetensors'}: no linear.weight in it; save the model again")
    weight = weights["linear.weight"].double()
    return weight, weights.get("linear.bias", torch.zeros(len(weight))).double()


def read_mapping(file: Path) -> dict[str, Any]:
    """Read a JSON file that holds names and values.

    :raises InputError: when it is missing, or holds something else.
    """
    found = read_json(file)
    if not isinstance(found, dict):
        raise InputError(f"{file}: expected names and values, found {type(found).__name__}; save the model again")
    return found


def weights_file(folder: Path) -> Path:
    """Return a folder's model.safetensors.

    :raises InputError: when there is none; pickles are never read.
    """
    file = folder / "model.safetensors"
    if not file.is_file():
        raise InputError(
            f"{file}: no such file; only safetensors weights are read (never pickles): save the model again with "
            "save_pretrained"
        )
    return file


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read a folder's model.safetensors.

    :raises InputError: when there is none, or it is damaged.
    """
    file = weights_file(folder)
    try:
        return load_file(file)
    except Exception as error:  # safetensors' errors share no base class below Exception
        raise InputError(f"{file}: not a safetensors file ({error}); fetch it again") from error
