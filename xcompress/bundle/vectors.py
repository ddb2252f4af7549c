"""Arrays of sentence vectors that a caller hands in: checked, scaled to length 1, and read from bits."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.errors import InputError
from xcompress.metrics import Vectors, unit_length


def as_floats(name: str, vectors: object) -> NDArray[np.floating[Any]]:
    """Return an array of numbers in float32, or in its own precision if that is higher.

    :raises InputError: when it is none; lists of different lengths are none.
    """
    with suppress(ValueError):
        rows = np.asarray(vectors)
        if rows.dtype.kind in "fiu":
            return rows.astype(np.promote_types(rows.dtype, np.float32), copy=False)
    raise InputError(f"{name} is not an array of numbers; give what `encode` returns")


def unit_rows(name: str, vectors: object) -> Vectors:
    """Scale vectors, (n, D) or (D,), to length 1, as rows of a matrix (n, D); leave zeros as they are.

    :raises InputError: when they are no array of numbers, or one of another shape.
    """
    rows = as_floats(name, vectors)
    if rows.ndim not in (1, 2):
        raise InputError(f"{name} has {rows.ndim} dimensions; give vectors (n, D), or one vector (D,)")
    return unit_length(np.atleast_2d(rows)).astype(np.float32, copy=False)


def are_bits(vectors: object) -> bool:
    """Tell whether vectors are bits, as `encode(precision="ubinary")` returns them."""
    return getattr(vectors, "dtype", None) == np.uint8 and np.ndim(vectors) in (1, 2)  # type: ignore[arg-type]


def without_bits(name: str, vectors: NDArray[Any], dimension: int) -> NDArray[Any]:
    """Unpack bits, (n, D / 8) of uint8, to 1 and -1, (n, D); return other vectors as they are.

    :raises InputError: when the bits are of another D.
    """
    if not are_bits(vectors):
        return vectors
    width = -(-dimension // 8)
    if vectors.shape[-1] != width:
        raise InputError(
            f"{name} has {vectors.shape[-1]} bytes of bits a vector, not {width}; give vectors of this encoder"
        )
    return np.unpackbits(vectors, axis=-1, count=dimension).astype(np.float32) * 2 - 1
