"""The student as an ONNX graph: the unit unrolled, every weight stored once, pooling and normalisation inside."""

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional

from xcompress.errors import GateError, InputError
from xcompress.student import Layer, Student

OPSET = 20
"""The first one with Gelu as one operator."""
INPUTS = ("input_ids", "attention_mask")
OUTPUTS = ("token_embeddings", "sentence_embedding", "last_hidden_state")
"""The third is the first again: some loaders look the token vectors up by that name."""
_LARGEST = 2_000_000_000
"""Bytes; a protobuf message may hold 2 GiB."""
_HIDDEN = -1e4
"""Added to the score of a padded token; exp(-1e4) is 0 in float32, and the value still fits float16."""


def build(student: Student) -> onnx.ModelProto:
    """Trace the student into a graph with free batch size and length.

    :param student: the model, in evaluation mode.
    :returns: inputs `INPUTS` (N, L) int64, outputs `OUTPUTS` (N, L, D), (N, D), (N, L, D) float32.
    :raises InputError: when the graph would pass what one file may hold.
    :raises GateError: when a shared weight was stored more than once.
    """
    _check_size(student)
    sample = torch.ones(2, 7, dtype=torch.int64)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    with _quiet():
        program = torch.onnx.export(
            Unrolled(student).eval(),
            (sample, sample.clone()),  # one tensor twice would be traced as one input
            dynamo=True,
            opset_version=OPSET,
            input_names=list(INPUTS),
            output_names=list(OUTPUTS[:2]),
            dynamic_shapes=(axes, axes),
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _forget_origins(model)
    _keep_residuals_apart(model)
    _repeat_output(model)
    _check_sharing(model, student)
    return model


class Unrolled(nn.Module):
    """The student's forward pass, written so that the traced graph has no work left that could be done once.

    Weights are stored transposed (a shared weight that is transposed at every use would be folded into one copy per
    use), the attention scale lies in the query weights, the token type in the position table, and the mask is turned
    into scores once.
    """

    def __init__(self, student: Student) -> None:
        super().__init__()
        table = student.embeddings
        self.normalize = student.config.normalize
        self.recurrences = student.config.recurrences
        self.word = _constant(table.word.weight)
        self.projection = None if table.projection is None else _constant(table.projection.weight.t())
        self.position = _constant(table.position.weight[table.offset :] + table.token_type.weight[0])
        self.norm = table.norm
        self.unit = nn.ModuleList(UnrolledLayer(layer) for layer in student.unit if isinstance(layer, Layer))
        self.head_weight = None if student.head is None else _constant(student.head.weight.t())
        self.head_bias = None if student.head is None else _constant(student.head.bias)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map token ids and mask (N, L) to token vectors (N, L, D) and sentence vectors (N, D)."""
        words = functional.embedding(input_ids, self.word)
        if self.projection is not None:
            words = words @ self.projection
        tokens = self.norm(words + self.position[: input_ids.shape[1]])
        kept = attention_mask.to(torch.float32)
        scores = ((1 - kept) * _HIDDEN)[:, None, None, :]
        for _ in range(self.recurrences):
            for layer in self.unit:
                tokens = layer(tokens, scores)
        if self.head_weight is not None and self.head_bias is not None:
            tokens = tokens @ self.head_weight + self.head_bias
        return tokens, self._pool(tokens, kept)

    def _pool(self, tokens: Tensor, kept: Tensor) -> Tensor:
        total = (kept[:, None, :] @ tokens)[:, 0]
        return functional.normalize(total, dim=-1) if self.normalize else total / kept.sum(1, keepdim=True)


class UnrolledLayer(nn.Module):
    """One layer of the unit, its weights transposed and its attention scale folded into the queries."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        width = layer.attention.in_features
        self.heads, self.size = layer.heads, width // layer.heads
        scale = torch.ones(3 * width)
        scale[:width] = 1 / math.sqrt(self.size)
        self.attention = _constant(layer.attention.weight.t() * scale)
        self.attention_bias = _constant(layer.attention.bias * scale)
        self.attention_output = _constant(layer.attention_output.weight.t())
        self.attention_output_bias = _constant(layer.attention_output.bias)
        self.attention_norm = layer.attention_norm
        self.intermediate = _constant(layer.intermediate.weight.t())
        self.intermediate_bias = _constant(layer.intermediate.bias)
        self.output = _constant(layer.output.weight.t())
        self.output_bias = _constant(layer.output.bias)
        self.output_norm = layer.output_norm

    def forward(self, tokens: Tensor, scores: Tensor) -> Tensor:
        """Map token vectors (N, L, H) to (N, L, H); `scores` (N, 1, 1, L) are added to the attention scores."""
        context = self._attend(tokens, scores) @ self.attention_output + self.attention_output_bias
        attended = self.attention_norm(tokens + context)
        expanded = functional.gelu(attended @ self.intermediate + self.intermediate_bias)
        return self.output_norm(attended + (expanded @ self.output + self.output_bias))  # type: ignore[no-any-return]

    def _attend(self, tokens: Tensor, scores: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        joint = (tokens @ self.attention + self.attention_bias).reshape(batch, length, 3 * self.heads, self.size)
        query, key, value = torch.split(joint.transpose(1, 2), self.heads, 1)
        weights = torch.softmax(query @ key.transpose(-1, -2) + scores, -1)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width)


def _check_size(student: Student) -> None:
    size = 4 * sum(weight.numel() for weight in student.parameters())
    if size > _LARGEST:
        raise InputError(
            f"export: the float32 graph would take {size / 1e9:.1f} GB, one ONNX file holds {_LARGEST / 1e9:.1f}; "
            "give the student a bottleneck or trim its vocabulary"
        )


def _constant(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.detach().float().contiguous(), requires_grad=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the tracer's warnings, which are about itself, away from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _forget_origins(model: onnx.ModelProto) -> None:
    """Drop the stack traces the tracer attaches to every node: they hold paths of this machine and weigh 100 kB."""
    graph = model.graph
    for holder in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del holder.metadata_props[:]
        holder.doc_string = ""
    del graph.value_info[:]
    graph.name = "xcompress"


def _keep_residuals_apart(model: onnx.ModelProto) -> None:
    """Write the addition in front of a LayerNormalization as Sum.

    The same arithmetic, but onnxruntime then does not fuse it into SkipLayerNormalization, whose CPU kernel is several
    times slower than the two operators (benchmarks/graph_choices.py measures it).
    """
    makers = {output: node for node in model.graph.node for output in node.output}
    for node in model.graph.node:
        maker = makers.get(node.input[0]) if node.op_type == "LayerNormalization" else None
        if maker is not None and maker.op_type == "Add":
            maker.op_type = "Sum"


def _repeat_output(model: onnx.ModelProto) -> None:
    model.graph.node.append(onnx.helper.make_node("Identity", [OUTPUTS[0]], [OUTPUTS[2]], name=OUTPUTS[2]))
    again = onnx.ValueInfoProto()
    again.CopyFrom(model.graph.output[0])
    again.name = OUTPUTS[2]
    model.graph.output.append(again)


def _check_sharing(model: onnx.ModelProto, student: Student) -> None:
    stored = sum(math.prod(weight.dims) for weight in model.graph.initializer)
    counted = sum(weight.numel() for weight in student.parameters())
    if stored > counted + 1000:
        raise GateError(
            f"export: the graph stores {stored:,} values where the student has {counted:,} parameters, so a shared "
            "weight was copied; install the onnx and torch versions of constraints.txt"
        )
