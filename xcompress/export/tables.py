"""How rows of a table are stored and looked up: in float32, float16, int8 or int4.

Rows are looked up before they are turned into float32, so that the table never exists in float32.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from xcompress.export.writer import CONTRIB, Writer

TableKind = Literal["fp32", "fp16", "int8", "int4"]
BLOCKS = (32, 16)
"""How many components of an int4 row share a scale: the first number that divides its width."""

Floats = NDArray[np.float32]


def look_up(writer: Writer, name: str, table: Floats, ids: str, kind: TableKind) -> str:
    """Write the look-up of rows.

    :param table: (V, W); in int4, rows whose width none of `BLOCKS` divides stay int8.
    :param ids: name of the int64 row numbers, of any shape.
    :returns: name of the float32 rows, the shape of ids with W behind it.
    """
    if kind == "fp32":
        return writer.node("Gather", writer.constant(name, table), ids)
    if kind == "fp16":
        rows = writer.node("Gather", writer.constant(name, table.astype(np.float16)), ids)
        return writer.node("Cast", rows, to=TensorProto.FLOAT)
    block = next((size for size in BLOCKS if table.shape[1] % size == 0), None)
    if kind == "int8" or block is None:
        return _int8(writer, name, table, ids)
    return _int4(writer, name, table, ids, block)


def _int8(writer: Writer, name: str, table: Floats, ids: str) -> str:
    """Store row = q s, s = max|row| / 127 and q = round(row / s), with one s per row."""
    scales = np.maximum(np.abs(table).max(1, keepdims=True) / 127, np.finfo(np.float32).tiny).astype(np.float32)
    rows = writer.node("Gather", writer.constant(f"{name}.rows", np.rint(table / scales).astype(np.int8)), ids)
    found = writer.node("Gather", writer.constant(f"{name}.scales", scales), ids)
    return writer.node("Mul", writer.node("Cast", rows, to=TensorProto.FLOAT), found)


def _int4(writer: Writer, name: str, table: Floats, ids: str, block: int) -> str:
    """Store q = round(row / s) in -8 ... 7 with one float16 s per block of a row; s has the sign that uses -8."""
    rows, scales = int4_blocks(table, block)
    stored = (writer.constant(f"{name}.rows", _packed(rows)), ids, writer.constant(f"{name}.scales", scales))
    half = writer.node(
        "GatherBlockQuantized", *stored, domain=CONTRIB, gather_axis=0, quantize_axis=1, bits=4, block_size=block
    )
    return writer.node("Cast", half, to=TensorProto.FLOAT)


def int4_blocks(table: Floats, block: int) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return values (V, W) in -8 ... 7 and scales (V, W / block); value times scale is about the table."""
    blocks = table.reshape(len(table), -1, block)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], -1)
    scales = (extreme / -8).astype(np.float16)
    steps = np.where(scales == 0, 1, scales).astype(np.float32)
    values = np.clip(np.rint(blocks / steps), -8, 7).astype(np.int8)
    return values.reshape(table.shape), scales[..., 0]


def _packed(values: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Return values (V, W) in -8 ... 7 as bytes (V, W / 2) of two values + 8, the first one in the low half."""
    raised = (values + 8).astype(np.uint8)
    return np.bitwise_or(raised[:, 0::2], np.left_shift(raised[:, 1::2], 4), dtype=np.uint8)
