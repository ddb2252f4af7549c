"""Export a student as a checkpoint that transformers and sentence-transformers open without xcompress."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

import xcompress
from xcompress import console
from xcompress.bundle.manifest import CARD, list_files, write_manifest
from xcompress.errors import GateError, InputError
from xcompress.export.card import language_entry
from xcompress.export.folder import (
    TRANSFORMERS,
    announce,
    check_replaceable,
    is_current,
    transformers_config,
    write_pipeline,
    write_tokenizer,
)
from xcompress.export.source import Source, SourceOptions, find_source, read_settings
from xcompress.export.text import real_sentences
from xcompress.files import hash_of, prepare_target, whole_folder, write_json, write_text
from xcompress.metrics import unit_length
from xcompress.modeling.architectures import ARCHITECTURES, BERT_NAMES, from_student_names, read_architecture
from xcompress.modeling.bounds import count_matrix_entries
from xcompress.modeling.student import Student, StudentConfig, encode, shallower
from xcompress.packages import install_command
from xcompress.printable import code_span, markdown_text

BOUND = 1e-5
"""Largest absolute difference of any component of a unit vector from the student's."""
_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, sentence-similarity]
{languages}---

# {title}

A sentence encoder, {architecture} with {layers} layers: text in, vectors of {dimension} numbers out.
Made with xcompress {version} from {source}; its unit of {unit} layers is written out {times} times here.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A first sentence.", "Ein zweiter Satz."])
```

`AutoModel` and `AutoTokenizer` of transformers open the folder too; pool their token vectors as `modules.json` says.
{pooler}Texts beyond {tokens} tokens are truncated. {prefix}

Largest difference from the student, in any component of a unit vector: {difference:.1e} (bound {bound:.0e}).
"""
_EMPTY_POOLER = "The pooler is empty: `pooler_output` is all zeros. "


def export_hf(
    source: str | Path | None = None,
    output: Path | None = None,
    *,
    recurrences: int | None = None,
    source_options: SourceOptions | None = None,
    force: bool = False,
) -> Path:
    """Write a student as BertModel, XLMRobertaModel or ModernBertModel, or return the folder if it is up to date.

    :param source: a run, a student, any encoder that `find_source` accepts, or None for the newest finished run.
    :param output: the folder to write; by default `hf` in the run, or `<student>-hf` beside a student, followed by
        `-r<recurrences>` if these are given.
    :param recurrences: how often to apply the recurrent unit; None: as often as the student does.
    :param source_options: how to read an encoder, where its own files do not say.
    :param force: export even if the folder is up to date.
    :returns: the folder.
    :raises InputError: when there is no student, transformers has no such architecture, or nothing can be written.
    :raises GateError: when sentence-transformers computes other vectors from the folder than the student.
    """
    model = find_source(source, source_options)
    target = prepare_target(output or model.default_folder("hf", recurrences))
    made_from = hash_of(["hf", model.fingerprint(), model.run, recurrences, xcompress.__version__])
    if not force and is_current(target, made_from):
        console.say(f"{target}: already exported from {model.name}")
        return target
    student, tokenizer = model.open()
    if recurrences is not None:
        student = shallower(student, recurrences)
    config = student.config
    if config.relative_buckets is not None or config.unusual_layers:
        lacking = f"layers of {config.unusual_layers}" if config.unusual_layers else "relative attention bias"
        raise InputError(
            f"export: BertModel, XLMRobertaModel and ModernBertModel have no {lacking}, as {model.name} has; export "
            "with --format onnx"
        )
    hf_config = checkpoint_config(config)
    unrolled = vars(config) | {"bottleneck": None, "prelude_layers": 0, "unit_layers": config.depth, "coda_layers": 0}
    more = config.depth * config.intermediate_size if config.modernbert else config.hidden_size  # gates, or the pooler
    matrices = count_matrix_entries(unrolled) + config.hidden_size * more
    needed = 4 * matrices + 60_000_000  # the tokenizer and biases
    check_replaceable(target, "model.safetensors", needed, force=force)
    announce(model, target, f" with {config.depth} layers")
    with whole_folder(target) as folder:
        _write_checkpoint(folder, student, tokenizer, model, hf_config, made_from)
    return target


def _write_checkpoint(
    folder: Path,
    student: Student,
    tokenizer: Tokenizer,
    source: Source,
    hf_config: Mapping[str, Any],
    made_from: str,
) -> None:
    """Write weights, configuration, tokenizer and pipeline; compare the vectors; write card and manifest."""
    config = student.config
    save_file(checkpoint_weights(student), folder / "model.safetensors", metadata={"format": "pt"})
    write_json(folder / "config.json", hf_config)
    write_tokenizer(folder, tokenizer, config)
    write_pipeline(folder, config, read_settings(source.student, config.prefix), student.head)
    difference = measure_difference(folder, student, tokenizer)
    if not difference <= BOUND:
        raise GateError(
            f"export: sentence-transformers' vectors differ from the student's by {difference:.2e}, bound {BOUND:.0e}; "
            "install the transformers and sentence-transformers versions of constraints.txt"
        )
    card = _CARD.format(
        languages=language_entry(source.languages),
        title=markdown_text(source.name),
        source=code_span(source.name),
        architecture=hf_config["architectures"][0],
        layers=config.depth,
        dimension=config.dimension,
        version=xcompress.__version__,
        unit=config.unit_layers,
        times=config.recurrences,
        pooler="" if config.modernbert else _EMPTY_POOLER,
        tokens=config.max_tokens,
        prefix=f"Every sentence gets the prefix {code_span(config.prefix)}."
        if config.prefix
        else "No prefix is needed.",
        difference=difference,
        bound=BOUND,
    )
    write_text(folder / CARD, card)
    manifest = {
        "xcompress": xcompress.__version__,
        "source": source.name,
        "made_from": made_from,
        "parity": {"max_abs_difference": difference, "bound": BOUND},
        "files": list_files(folder),
    }
    write_manifest(folder, manifest)


def checkpoint_config(config: StudentConfig) -> dict[str, Any]:
    """Return a config.json for AutoConfig: the unrolled student as BertModel, XLMRobertaModel or ModernBertModel.

    :raises InputError: as `_modernbert_config`.
    """
    if config.modernbert:
        return _modernbert_config(config)
    hf_config = transformers_config(config) | {"type_vocab_size": _token_types(config)}
    if _has_roberta_positions(config):
        hf_config |= {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
        hf_config |= {"max_position_embeddings": config.max_position_embeddings}
    return hf_config


def _modernbert_config(config: StudentConfig) -> dict[str, Any]:
    """Return a config.json for AutoConfig, with the keys of transformers 4, which transformers 5 reads as well.

    :raises InputError: when the layers are not in the order that these keys can say.
    """
    architecture, sizes = ARCHITECTURES["modernbert"], vars(config) | {"unit_layers": config.depth}
    of_layers = dict(zip(dict.fromkeys(config.stack), config.modernbert, strict=True))
    layers = tuple(of_layers[name] for name in config.stack)
    near = next((layer for layer in layers if layer.window), layers[0])
    hf_config = {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "transformers_version": TRANSFORMERS,
        **{key: sizes[name] for name, key in architecture.sizes.items()},
        architecture.activation_key: architecture.activation,
        architecture.epsilon: config.layer_norm_eps,
        "pad_token_id": config.pad_token_id,
        # by default, those of another vocabulary
        **dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")),
        "global_rope_theta": layers[0].rotary_base,
        "local_rope_theta": near.rotary_base,
        "local_attention": 2 * (near.window or 64),
    }
    for every in range(1, config.depth + 1):
        hf_config["global_attn_every_n_layers"] = every
        if read_architecture(hf_config, Path("config.json"))[0].modernbert == layers:
            return hf_config
    raise InputError(
        "export: ModernBertModel has no layers in such an order: its first layer alone has no norm in front of the "
        "attention, and from it on every n-th sees all tokens, the others those in one window; export with --format "
        "onnx"
    )


def checkpoint_weights(student: Student) -> dict[str, Tensor]:
    """Unroll the recurrent unit, fold the bottleneck, and split attention into query, key and value.

    :returns: float32 weights under the names of `checkpoint_config`'s model.
    """
    config, embeddings = student.config, student.embeddings
    outside = ("embeddings.", "final_norm.")
    state: dict[str, Tensor] = {n: weight for n, weight in student.named_parameters() if n.startswith(outside)}
    if embeddings.projection is not None:
        state["embeddings.word.weight"] = embeddings.word.weight @ embeddings.projection.weight.t()
    layers = student.layers()
    for depth, layer in enumerate(config.stack):
        state |= {f"unit.{depth}.{name}": weight for name, weight in layers[layer].named_parameters()}
    if embeddings.position is None:
        weights = from_student_names(state, ARCHITECTURES["modernbert"].names, config.depth)
    else:
        first, width = 0 if _has_roberta_positions(config) else config.position_offset, config.hidden_size
        state["embeddings.position.weight"] = embeddings.position.weight[first:]
        types = torch.zeros(1, width) if embeddings.token_type is None else embeddings.token_type.weight
        types = torch.cat([types, types[:1].expand(_token_types(config) - len(types), -1)])
        state["embeddings.token_type.weight"] = types
        weights = from_student_names(state, BERT_NAMES, config.depth)
        # nobody trained a pooler; zeros show that, while transformers would fill a missing one with random numbers
        weights |= {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    # layers of a recurrent unit share memory, which the file format does not allow
    return {name: weight.detach().float().cpu().clone().contiguous() for name, weight in weights.items()}


def _token_types(config: StudentConfig) -> int:
    """Count the token types of the checkpoint. Optimum exports a BERT only if it knows the types 0 and 1."""
    return max(1 if _has_roberta_positions(config) else 2, config.type_vocab_size)


def _has_roberta_positions(config: StudentConfig) -> bool:
    """Tell whether positions start behind the padding token's id, as in RoBERTa and XLM-R.

    Every other student becomes a BERT, whose position embeddings begin with the first row in use.
    """
    return config.position_offset == config.pad_token_id + 1


def measure_difference(folder: Path, student: Student, tokenizer: Tokenizer) -> float:
    """Compare sentence-transformers' vectors from a folder with the student's, on real sentences.

    :returns: the largest absolute difference between components of their unit vectors.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError(
            f"export: sentence-transformers, which checks the checkpoint, is not installed; {install_command('train')}"
        ) from error
    sentences = real_sentences()[:24]
    texts = [*sentences, " ".join(sentences)]
    with _quiet_libraries(), torch.inference_mode():
        model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, trust_remote_code=False)
        theirs = np.asarray(model.encode(texts, show_progress_bar=False), dtype=np.float32)
    ours = encode(student, tokenizer, texts)
    return float(np.abs(unit_length(theirs) - unit_length(ours)).max())


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Hide the notes and progress bars that transformers shows while it loads a model."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with console.without_loading_bars():
            yield
    finally:
        logging.disable(disabled)
