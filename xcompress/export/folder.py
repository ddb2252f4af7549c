"""The folder of an export: whether it is current or may be replaced, and the files around the graphs."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn

import xcompress
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import CARD, FORMAT, HASH, MANIFEST, content_hash, is_export, list_files, write_manifest
from xcompress.console import say, warn
from xcompress.errors import InputError
from xcompress.export.card import checks_of, differences_of, model_card, sizes_of
from xcompress.export.graph import INPUTS, OUTPUTS
from xcompress.export.source import Source, read_settings
from xcompress.export.writer import OPSET
from xcompress.files import free_bytes, megabytes, read_mapping, sha256_of, write_json, write_text
from xcompress.machine import installed_versions, read_processor
from xcompress.modeling.student import Student, StudentConfig
from xcompress.sources.model_folder import PROMPTS
from xcompress.tokenizer_file import MASK_TOKENS, tokenizer_to_json

TRANSFORMERS = "4.57.0"
"""Oldest transformers that the files are written for. config.json names it, as transformers 4.57 otherwise takes the
tokenizer of a large vocabulary for one that it has to repair, or warns of tokenizers saved by older versions."""
_RUN_KEYS = ("recipe_hash", "student_hash", "finished", "dev")
"""Entries of the run's manifest that the bundle's manifest repeats."""
_CONFIG_KEYS = (
    *("pooling", "normalize", "prefix", "max_tokens", "pad_token_id", "dimension", "vocab_size", "hidden_size"),
    *("prelude_layers", "unit_layers", "coda_layers", "recurrences"),
)
"""Entries of the bundle's manifest that are the student's own, under the same names."""
_MODULES = "sentence_transformers.models"
_POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}
_ACTIVATIONS = {None: "torch.nn.modules.linear.Identity", "tanh": "torch.nn.modules.activation.Tanh"}
_INT8_FLAGS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
"""Instruction sets that decide the speed of int8."""
_LIBRARIES = ("torch", "onnx", "onnxruntime", "tokenizers", "numpy")


def write_bundle(
    folder: Path, student: Student, tokenizer: Tokenizer, source: Source, made_from: str, facts: Mapping[str, Any]
) -> None:
    """Write everything but the graphs, which are in folder/onnx already.

    :param made_from: hash of the student, the options and the version; tells whether a bundle is up to date.
    :param facts: measurements and other entries for the manifest.
    """
    write_tokenizer(folder, tokenizer, student.config)
    write_json(folder / "config.json", transformers_config(student.config))
    settings = read_settings(source.student, student.config.prefix)
    write_pipeline(folder, student.config, settings, student.head if student.config.head_activation else None)
    manifest = describe_model(student, source, made_from) | settings | dict(facts)
    described = manifest | {"files": list_files(folder)}
    sizes = [f"{name}: {megabytes(size)}" for name, size in sizes_of(described).items()]
    for line in (*differences_of(manifest), *sizes, *checks_of(manifest)):
        say(line)
    write_text(folder / CARD, model_card(described))
    write_manifest(folder, manifest | {"files": list_files(folder)})


def write_tokenizer(folder: Path, tokenizer: Tokenizer, config: StudentConfig) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json."""
    special = special_tokens(tokenizer, config.pad_token_id)
    # some clients take the last row for the last token; rotary positions allow for padding in front
    side = "left" if config.pooling == "lasttoken" and config.rotary else "right"
    tokenizer.enable_truncation(config.max_tokens)
    tokenizer.enable_padding(direction=side, pad_id=config.pad_token_id, pad_token=special["pad_token"])
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(folder / "special_tokens_map.json", special)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.max_tokens,
        "model_input_names": ["input_ids", "attention_mask"],
        "padding_side": side,
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        **special,
    }
    if getattr(tokenizer.pre_tokenizer, "add_prefix_space", False):  # which transformers turns off by default
        tokenizer_config["add_prefix_space"] = True
    write_json(folder / "tokenizer_config.json", tokenizer_config)


def special_tokens(tokenizer: Tokenizer, pad_token_id: int) -> dict[str, str]:
    """Name the special tokens as transformers does: padding, unknown, mask, and those around a sentence.

    Padding of the tokenizer is turned off.
    """
    tokenizer.no_padding()
    model = tokenizer_to_json(tokenizer)["model"]
    unknown = model.get("unk_token")
    if "unk_token" not in model and model.get("unk_id") is not None:  # Unigram
        unknown = model["vocab"][model["unk_id"]][0]
    tokens = {"pad_token": tokenizer.id_to_token(pad_token_id) or "<pad>", "unk_token": unknown}
    around = [token for token in tokenizer.encode("").tokens if token is not None]
    if len(around) >= 2:
        first, last = around[0], around[-1]
        tokens |= {"cls_token": first, "bos_token": first, "sep_token": last, "eos_token": last}
    tokens["mask_token"] = next((token for token in MASK_TOKENS if tokenizer.token_to_id(token) is not None), None)
    return {name: token for name, token in tokens.items() if token is not None}


