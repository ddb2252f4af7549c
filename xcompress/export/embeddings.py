"""How rows of a table are stored and looked up: in float32, float16, int8 or int4.

Rows are looked up before they are turned into float32, so that the table never exists in float32.
"""

from typing import Literal

import numpy as np
from onnx import TensorProto

from xcompress.export.int4 import Floats, block_of, int4_blocks, packed
from xcompress.export.writer import CONTRIB, Writer

TableKind = Literal["fp32", "fp16", "int8", "int4"]


def look_up(writer: Writer, name: str, table: Floats, ids: str, kind: TableKind) -> str:
    """Write the look-up of rows.

    :param table: (V, W); in int4, rows that cannot be stored so stay int8.
    :param ids: name of the int64 row numbers, of any shape.
    :returns: name of the float32 rows, the shape of ids with W behind it.
    """
    if kind == "fp32":
        return writer.node("Gather", writer.constant(name, table), ids)
    if kind == "fp16":
        rows = writer.node("Gather", writer.constant(name, table.astype(np.float16)), ids)
        return writer.node("Cast", rows, to=TensorProto.FLOAT)
    block = block_of(table.shape[1])
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
    stored = (
        writer.constant(f"{name}.rows", packed(rows[:, 0::2], rows[:, 1::2])),
        ids,
        writer.constant(f"{name}.scales", scales),
    )
    half = writer.node(
        "GatherBlockQuantized", *stored, domain=CONTRIB, gather_axis=0, quantize_axis=1, bits=4, block_size=block
    )
    return writer.node("Cast", half, to=TensorProto.FLOAT)
