"""The files around the graphs, so that one folder opens in every loader."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

import xcompress
from xcompress.export.card import model_card
from xcompress.export.graph import INPUTS, OUTPUTS
from xcompress.export.machine import describe_machine, library_versions
from xcompress.export.source import Source
from xcompress.export.writer import OPSET
from xcompress.files import sha256_of, write_json, write_text
from xcompress.modeling.student import Student, StudentConfig

_MASKS = ("<mask>", "[MASK]")


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: StudentConfig) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    special = special_tokens(tokenizer, config.pad_token_id)
    tokenizer.enable_truncation(config.max_tokens)
    tokenizer.enable_padding(pad_id=config.pad_token_id, pad_token=special["pad_token"])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "special_tokens_map.json", special)
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **special,
    }
    write_json(folder / "tokenizer_config.json", described)


def special_tokens(tokenizer: Tokenizer, pad_token_id: int) -> dict[str, str]:
    """Name the special tokens as the tokenizer itself uses them: pad, unk, and those it puts around a sentence."""
    described = json.loads(tokenizer.to_str())
    named = {"pad_token": tokenizer.id_to_token(pad_token_id) or "<pad>", "unk_token": _unknown(described["model"])}
    around = [token for token in tokenizer.encode("").tokens if token is not None]
    if len(around) >= 2:
        first, last = around[0], around[-1]
        named |= {"cls_token": first, "bos_token": first, "sep_token": last, "eos_token": last}
    mask = next((token for token in _MASKS if tokenizer.token_to_id(token) is not None), None)
    return {name: token for name, token in {**named, "mask_token": mask}.items() if token is not None}


def _unknown(model: dict[str, Any]) -> str | None:
    if "unk_token" in model:
        return model["unk_token"]  # type: ignore[no-any-return]
    number = model.get("unk_id")
    return None if number is None else model["vocab"][number][0]


FORMAT = 1
"""Version of the manifest's layout."""
_RUN_KEYS = ("recipe_hash", "student_hash", "finished", "dev")
_MODULES = "sentence_transformers.models"
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
_ACTIVATIONS = {None: "torch.nn.modules.linear.Identity", "tanh": "torch.nn.modules.activation.Tanh"}


def write_bundle(
    folder: Path, student: Student, tokenizer: Tokenizer, source: Source, made_from: str, facts: Mapping[str, Any]
) -> None:
    """Write everything but the graphs, which lie in folder/onnx already.

    :param made_from: hash of the student, the options and the version; tells whether a bundle is up to date.
    :param facts: figures for the manifest: parity and what the caller adds.
    """
    write_tokenizer(folder, tokenizer, student.config)
    write_json(folder / "config.json", transformers_config(student.config))
    write_pipeline(folder, student.config, student.head if student.config.head_activation else None)
    manifest = describe(student, source, made_from) | dict(facts)
    write_text(folder / "README.md", model_card(manifest | {"files": list_files(folder)}))
    write_json(folder / "manifest.json", manifest | {"files": list_files(folder)})


def transformers_config(config: StudentConfig) -> dict[str, Any]:
    """Describe the unrolled network to AutoConfig as the BERT it is, or is closest to: loaders look for the sizes."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "transformers_version": "4.57.0",  # without one, transformers warns of tokenizers saved by older versions
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": "gelu",
        "max_position_embeddings": config.max_position_embeddings - config.position_offset,
        "type_vocab_size": config.type_vocab_size,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.pad_token_id,
        "position_embedding_type": "absolute",
    }


def write_pipeline(folder: Path, config: StudentConfig, head: nn.Linear | None = None) -> None:
    """Write what follows the token vectors as sentence-transformers' modules, and the prefix as the default prompt.

    :param head: the head, where it is not in the token vectors already; it then acts behind the pooling.
    """
    kinds = ["Transformer", "Pooling", *(["Dense"] if head else []), *(["Normalize"] if config.normalize else [])]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    for path in paths:
        (folder / path).mkdir(exist_ok=True)
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"{_MODULES}.{kind}"}
        for idx, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": config.max_tokens, "do_lower_case": False})
    width = head.in_features if head else config.dimension
    flags = {flag: mode == config.pooling for mode, flag in _FLAGS.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **flags})
    if head:
        _write_dense(folder / "2_Dense", head, _ACTIVATIONS[config.head_activation])
    if config.normalize:
        write_json(folder / paths[-1] / "config.json", {})
    prompts = {"prompts": {"sentence": config.prefix}, "default_prompt_name": "sentence"} if config.prefix else {}
    write_json(folder / "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine"})


def _write_dense(folder: Path, head: nn.Linear, activation: str) -> None:
    sizes = {"in_features": head.in_features, "out_features": head.out_features, "bias": True}
    write_json(folder / "config.json", {**sizes, "activation_function": activation})
    weights = {f"linear.{name}": weight.detach().float().contiguous() for name, weight in head.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def describe(student: Student, source: Source, made_from: str) -> dict[str, Any]:
    """Put together the manifest, without figures and files."""
    config, trained = student.config, source.recurrences
    run = {name: source.run[name] for name in _RUN_KEYS if source.run.get(name) is not None}
    if config.recurrences < trained:
        run.pop("dev", None)  # the run scored its student at full depth
    return {
        "format": FORMAT,
        "xcompress": xcompress.__version__,
        "source": source.name,
        "source_hash": source.fingerprint(),
        "made_from": made_from,
        "languages": source.languages,
        **run,
        "opset": OPSET,
        "inputs": list(INPUTS),
        "outputs": list(OUTPUTS),
        "pooling": config.pooling,
        "normalize": config.normalize,
        "prefix": config.prefix,
        "max_tokens": config.max_tokens,
        "pad_token_id": config.pad_token_id,
        "dimension": config.dimension,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "unit_layers": config.unit_layers,
        "recurrences": config.recurrences,
        "student_recurrences": trained,
        "recurrence": "unrolled",
        "bottleneck": {"width": config.bottleneck, "form": "factored"} if config.bottleneck else None,
        "parameters": sum(student.sizes().values()),
        "machine": describe_machine(),
        "libraries": library_versions(),
    }


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Map every file's path inside the folder to its size in bytes and its SHA-256."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }
