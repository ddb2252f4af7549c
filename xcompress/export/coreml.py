"""Write a student as an ML program for Core ML, through coremltools."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path

import numpy as np
import torch

from xcompress.bundle.manifest import OUTPUT
from xcompress.bundle.phone_runtimes import LEAST_TOKENS
from xcompress.export.phone import PhoneModel, example_inputs

SMALL = 2048
"""Matrices of at most this many weights stay in float16; this is coremltools' default, too."""


@contextmanager
def quiet() -> Iterator[None]:
    """Keep coremltools from printing progress bars, and warnings about the versions of other packages."""
    logging.getLogger("coremltools").setLevel(logging.CRITICAL)
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        yield


def write_coreml(model: PhoneModel, package: Path, *, quantize: bool) -> None:
    """Write an .mlpackage folder: one text of any length up to `max_tokens`, pooling and normalisation inside.

    Everything is computed in float16. It needs iOS 16 or macOS 13, the first versions with int8 weights.

    :param model: the student with token embeddings in float.
    :param quantize: int8 weights and token embeddings, with one scale per output channel or row; otherwise float16.
    """
    with quiet(), torch.no_grad():
        import coremltools
        from coremltools.optimize import coreml as optimize

        # torch.export, as coremltools 9.0 fails on sizes in the traces of torch 2.13
        most = model.config.max_tokens
        example = example_inputs(model.config)
        length = torch.export.Dim("length", min=LEAST_TOKENS, max=most)
        program = torch.export.export(model, example, dynamic_shapes=({1: length}, {1: length}))

        shape = (1, coremltools.RangeDim(LEAST_TOKENS, most, default=example[0].shape[1]))
        converted = coremltools.convert(
            program.run_decompositions({}),
            inputs=[coremltools.TensorType(name, shape, np.int32) for name in ("input_ids", "attention_mask")],
            outputs=[coremltools.TensorType(OUTPUT, dtype=np.float32)],
            minimum_deployment_target=coremltools.target.iOS16,
            compute_precision=coremltools.precision.FLOAT16,
            skip_model_load=True,
        )
        if quantize:
            settings = optimize.OpLinearQuantizerConfig(dtype="int8", weight_threshold=SMALL)
            # products and token embeddings; positions and relative biases stay in float16
            config = optimize.OptimizationConfig(
                op_type_configs={"linear": settings}, op_name_configs={"p_word_weight_to_fp16": settings}
            )
            converted = optimize.linear_quantize_weights(converted, config)
        package.parent.mkdir(exist_ok=True)
        converted.save(str(package))
    # coremltools adds it for programs of torch.export; Core ML does not read it
    (package / "executorch_debug_handle_mapping.json").unlink(missing_ok=True)