def transformers_config(config: StudentConfig) -> dict[str, Any]:
    """Return a config.json for AutoConfig: the unrolled student as the BERT that it is, or is closest to."""
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "transformers_version": TRANSFORMERS,
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
        **({"num_key_value_heads": config.key_value_heads} if config.key_value_heads else {}),
        **({"head_dim": config.head_width} if config.head_width else {}),
    }


def write_pipeline(
    folder: Path, config: StudentConfig, settings: Mapping[str, Any], head: nn.Linear | None = None
) -> None:
    """Write the files of a sentence-transformers pipeline: what follows the token vectors, and the prompts.

    :param settings: from `read_settings`.
    :param head: the head, if it is applied after pooling and is not part of the token vectors.
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
    flags = {flag: mode == config.pooling for mode, flag in _POOLING_FLAGS.items()}
    flags |= {"pooling_mode_lasttoken": True} if config.pooling == "lasttoken" else {}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **flags})
    if head:
        sizes = {"in_features": head.in_features, "out_features": head.out_features, "bias": True}
        activation = {"activation_function": _ACTIVATIONS[config.head_activation]}
        write_json(folder / "2_Dense" / "config.json", {**sizes, **activation})
        weights = {f"linear.{name}": weight.detach().float().contiguous() for name, weight in head.named_parameters()}
        save_file(weights, folder / "2_Dense" / "model.safetensors", metadata={"format": "pt"})
    if config.normalize:
        write_json(folder / paths[-1] / "config.json", {})
    write_json(folder / PROMPTS, settings)


def describe_model(student: Student, source: Source, made_from: str) -> dict[str, Any]:
    """Return the manifest without measurements and files."""
    config, trained, processor = student.config, source.recurrences, read_processor()
    run = {name: source.run[name] for name in _RUN_KEYS if source.run.get(name) is not None}
    recorded = run.get("student_hash")
    is_of_run = recorded is None or recorded == sha256_of(source.student / "model.safetensors")
    if not is_of_run:
        warn(f"{source.name}: the weights are not those that the run trained; its dev scores are left out")
        run.pop("student_hash")
    if config.recurrences < trained or not is_of_run:
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
        **{name: getattr(config, name) for name in _CONFIG_KEYS},
        "student_recurrences": trained,
        "recurrence": "unrolled",
        "bottleneck": {"width": config.bottleneck, "form": "factored"} if config.bottleneck else None,
        "gated": config.gated,
        **({"modernbert": [asdict(layer) for layer in config.modernbert]} if config.modernbert else {}),
        "parameters": sum(student.sizes().values()),
        "machine": {
            "processor": processor.model,
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "cpu_flags": [flag for flag in _INT8_FLAGS if flag in processor.flags],
            "system": platform.system(),
        },
        # unknown where only a library's source is on the path
        "libraries": {
            "python": platform.python_version(),
            **dict.fromkeys(_LIBRARIES, "unknown"),
            **installed_versions(_LIBRARIES),
        },
    }


def is_current(bundle: Path, made_from: str) -> bool:
    """Tell whether an export was made from the same inputs, and its manifest and files are as they were written."""
    try:
        manifest = read_mapping(bundle / MANIFEST)
        if manifest.get("made_from") != made_from or manifest.get(HASH) != content_hash(manifest):
            return False
        if not isinstance(manifest.get("files"), dict):
            return False
        check_bundle(bundle, manifest, everything=True)
    except InputError:
        return False
    return True


def check_replaceable(target: Path, part: str, needed: int, *, force: bool) -> None:
    """Check that an export may replace a folder, and that it fits on the disk.

    :param part: a file or folder that earlier exports have; with it, a folder whose manifest is damaged is one, too.
    :param needed: what the export takes, in bytes.
    :param force: replace a damaged export, too.
    :raises InputError: when the folder is something else, or the disk is too small.
    """
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder for the export")
    if (target / part).exists() and _is_damaged(target / MANIFEST):
        if not force:
            raise InputError(f"{target / MANIFEST}: is damaged; add --force (force=True) to replace the whole folder")
    elif target.is_dir() and any(target.iterdir()) and not is_export(target):
        raise InputError(
            f"{target}: is not empty and not an export; name another folder, as this one would be replaced"
        )
    free = free_bytes(target)
    if free < needed:
        raise InputError(
            f"{target}: {megabytes(free)} free, the export needs {megabytes(needed)}; "
            "free space or choose another folder"
        )


def announce(source: Source, target: Path, depth: str) -> None:
    """Say what is exported to where, and warn of a run that is not finished.

    :param depth: the number of layers or recurrences in words; may be empty.
    """
    if source.run and not source.run.get("finished"):
        warn(f"{source.name}: the run is not finished; exporting its student as it is now")
    of = "" if str(source.student) == source.name else f" ({source.student})"
    say(f"exporting {source.name}{of}{depth} to {target}")


def _is_damaged(manifest: Path) -> bool:
    """Tell whether a manifest is there, but is no JSON or no mapping."""
    if not manifest.is_file():
        return False
    try:
        read_mapping(manifest)
    except InputError:
        return True
    return False
