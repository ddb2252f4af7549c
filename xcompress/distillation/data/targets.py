"""Training targets: vectors of frozen models and labels, looked up by pair. Equal sentences share one vector."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence, LazySequence, SubsetSequence
from xcompress.distillation.teachers.vectors import Vectors, VectorsOf

Rows = NDArray[np.int64]
Transform = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Maps vectors (N, D) to others (N, D')."""
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


def identity(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors unchanged."""
    return vectors


@dataclass(frozen=True)
class VectorTargets:
    """A target vector for each of N pairs: row `rows[i]` of `vectors` belongs to pair i."""

    vectors: Vectors
    rows: Rows
    transform: Transform = identity
    """Applied to the vectors when they are read."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.rows)

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32]:
        """Return the targets (n, D') of n pairs, by index."""
        return self.transform(self.vectors.rows(self.rows[list(pairs)]))

    def release(self) -> None:
        """Release the memory of the vectors that were read."""
        self.vectors.release()


@dataclass(frozen=True)
class ScalarTargets:
    """A label or a score for each of N pairs."""

    values: NDArray[np.float32] | NDArray[np.int64]

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Return the values (n,) of n pairs, by index."""
        return self.values[list(pairs)]

    def release(self) -> None:
        """Do nothing: the values are in memory."""


class Sentences(LazySequence[str]):
    """One side of some pairs, read when it is indexed."""

    def __init__(self, pairs: Sequence[Pair], side: Side, rows: Rows | None = None) -> None:
        self.pairs = pairs
        self.side = side
        self.rows = np.arange(len(pairs)) if rows is None else rows

    def __len__(self) -> int:
        """Return the number of sentences."""
        return len(self.rows)

    def item(self, number: int) -> str:
        """Return the sentence of one of the chosen pairs."""
        return str(getattr(self.pairs[int(self.rows[number])], self.side))


def distinct(texts: Sequence[str]) -> tuple[Sequence[str], Rows]:
    """Return the distinct texts, and for each input text its index among them; only 64-bit hashes are in memory."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    hashes = np.fromiter((int.from_bytes(digest, "little") for digest in digests), dtype=np.uint64, count=len(texts))
    _, first, rows = np.unique(hashes, return_index=True, return_inverse=True)
    return SubsetSequence(texts, first), rows.astype(np.int64)


@dataclass(frozen=True)
class VectorTable:
    """Vectors of one model for named groups of sentences; each distinct sentence is encoded once."""

    groups: Mapping[str, Sequence[str]]
    vectors: Vectors
    """Of the distinct sentences, as the model computes them, (N, D)."""
    rows: Mapping[str, Rows]
    """For each group, the row of each of its sentences."""
    transform: Transform = identity
    """Applied to the vectors when they are read."""

    @classmethod
    def compute(cls, groups: Mapping[str, Sequence[str]], encode: Callable[[Sequence[str]], Vectors]) -> "VectorTable":
        """Encode the distinct sentences of all groups."""
        texts, rows = distinct(ConcatSequence(list(groups.values())))
        ends = np.cumsum([len(group) for group in groups.values()])
        return cls(groups, encode(texts), dict(zip(groups, np.split(rows, ends[:-1]), strict=True)))

    @property
    def dimension(self) -> int:
        """D', the width after the transform."""
        return int(self.transform(self.vectors.rows([0])).shape[1])

    def targets(self, group: str) -> VectorTargets:
        """Return the vectors of a group, one for each sentence in its order."""
        return VectorTargets(self.vectors, self.rows[group], self.transform)

    def by_text(self, *groups: str) -> VectorsOf:
        """Return a function from sentences of small groups to their vectors (N, D')."""
        row_of = {
            text: row
            for group in groups
            for text, row in zip(self.groups[group], self.rows[group].tolist(), strict=True)
        }
        return lambda texts: self.transform(self.vectors.rows([row_of[text] for text in texts]))
