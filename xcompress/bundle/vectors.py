"""Arrays of sentence vectors that a caller hands in: checked, scaled to length 1, and read from bits."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.errors import InputError
from xcompress.metrics import Vectors, unit_length
from xcompress.printable import counted


def as_floats(name: str, vectors: object) -> NDArray[np.floating[Any]]:
    """Return an array of numbers in float32, or in its own precision if that is higher.

    :raises InputError: when it is none; lists of different lengths are none.
    """
    rows = _as_numbers(name, vectors)
    return rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)


def unit_rows(name: str, vectors: object) -> Vectors:
    """Scale vectors, (n, D) or (D,), to length 1, as rows of a matrix (n, D); leave zeros as they are.

    :raises InputError: when they are no array of numbers, or one of another shape.
    """
    rows = as_floats(name, vectors)
    if rows.ndim not in (1, 2):
        raise InputError(f"{name} has {rows.ndim} dimensions; give vectors (n, D), or one vector (D,)")
    return unit_length(np.atleast_2d(rows)).astype(np.float32, copy=False)


def unpacked_rows(name: str, vectors: object, dimension: int) -> tuple[Vectors, bool]:
    """Do what `unit_rows` does, with bits (uint8) as 1 and -1; tell whether the vectors are bits.

    :param vectors: also (n, D / 8) or (D / 8,) of uint8, as `encode(precision="ubinary")` returns them.
    :raises InputError: also when the bits are of another D, or are no longer uint8, as in a list that was read from
        JSON: their cosine as numbers would mean nothing.
    """
    rows, width = _as_numbers(name, vectors), -(-dimension // 8)
    is_bits = rows.dtype == np.uint8 and rows.ndim in (1, 2)
    if is_bits and rows.shape[-1] != width:
        raise InputError(
            f"{name} has {counted(rows.shape[-1], 'byte')} of bits a vector, not {width}; give vectors of this encoder"
        )
    if rows.dtype.kind in "iu" and rows.dtype.itemsize > 1 and rows.shape[-1:] == (width,):
        raise InputError(f"{name} is {rows.dtype}; give bits as np.uint8, and other vectors as floats or np.int8")
    if is_bits:
        rows = np.unpackbits(rows, axis=-1, count=dimension).astype(np.float32) * 2 - 1
    return unit_rows(name, rows), is_bits


def _as_numbers(name: str, vectors: object) -> NDArray[Any]:
    with suppress(ValueError):
        rows = np.asarray(vectors)
        if rows.dtype == object and rows.ndim == 1 and len(rows):  # a column of pandas, with a vector in each cell
            rows = np.stack(rows.tolist())
        if rows.dtype.kind in "fiu":
            return rows
    raise InputError(f"{name} is not an array of numbers; give what `encode` returns")
