"""The student as the standard network it is once unrolled: BertModel or XLMRobertaModel, configuration and weights."""

from typing import Any

import torch
from torch import Tensor, nn

from xcompress.errors import InputError
from xcompress.export.bundle import transformers_config
from xcompress.student import Layer, Student, StudentConfig

TRANSFORMERS = "4.57.0"
"""Oldest transformers that the files are written for. Named in config.json, as transformers 4.57 otherwise takes the
tokenizer of a large vocabulary for one that it has to repair."""
_PARTS = {
    "attention.output.dense": "attention_output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "intermediate",
    "output.dense": "output",
    "output.LayerNorm": "output_norm",
}
"""Names inside a layer: theirs, ours."""


def check_expressible(config: StudentConfig) -> None:
    """Refuse a student that neither BertModel nor XLMRobertaModel can be.

    :raises InputError: naming what they lack.
    """
    if config.relative_buckets is not None:
        raise InputError(
            f"export: relative_buckets is {config.relative_buckets}; BertModel and XLMRobertaModel have no relative "
            "attention bias, export with --format onnx"
        )


def checkpoint_config(config: StudentConfig) -> dict[str, Any]:
    """Describe the unrolled network for AutoConfig."""
    described = transformers_config(config) | {
        "type_vocab_size": max(1, config.type_vocab_size),
        "transformers_version": TRANSFORMERS,
    }
    if _counts_like_roberta(config):
        described |= {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta"}
        described |= {"max_position_embeddings": config.max_position_embeddings}
    return described


def checkpoint_weights(student: Student) -> dict[str, Tensor]:
    """Unroll the unit, fold the bottleneck and split the joint attention product.

    :returns: float32 weights under the names of BertModel and XLMRobertaModel, which are the same.
    """
    weights = _embeddings(student)
    for depth in range(student.config.depth):
        layer = student.unit[depth % student.config.unit_layers]
        assert isinstance(layer, Layer)
        weights |= {f"encoder.layer.{depth}.{name}": weight for name, weight in _layer(layer).items()}
    width = student.config.hidden_size
    # nobody trained a pooler; one of zeros shows that, where a missing one would be filled with random numbers
    weights |= {"pooler.dense.weight": torch.zeros(width, width), "pooler.dense.bias": torch.zeros(width)}
    # layers of a recurrent unit share memory, which the file format does not allow
    return {name: weight.detach().float().cpu().clone().contiguous() for name, weight in weights.items()}


def weight_values(config: StudentConfig) -> int:
    """Count the numbers that `checkpoint_weights` returns, without making them."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size + config.max_position_embeddings + max(1, config.type_vocab_size) + 2
    layer = 4 * (width + 1) * width + 2 * width * inner + inner + 5 * width
    return rows * width + config.depth * layer + (width + 1) * width


def _counts_like_roberta(config: StudentConfig) -> bool:
    """Tell whether positions start behind the padding token's index, as RoBERTa and XLM-R count them.

    Every other student is a BERT whose position table begins with the first row in use.
    """
    return config.position_offset == config.pad_token_id + 1


def _embeddings(student: Student) -> dict[str, Tensor]:
    table, config = student.embeddings, student.config
    words = table.word.weight
    if table.projection is not None:
        words = words @ table.projection.weight.t()
    first = 0 if _counts_like_roberta(config) else config.position_offset
    types = torch.zeros(1, config.hidden_size) if table.token_type is None else table.token_type.weight
    return {
        "embeddings.word_embeddings.weight": words,
        "embeddings.position_embeddings.weight": table.position.weight[first:],
        "embeddings.token_type_embeddings.weight": types,
        **_named("embeddings.LayerNorm", table.norm),
    }


def _layer(layer: Layer) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for kind, joint in layer.attention.named_parameters():
        for name, part in zip(("query", "key", "value"), joint.chunk(3), strict=True):
            weights[f"attention.self.{name}.{kind}"] = part
    for theirs, ours in _PARTS.items():
        weights |= _named(theirs, layer.get_submodule(ours))
    return weights


def _named(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{kind}": weight for kind, weight in module.named_parameters()}
