"""The files around the graphs, so that one folder opens in every loader."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

import xcompress
from xcompress.export.card import model_card
from xcompress.export.graph import INPUTS, OPSET, OUTPUTS
from xcompress.export.machine import describe_machine, library_versions
from xcompress.export.source import Source
from xcompress.export.tokenizer import write_tokenizer
from xcompress.files import sha256_of, write_json, write_text
from xcompress.student import Student, StudentConfig, read_config

FORMAT = 1
"""Version of the manifest's layout."""
_RUN_KEYS = ("recipe_hash", "student_hash", "languages", "finished", "dev")


def write_bundle(
    folder: Path, student: Student, tokenizer: Tokenizer, source: Source, made_from: str, facts: Mapping[str, Any]
) -> None:
    """Write everything but the graphs, which lie in folder/onnx already.

    :param made_from: hash of the student, the options and the version; tells whether a bundle is up to date.
    :param facts: figures for the manifest: parity and what the caller adds.
    """
    write_tokenizer(folder, tokenizer, student.config)
    write_json(folder / "config.json", transformers_config(student.config))
    write_pipeline(folder, student.config)
    manifest = describe(student, source, made_from) | dict(facts)
    write_text(folder / "README.md", model_card(manifest | {"files": list_files(folder)}))
    write_json(folder / "manifest.json", manifest | {"files": list_files(folder)})


def transformers_config(config: StudentConfig) -> dict[str, Any]:
    """Describe the unrolled network as the BERT it is, for AutoConfig."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
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


def write_pipeline(folder: Path, config: StudentConfig) -> None:
    """Write the sentence-transformers pipeline (transformer, mean, normalisation) and the prefix as its prompt."""
    package = "sentence_transformers"
    steps = [("", f"{package}.models.Transformer"), ("1_Pooling", f"{package}.models.Pooling")]
    steps += [("2_Normalize", f"{package}.models.Normalize")] if config.normalize else []
    for path, _ in steps:
        (folder / path).mkdir(exist_ok=True)
    modules = [{"idx": idx, "name": str(idx), "path": path, "type": kind} for idx, (path, kind) in enumerate(steps)]
    write_json(folder / "modules.json", modules)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": config.max_tokens, "do_lower_case": False})
    pooling = {"word_embedding_dimension": config.dimension, "pooling_mode_mean_tokens": True}
    pooling |= {f"pooling_mode_{mode}": False for mode in ("cls_token", "max_tokens", "mean_sqrt_len_tokens")}
    write_json(folder / "1_Pooling" / "config.json", pooling)
    if config.normalize:
        write_json(folder / "2_Normalize" / "config.json", {})
    prompts = {"prompts": {"sentence": config.prefix}, "default_prompt_name": "sentence"} if config.prefix else {}
    write_json(folder / "config_sentence_transformers.json", {**prompts, "similarity_fn_name": "cosine"})


def describe(student: Student, source: Source, made_from: str) -> dict[str, Any]:
    """Put together the manifest, without figures and files."""
    config, whole = student.config, read_config(source.student)
    run = {name: source.run[name] for name in _RUN_KEYS if source.run.get(name) is not None}
    if config.recurrences < whole.recurrences:
        run.pop("dev", None)  # the run scored its student at full depth
    return {
        "format": FORMAT,
        "xcompress": xcompress.__version__,
        "source": source.name,
        "source_hash": source.fingerprint(),
        "made_from": made_from,
        "languages": [],
        **run,
        "opset": OPSET,
        "inputs": list(INPUTS),
        "outputs": list(OUTPUTS),
        "pooling": "mean",
        "normalize": config.normalize,
        "prefix": config.prefix,
        "max_tokens": config.max_tokens,
        "pad_token_id": config.pad_token_id,
        "dimension": config.dimension,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "unit_layers": config.unit_layers,
        "recurrences": config.recurrences,
        "student_recurrences": whole.recurrences,
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
