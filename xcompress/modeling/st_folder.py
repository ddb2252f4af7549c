"""Read a sentence-transformers folder without that library: the modules between a text and its vector."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor

from xcompress.errors import InputError
from xcompress.files import read_mapping
from xcompress.paths import path_inside
from xcompress.sources.model_folder import MODULES, PROMPTS, read_modules, read_prompts

SUPPORTED = ("Transformer", "Pooling", "Dense", "Normalize")
"""The modules that a `Student` can express, in the order that it expects."""
_IDLE = "Dropout"
"""A module that does nothing but in training."""
WEIGHTS = "model.safetensors"
_OPTIONS = ("model_kwargs", "model_args", "config_kwargs", "config_args", "processor_kwargs", "tokenizer_args")
"""Settings of the transformer that become arguments of functions of transformers, under new and old names."""
_EFFECTIVE_OPTIONS = {
    *("add_bos_token", "add_eos_token", "add_prefix_space", "do_lower_case", "is_decoder", "max_position_embeddings"),
    *("model_max_length", "truncation_side"),
}
"""Those of them that change vectors."""
_PADDING = ("padding", "pad_to_multiple_of", "padding_side", "return_tensors")
"""Arguments of a tokenizer that do not change vectors."""
_OTHERS = (".bin", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth")
"""Suffixes of weights that are not read."""
NO_LIMIT = 1_000_000
"""A tokenizer without a limit has a `model_max_length` of this or more."""
LARGEST_HEAD = 10_000_000
"""Weights of a head that several dense modules make: two thin matrices can make a huge one."""
_ORDER = re.compile("Transformer Pooling( Dense)*( Normalize)?")
_OLD_MODE = "pooling_mode_"
_IDENTITY = "torch.nn.modules.linear.Identity"
_TANH = "torch.nn.modules.activation.Tanh"


@dataclass(frozen=True)
class Head:
    """All dense modules as one: x -> activation(W x + b)."""

    weight: Tensor
    """W, (D, H)."""
    bias: Tensor
    """b, (D,)."""
    activation: Literal["tanh"] | None


@dataclass(frozen=True)
class Pipeline:
    """The modules of a folder; the defaults are those of an encoder alone."""

    transformer: Path
    """Folder of the encoder and its tokenizer."""
    pooling: str | None = None
    """None where the model does not say."""
    pools_prompt: bool = True
    """Whether pooling includes the tokens of a prompt."""
    head: Head | None = None
    dimension: int | None = None
    """`truncate_dim`: how many of the first dimensions are kept; None: all."""
    normalize: bool = True
    prefix: str = ""
    """The default prompt."""


def is_pipeline(folder: Path) -> bool:
    """Tell whether a folder was saved by sentence-transformers."""
    return (folder / MODULES).is_file()


def folders_of(folder: Path) -> list[Path]:
    """List the folders of an encoder's files, the transformer's first; without modules.json the folder itself.

    :raises InputError: when modules.json is damaged.
    """
    return [folder / module["path"] for module in read_modules(folder)] if is_pipeline(folder) else [folder]


def read_pipeline(folder: Path) -> Pipeline:
    """Read modules.json and the configuration of each module.

    :raises InputError: when a `Student` cannot express a module, or a file is missing or damaged.
    """
    kinds, kept = [], []
    for module in read_modules(folder):
        # the library's own classes have moved within it: their name is enough
        package, _, name = module["type"].rpartition(".")
        kind = name if package.split(".")[0] == "sentence_transformers" else module["type"]
        if kind not in (*SUPPORTED, _IDLE):
            raise InputError(
                f"{folder / MODULES}: module {module['type']} is not supported, only {', '.join(SUPPORTED)} are; "
                "choose another model"
            )
        if kind != _IDLE:
            kinds.append(kind)
            kept.append(module)
    if not _ORDER.fullmatch(" ".join(kinds)):
        raise InputError(
            f"{folder / MODULES}: modules come as {', '.join(kinds)}, supported is Transformer, Pooling, any number of "
            "Dense, Normalize or none; choose another model"
        )
    transformer = folder / kept[0]["path"]
    _check_transformer(transformer)
    pooling = _read_config(folder, kept[1])
    dense = [folder / module["path"] for module, kind in zip(kept, kinds, strict=True) if kind == "Dense"]
    return Pipeline(
        transformer=transformer,
        pooling=_pooling_mode(pooling, folder / kept[1]["path"]),
        pools_prompt=pooling.get("include_prompt", True),
        head=_read_head(dense) if dense else None,
        dimension=truncated_dimension(folder),
        normalize=kinds[-1] == "Normalize",
        prefix=_read_default_prompt(folder),
    )


def pooling_of(folder: Path) -> str | None:
    """Return the pooling of a sentence-transformers folder (mean, cls, ...), or None where it names none.

    Several modes, whose results are concatenated, are joined by a plus.
    """
    modules = read_modules(folder) if is_pipeline(folder) else []
    for module in modules:
        if module["type"].endswith("Pooling"):
            return _pooling_mode(_read_config(folder, module), folder / module["path"])
    return None


def classifier_of(folder: Path) -> str | None:
    """Return the class of a cross-encoder or another classifier, which gives grades and no vectors; else None."""
    file = folder / "config.json"
    names = read_mapping(file).get("architectures") if file.is_file() else None
    classes = map(str, names if isinstance(names, list) else ())
    return next((name for name in classes if name.endswith("ForSequenceClassification")), None)


def truncated_dimension(folder: Path) -> int | None:
    """Return `truncate_dim`: how many of the first dimensions sentence-transformers keeps, or None for all.

    :raises InputError: when it is no number of dimensions.
    """
    file = folder / PROMPTS
    dimension = read_mapping(file).get("truncate_dim") if file.is_file() else None
    if dimension is not None and (not isinstance(dimension, int) or dimension < 1):
        raise InputError(f"{file}: truncate_dim is {dimension!r}, not a number of dimensions; correct the file")
    return dimension


def longest_text(transformer: Path) -> int | None:
    """Return the maximum number of tokens: the encoder's setting, else the tokenizer's, else None.

    :param transformer: the encoder's folder.
    """
    limit = _transformer_settings(transformer).get("max_seq_length")
    tokenizer = transformer / "tokenizer_config.json"
    if limit is None and tokenizer.is_file():
        saved = read_mapping(tokenizer)
        limit = saved.get("model_max_length", saved.get("max_len"))
    return int(limit) if isinstance(limit, int | float) and 0 < limit < NO_LIMIT else None


def is_lowercased(transformer: Path) -> bool:
    """Tell whether texts are lower-cased before the tokenizer sees them.

    :param transformer: the encoder's folder.
    """
    return bool(_transformer_settings(transformer).get("do_lower_case"))


def weights_files(folder: Path) -> list[Path]:
    """Return the paths of a folder's weights: model.safetensors, or the files that its index names.

    :raises InputError: when one is missing; pickles are never read.
    """
    file, index = folder / WEIGHTS, folder / f"{WEIGHTS}.index.json"
    files = [file]
    if not file.is_file() and index.is_file():
        weights = read_mapping(index).get("weight_map")
        if not isinstance(weights, dict) or not weights:
            raise InputError(f"{index}: weight_map does not say where the weights are; save the model again")
        files = [path_inside(folder, name) for name in sorted(set(map(str, weights.values())))]
    for file in files:
        if not file.is_file():
            others = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in _OTHERS)
            beside = f", only {', '.join(others[:3])}" if others else ""
            raise InputError(
                f"{file}: no such file{beside}; only safetensors weights are read (never pickles): save the model "
                "again with save_pretrained"
            )
    return files


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read a folder's weights.

    :raises InputError: when there are none, or a file is damaged.
    """
    weights: dict[str, Tensor] = {}
    for file in weights_files(folder):
        try:
            weights |= load_file(file)
        except Exception as error:  # safetensors' errors have no common base class below Exception
            raise InputError(f"{file}: not a safetensors file ({error}); fetch it again") from error
    return weights


