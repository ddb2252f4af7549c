"""Write a student for LiteRT, once TensorFlow Lite."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xcompress.bundle.manifest import OUTPUT
from xcompress.bundle.phone_runtimes import LITERT_SIGNATURE, native_stderr_hidden
from xcompress.export.phone import PhoneModel
from xcompress.modeling.student import Student

SHORTEST = 16
"""Tokens of the shortest signature."""


def signature_lengths(max_tokens: int) -> Iterator[int]:
    """Yield the numbers of tokens that a file has signatures for: 16, 32, 64, ... and `max_tokens`."""
    length = SHORTEST
    while length < max_tokens:
        yield length
        length *= 2
    yield max_tokens


def write_litert(student: Student, file: Path, *, quantize: bool, fold: bool) -> None:
    """Write a .tflite file: one text of any length up to `max_tokens`, pooling and normalisation inside.

    LiteRT's exporter takes fixed shapes alone. So the file has a signature for each of some numbers of tokens; they
    share the weights, and a text is padded to the next of them. In int8, weights have one scale per output channel and
    the inputs of a product one scale per token, found when it runs.

    :param quantize: int8 weights, products and token embeddings; otherwise float32.
    :param fold: multiply the token embeddings by the projection of the bottleneck.
    """
    model, pad = _NamedOutput(PhoneModel(student, fold=fold, int8_rows=quantize)), student.config.pad_token_id
    # the exporter and the libraries below it write their progress to the terminal
    with native_stderr_hidden(), redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torchao").setLevel(logging.ERROR)
        import litert_torch
        from ai_edge_quantizer import quantizer, recipe

        converter = litert_torch
        for length in signature_lengths(student.config.max_tokens):
            example = {"input_ids": torch.full((1, length), pad), "attention_mask": torch.ones(1, length).long()}
            converter = converter.signature(f"{LITERT_SIGNATURE}{length}", model, sample_kwargs=example)
        content = converter.convert().model_content()
        if quantize:
            tool = quantizer.Quantizer(bytearray(content))
            tool.load_quantization_recipe(recipe.dynamic_wi8_afp32())
            with _equal_scales_once():
                content = tool.quantize().quantized_model
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)


@contextmanager
def _equal_scales_once() -> Iterator[None]:
    """Let the quantizer write equal scales once: it repeats those of all weights in each signature, a tenth of a file.

    In a FlatBuffer, several tables may refer to one.
    """
    from ai_edge_litert.schema_py_generated import QuantizationParametersT

    pack, places = QuantizationParametersT.Pack, dict[tuple[object, ...], int]()

    def pack_once(parameters: Any, builder: object) -> int:  # noqa: ANN401
        numbers = (parameters.scale, parameters.zeroPoint, parameters.min, parameters.max)
        content = tuple(None if part is None else np.asarray(part).tobytes() for part in numbers)
        key = (builder, content, parameters.quantizedDimension)
        if parameters.details is not None:
            return pack(parameters, builder)  # type: ignore[no-any-return]
        if key not in places:
            places[key] = pack(parameters, builder)
        return places[key]

    QuantizationParametersT.Pack = pack_once
    try:
        yield
    finally:
        QuantizationParametersT.Pack = pack


class _NamedOutput(nn.Module):
    """A model whose output has the name that it has in ONNX, too."""

    def __init__(self, model: PhoneModel) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        return {OUTPUT: self.model(input_ids, attention_mask)}
