"""What one or several teachers say of sentences: their vectors side by side."""

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.distillation.teachers.vectors import Vectors, VectorsOf, VectorStore
from xcompress.files import hash_of
from xcompress.recipe import TeacherSection


class SideBySide(Vectors):
    """Vectors of several models for the same N texts as one table, (N, D1 + D2 + ...).

    Unit vectors u_i, of weights w_i, stand in it as u_i sqrt(w_i / sum of w): again of unit length, and the cosine of
    two rows is the weighted mean of what the models say, sum of w_i cos_i / sum of w.
    """

    def __init__(self, parts: Sequence[Vectors], scales: Sequence[float]) -> None:
        self._parts = parts
        self._scales = scales

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def shape(self) -> tuple[int, int]:
        """N and the sum of the widths."""
        return len(self), sum(part.shape[1] for part in self._parts)

    def release(self) -> None:
        """Give back the memory of what was read."""
        for part in self._parts:
            part.release()

    def rows(self, indices: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the vectors of n texts by their numbers, (n, D1 + D2 + ...).

        :raises IndexError: when a number is not in 0 ... N - 1.
        """
        return joined([part.rows(indices) for part in self._parts], self._scales)


def joined(parts: Sequence[NDArray[np.float32]], scales: Sequence[float]) -> NDArray[np.float32]:
    """Return vectors of the same N texts, (N, D1), (N, D2), ..., side by side, each multiplied by its scale."""
    return np.hstack([np.float32(scale) * part for scale, part in zip(scales, parts, strict=True)])


def scales(weights: Sequence[float]) -> list[float]:
    """Return what unit vectors of weights w_i are multiplied by, sqrt(w_i / sum of w)."""
    return [sqrt(weight / sum(weights)) for weight in weights]


def _scales(teacher: TeacherSection) -> list[float]:
    return scales([one.weight for one in teacher.members.values()])


def teacher_fingerprint(teacher: TeacherSection) -> str:
    """Hash everything that what is learned of the teachers depends on."""
    hashes = [encoder_fingerprint(one) for one in teacher.members.values()]
    if not teacher.ensemble and teacher.dimensions is None:
        return hashes[0]
    return hash_of({"vectors": hashes, "scales": _scales(teacher), "dimensions": teacher.dimensions})


def open_teacher(teacher: TeacherSection) -> VectorsOf:
    """Open all teachers as one function from N texts to vectors (N, D1 + D2 + ...), not reduced to `dimensions`.

    :raises InputError: when one cannot be opened.
    """
    encoders = [open_encoder(one, key) for key, one in teacher.members.items()]
    return lambda texts: joined([encode(texts) for encode in encoders], _scales(teacher))


def stored_vectors(teacher: TeacherSection, store: VectorStore) -> Callable[[Sequence[str]], Vectors]:
    """Return a function from N texts to the vectors of all teachers, (N, D1 + D2 + ...), kept in a store by teacher.

    :raises InputError: when a teacher cannot be opened, or has no vectors for a text.
    """

    def vectors(texts: Sequence[str]) -> Vectors:
        parts = [
            store.vectors(key, encoder_fingerprint(one), texts, partial(open_encoder, one, key))
            for key, one in teacher.members.items()
        ]
        return SideBySide(parts, _scales(teacher))

    return vectors