def _read_config(folder: Path, module: Mapping[str, Any]) -> dict[str, Any]:
    return read_mapping(path_inside(folder, PurePosixPath(module["path"], "config.json").as_posix()))


def _transformer_settings(transformer: Path) -> dict[str, Any]:
    file = _settings_file(transformer)
    return read_mapping(file) if file else {}


def _settings_file(transformer: Path) -> Path | None:
    """Find sentence_bert_config.json; older versions name it after the encoder, as in sentence_roberta_config.json."""
    return min(transformer.glob("sentence_*_config.json"), default=None)


def _check_transformer(folder: Path) -> None:
    """Refuse settings of a transformer that change its vectors and are not read here.

    :raises InputError: when there are some.
    """
    file, settings = _settings_file(folder), _transformer_settings(folder)
    task = settings.get("transformer_task", "feature-extraction")
    # newer versions can pass on other outputs than the token vectors of the last layer
    text = _mapping(_mapping(settings.get("modality_config")).get("text"))
    output = text.get("method_output_name", "last_hidden_state")
    if task != "feature-extraction" or output != "last_hidden_state":
        raise InputError(
            f"{file}: outputs {output!r} of the task {task!r}, only 'last_hidden_state' of 'feature-extraction' is "
            "supported; choose another model"
        )
    unread = [name for part in _OPTIONS for name in _mapping(settings.get(part)) if name in _EFFECTIVE_OPTIONS]
    processing = _mapping(settings.get("processing_kwargs"))
    unread += [name for part in ("common", "text") for name in _mapping(processing.get(part)) if name not in _PADDING]
    if unread:
        raise InputError(
            f"{file}: sets {', '.join(unread)} in arguments of transformers, which are not read; remove them there, or "
            "choose another model"
        )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _pooling_mode(config: Mapping[str, Any], folder: Path) -> str:
    """Read both notations: `pooling_mode: cls`, and the older `pooling_mode_cls_token: true`."""
    mode = config.get("pooling_mode")
    if mode is None:
        modes = [name for name, value in config.items() if name.startswith(_OLD_MODE) and value]
        return "+".join(re.sub(r"_tokens?$", "", name.removeprefix(_OLD_MODE)) for name in modes) or "mean"
    modes = mode if isinstance(mode, list) else [mode]
    if not all(isinstance(name, str) for name in modes):
        raise InputError(f"{folder}: pooling_mode is {mode!r}, not a name or a list of names; save the model again")
    return "+".join(modes)


