"""The graph in int8: products with weights per channel, tables row by row."""

import logging
import math
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process

from xcompress.errors import GateError

_SMALL = 1024
"""Matrices with fewer values may stay float32."""


def quantize(source: Path, target: Path) -> None:
    """Write an int8 copy of a float32 graph.

    Products become dynamic int8: weights per output channel, activations per tensor while running. Tables become int8
    rows with one scale each, looked up first and multiplied out after, so that they never exist in float32.

    :raises GateError: when a product or a table was left in float32, or a weight was stored twice.
    """
    prepared = target.with_name("prepared.onnx")
    products = target.with_name("products.onnx")
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # Without this step quantize_dynamic may leave products in float32 without a word.
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        quantize_dynamic(
            str(prepared), str(products), op_types_to_quantize=["MatMul"], per_channel=True, weight_type=QuantType.QInt8
        )
    finally:
        logger.setLevel(before)
    model = onnx.load(products)
    quantize_tables(model)
    _keep_used_domains(model)
    check_quantized(model, onnx.load(source))
    onnx.save(model, target)
    prepared.unlink()
    products.unlink()


def quantize_tables(model: onnx.ModelProto) -> None:
    """Replace every look-up in a large float32 table by look-ups in int8 rows and their scales, in place.

    row = q * s with s = max|row| / 127 and q = round(row / s), per row of the table.
    """
    graph = model.graph
    tables = {weight.name: weight for weight in graph.initializer if _is_large_float(weight)}
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        looked_up = node.op_type in ("Gather", "Slice") and node.input[0] in tables
        graph.node.extend(_dequantized_rows(node) if looked_up else [node])
    used = {name for node in graph.node for name in node.input}
    for name, table in tables.items():
        if name not in used:
            graph.initializer.remove(table)
            graph.initializer.extend(_rows(table))


def _dequantized_rows(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Do the same look-up twice, in the rows and in their scales, and multiply."""
    table, output = node.input[0], node.output[0]
    made = []
    for part in ("rows", "scales"):
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name, copy.input[0], copy.output[0] = f"{output}_{part}", f"{table}_{part}", f"{output}_{part}"
        made.append(copy)
    cast = helper.make_node(
        "Cast", [f"{output}_rows"], [f"{output}_float"], name=f"{output}_float", to=TensorProto.FLOAT
    )
    multiply = helper.make_node("Mul", [f"{output}_float", f"{output}_scales"], [output], name=f"{output}_product")
    return [*made, cast, multiply]


def _rows(table: TensorProto) -> list[TensorProto]:
    values = numpy_helper.to_array(table)
    scales = np.maximum(np.abs(values).max(axis=1, keepdims=True) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    rows = np.rint(values / scales).astype(np.int8)
    return [
        numpy_helper.from_array(rows, f"{table.name}_rows"),
        numpy_helper.from_array(scales, f"{table.name}_scales"),
    ]


def check_quantized(model: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Count what became int8.

    :raises GateError: when the count differs from the weights and products of the original.
    """
    weights = {weight.name for weight in original.graph.initializer if _is_large_float(weight)}
    uses = sum(node.op_type == "MatMul" and node.input[1] in weights for node in original.graph.node)
    products = sum(node.op_type in ("MatMulInteger", "DynamicQuantizeMatMul") for node in model.graph.node)
    left = [weight.name for weight in model.graph.initializer if _is_large_float(weight) and not _is_scales(weight)]
    if left or products < uses:
        raise GateError(
            f"quantisation: {products} of {uses} products became int8 and {len(left)} large weights stayed float32 "
            f"({', '.join(left[:3])}); install the onnxruntime version of constraints.txt"
        )
    stored = _matrix_values(model, TensorProto.INT8)
    allowed = _matrix_values(original, TensorProto.FLOAT)
    if stored > allowed:
        raise GateError(
            f"quantisation: {stored:,} int8 values are stored for {allowed:,} weights, so a shared one was copied; "
            "install the onnxruntime version of constraints.txt"
        )


def _keep_used_domains(model: onnx.ModelProto) -> None:
    """Drop the operator sets that the tools declare and nobody uses: strict loaders refuse unknown ones."""
    used = {node.domain for node in model.graph.node} | {""}
    kept = [opset for opset in model.opset_import if opset.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _matrix_values(model: onnx.ModelProto, kind: int) -> int:
    weights = [weight for weight in model.graph.initializer if weight.data_type == kind and len(weight.dims) == 2]
    return sum(math.prod(weight.dims) for weight in weights)


def _is_scales(weight: TensorProto) -> bool:
    return bool(weight.name.endswith("_scales"))


def _is_large_float(weight: TensorProto) -> bool:
    return weight.data_type == TensorProto.FLOAT and len(weight.dims) == 2 and math.prod(weight.dims) >= _SMALL
