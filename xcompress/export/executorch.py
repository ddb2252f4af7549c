"""Write a student for ExecuTorch, with the XNNPACK backend."""

import logging
import warnings
from pathlib import Path

import torch

from xcompress.bundle.phone_runtimes import LEAST_TOKENS, native_stderr_hidden
from xcompress.export.phone import PhoneModel, example_inputs
from xcompress.modeling.student import Student


def write_executorch(student: Student, file: Path, *, quantize: bool, fold: bool) -> None:
    """Write a .pte file: one text of any length up to `max_tokens`, pooling and normalisation inside.

    In int8, weights have one scale per output channel and the inputs of a product one scale per token, found when it
    runs. So a text has the same vector with and without padding.

    :param quantize: int8 weights, products and token embeddings; otherwise float32.
    :param fold: multiply the token embeddings by the projection of the bottleneck.
    """
    model = PhoneModel(student, fold=fold, int8_rows=quantize)
    length = torch.export.Dim("length", min=LEAST_TOKENS, max=student.config.max_tokens)
    # the libraries write to the terminal what they lack, such as CUDA, and what is deprecated
    with native_stderr_hidden(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torchao").setLevel(logging.ERROR)
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        if quantize:
            from torchao.quantization import Int8DynamicActivationIntxWeightConfig, PerAxis, quantize_

            by_channel = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
            quantize_(model, by_channel)
        program = torch.export.export(model, example_inputs(student.config), dynamic_shapes=({1: length}, {1: length}))
        lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(lowered.buffer)