def _read_default_prompt(folder: Path) -> str:
    file, prompts = folder / PROMPTS, read_prompts(folder)
    name = read_mapping(file).get("default_prompt_name") if file.is_file() else None
    if name is None:
        return ""
    if not isinstance(name, str) or name not in prompts:
        raise InputError(f"{file}: default_prompt_name is {name!r}, prompts are {list(prompts)}; correct the file")
    return prompts[name]


def _read_head(folders: Sequence[Path]) -> Head:
    """Read dense modules and multiply them: W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)."""
    for folder in folders[:-1]:
        if _read_activation(folder):
            raise InputError(f"{folder}: tanh between dense modules is not supported; choose another model")
    weight, bias = _read_dense(folders[0])
    for folder in folders[1:]:
        next_weight, next_bias = _read_dense(folder)
        if next_weight.shape[1] != weight.shape[0]:
            raise InputError(
                f"{folder}: expects {next_weight.shape[1]} dimensions, gets {weight.shape[0]}; save it again"
            )
        rows, columns = len(next_weight), weight.shape[1]
        if rows * columns > LARGEST_HEAD:
            raise InputError(
                f"{folder}: makes a head of {rows:,} x {columns:,} weights, over {LARGEST_HEAD:,}; choose another model"
            )
        weight, bias = next_weight @ weight, next_weight @ bias + next_bias
    return Head(weight.float(), bias.float(), _read_activation(folders[-1]))


def _read_activation(folder: Path) -> Literal["tanh"] | None:
    activation = read_mapping(folder / "config.json").get("activation_function", _TANH)
    if activation not in (_IDENTITY, _TANH):
        raise InputError(
            f"{folder}: activation_function is {activation}; only Identity and Tanh are supported; choose another model"
        )
    return "tanh" if activation == _TANH else None


def _read_dense(folder: Path) -> tuple[Tensor, Tensor]:
    """Return W (D, H) and b (D,) of a dense module, as float64."""
    config = read_mapping(folder / "config.json")
    features = [config.get(name) for name in ("module_input_name", "module_output_name")]
    if any(name not in ("sentence_embedding", None) for name in features) or config.get("use_residual"):
        raise InputError(
            f"{folder}: only dense modules from sentence vector to sentence vector, without a residual, are "
            "supported; choose another model"
        )
    weights = load_weights(folder)
    if "linear.weight" not in weights:
        raise InputError(f"{folder / 'model.safetensors'}: no linear.weight in it; save the model again")
    weight, bias = weights["linear.weight"], weights.get("linear.bias")
    # A weight without columns takes no bytes, however many rows it claims.
    if weight.ndim != 2 or not weight.numel() or (bias is not None and bias.shape != weight.shape[:1]):
        sizes = tuple(weight.shape), "none" if bias is None else tuple(bias.shape)
        raise InputError(
            f"{folder / 'model.safetensors'}: linear.weight {sizes[0]} and linear.bias {sizes[1]} do not fit together; "
            "save the model again"
        )
    return weight.double(), torch.zeros(len(weight)).double() if bias is None else bias.double()
