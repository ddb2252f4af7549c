"""What pairs regress on: vectors of frozen models, looked up by pair; equal sentences share one vector."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence, LazySequence, SubsetSequence
from xcompress.distillation.teachers.vectors import Vectors

Rows = NDArray[np.int64]
Change = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Maps vectors (N, D) to others (N, D')."""
Side = Literal["source", "target"]


def unchanged(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors as they are."""
    return vectors


@dataclass(frozen=True)
class Goal:
    """A vector for each of N pairs: row `rows[i]` of `vectors` belongs to pair i."""

    vectors: Vectors
    rows: Rows
    change: Change = unchanged
    """What becomes of them before they are learned."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.rows)

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors (n, D) of n pairs, by number."""
        return self.change(self.vectors.rows(self.rows[list(pairs)]))

    def release(self) -> None:
        """Give back the memory of what was read."""
        self.vectors.release()


@dataclass(frozen=True)
class Column:
    """A number for each of N pairs."""

    values: NDArray[np.float32] | NDArray[np.int64]

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Return the numbers (n,) of n pairs."""
        return self.values[list(pairs)]

    def release(self) -> None:
        """Do nothing: they are in memory."""


class Sentences(LazySequence[str]):
    """One side of some pairs."""

    def __init__(self, pairs: Sequence[Pair], side: Side, rows: Rows | None = None) -> None:
        self.pairs = pairs
        self.side = side
        self.rows = np.arange(len(pairs)) if rows is None else rows

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.rows)

    def item(self, number: int) -> str:
        """Return the sentence of one of the chosen pairs."""
        return str(getattr(self.pairs[int(self.rows[number])], self.side))


def distinct(texts: Sequence[str]) -> tuple[Sequence[str], Rows]:
    """Return the different texts and, for each given one, its place among them; only 64-bit hashes are in memory."""
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    keys = np.fromiter((int.from_bytes(digest, "little") for digest in digests), dtype=np.uint64, count=len(texts))
    _, first, places = np.unique(keys, return_index=True, return_inverse=True)
    return SubsetSequence(texts, first), places.astype(np.int64)


Groups = Mapping[str, Sequence[str]]


class VectorTable:
    """Vectors of one model for groups of sentences; each different sentence is encoded once."""

    def __init__(self, groups: Groups, encode: Callable[[Sequence[str]], Vectors]) -> None:
        texts, places = distinct(ConcatSequence(list(groups.values())))
        self.groups = groups
        self.vectors = encode(texts)
        self.change: Change = unchanged
        ends = np.cumsum([len(group) for group in groups.values()])
        self._places = dict(zip(groups, np.split(places, ends[:-1]), strict=True))

    @property
    def dimension(self) -> int:
        """D' of what is learned."""
        return int(self.change(self.vectors.rows([0])).shape[1])

    def goal(self, group: str) -> Goal:
        """Return the vectors of a group, one for each sentence in its order."""
        return Goal(self.vectors, self._places[group], self.change)

    def by_text(self, *groups: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
        """Return a function from sentences of small groups to their vectors (N, D)."""
        rows = {
            text: row
            for group in groups
            for text, row in zip(self.groups[group], self._places[group].tolist(), strict=True)
        }
        return lambda texts: self.change(self.vectors.rows([rows[text] for text in texts]))
