"""The graphs of a bundle: which there are, how they are written, and where they lie."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx
import onnxruntime

from xcompress.choices import Bottleneck, Recurrence, Table
from xcompress.export.graph import Form, build
from xcompress.export.products import Level, Products, Range
from xcompress.student import Student, StudentConfig

GRAPHS = {
    "fp32": "onnx/model.onnx",
    "fp16": "onnx/model_fp16.onnx",
    "int8": "onnx/model_quantized.onnx",
    "int4": "onnx/model_q4.onnx",
}
"""Named as transformers.js and Optimum look for them."""
_LARGE = 1024
"""Bytes; smaller weights stay in the graph when the others lie outside."""
_WORTH_FOLDING = 1_000_000
"""Bytes of float32 that folding may add to save one small product."""


def form_of(
    precision: str, recurrence: Recurrence, fold: bool, ranges: Mapping[str, Range], table: Table = "auto"
) -> Form:
    """Return the form of a graph in some precision.

    :param table: how the word table is stored beside products in int8.
    """
    if precision == "fp32":
        return Form(recurrence, fold)
    if precision == "fp16":
        return Form(recurrence, fold, "fp16", Products(halved=True))
    bits: Literal[4, 8] = 4 if precision == "int4" else 8
    kind: Literal["int4", "int8"] = table if table != "auto" else "int4" if bits == 4 else "int8"
    return Form(recurrence, fold, kind, Products(None, ranges=ranges, bits=bits))


def with_levels(form: Form, levels: Mapping[str, Level]) -> Form:
    """Return the form with some products at other levels."""
    return replace(form, products=replace(form.products, levels=levels))


def folds(config: StudentConfig, asked: Bottleneck) -> tuple[bool, str]:
    """Decide whether to multiply out the bottleneck, and say why."""
    if config.bottleneck is None:
        return False, "no bottleneck"
    added = 4 * (config.vocab_size * (config.hidden_size - config.bottleneck) - config.bottleneck * config.hidden_size)
    cost = f"folding adds {added / 1e6:.1f} MB in float32 and saves one product of {1 + 4 * config.depth}"
    if asked != "auto":
        return asked == "fold", f"asked for; {cost}"
    return added < _WORTH_FOLDING, cost


def write_graph(student: Student, form: Form, file: Path, *, external: bool) -> None:
    """Write a student's graph.

    :param external: put weights into a file beside it, which runtimes map into memory.
    """
    file.parent.mkdir(exist_ok=True)
    if not external:
        onnx.save(build(student, form), file)
        return
    onnx.save(
        build(student, form),
        file,
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=f"{file.name}_data",
        size_threshold=_LARGE,
    )


def write_ort(graph: Path) -> Path:
    """Write a graph in onnxruntime's own format beside it, optimised for any CPU of any kind.

    :returns: the file.
    """
    file = graph.with_suffix(".ort")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(file)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return file
