"""What pairs learn: vectors of frozen models and numbers, looked up by pair. Equal sentences share one vector.

In sentence-transformers, too, they are labels; a target is the second side of a pair.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcompress.console import without_bars
from xcompress.corpus.columns import Rows
from xcompress.corpus.sequences import ConcatSequence, DistinctTexts
from xcompress.distillation.data.sentences import Side, distinct
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore
from xcompress.files import drop_pages
from xcompress.metrics import Encode

Transform = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""Maps vectors (N, D) to others (N, D')."""


def identity(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors unchanged."""
    return vectors


def encode_distinct(encode: Encode, texts: Sequence[str]) -> NDArray[np.float32]:
    """Encode each distinct text once, and return the vectors of all (N, D)."""
    place_of = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return encode(list(place_of))[[place_of[text] for text in texts]]


@dataclass(frozen=True)
class VectorLabels:
    """A vector for each of N pairs: row `rows[i]` of `vectors` belongs to pair i."""

    vectors: StoredVectors
    rows: Rows
    transform: Transform = identity
    """Applied to the vectors when they are read."""

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors (n, D') of n pairs, by index."""
        # Equal sentences are transformed once: in a product, the last digits of a row may depend on its place.
        different, places = np.unique(self.rows[list(pairs)], return_inverse=True)
        return self.transform(self.vectors[different])[places]

    def release(self) -> None:
        """Release the memory of the vectors that were read."""
        self.vectors.release()
        drop_pages(self.rows)


@dataclass(frozen=True)
class LiveLabels:
    """A vector for each of N sentences, computed whenever it is read, on the device of the training."""

    texts: Sequence[str]
    encode: Encode
    transform: Transform
    """Applied to the vectors."""

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32]:
        """Return the vectors (n, D') of n pairs, by index."""
        # Equal sentences are encoded once: the last digits of a vector depend on the padding of its batch.
        with without_bars():
            return encode_distinct(
                lambda texts: self.transform(self.encode(texts)), [self.texts[pair] for pair in pairs]
            )


@dataclass(frozen=True)
class ScalarLabels:
    """A number for each of N pairs: the class of its entailment, or a score."""

    values: NDArray[np.float32] | NDArray[np.int64]

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32] | NDArray[np.int64]:
        """Return the values (n,) of n pairs, by index."""
        return self.values[list(pairs)]


Labels = VectorLabels | LiveLabels | ScalarLabels
"""What pairs learn: vectors from the disk, vectors that are computed in the training step, or numbers."""


TextName = str | tuple[str, Side]
"""Name of a list of texts: a stage and the side of its pairs, or that of other text, such as the held-out pairs."""


@dataclass(frozen=True)
class VectorTable:
    """Vectors of one model for lists of texts, by name; each distinct text is encoded once."""

    texts: Mapping[TextName, Sequence[str]]
    vectors: StoredVectors
    """Of the distinct texts, as the model computes them, (N, D)."""
    rows: Mapping[TextName, Rows]
    """For each list, the row of each of its texts."""
    transform: Transform = identity
    """Applied to the vectors when they are read."""

    @classmethod
    def compute(
        cls,
        texts: Mapping[TextName, Sequence[str]],
        encode: Callable[[DistinctTexts, VectorStore], StoredVectors],
        store: VectorStore,
    ) -> "VectorTable":
        """Encode the distinct texts of all lists. All workers must call it.

        :param store: where the vectors and the rows of the texts are kept.
        """
        different, rows = distinct(ConcatSequence(list(texts.values())), store.folder)
        ends = np.cumsum([len(of_name) for of_name in texts.values()])
        return cls(texts, encode(different, store), dict(zip(texts, np.split(rows, ends[:-1]), strict=True)))

    @property
    def dimension(self) -> int:
        """D', the width after the transform."""
        return int(self.transform(self.vectors[[0]]).shape[1])

    def labels(self, name: TextName) -> VectorLabels:
        """Return the vectors of a list of texts, one for each in its order."""
        return VectorLabels(self.vectors, self.rows[name], self.transform)

    def by_text(self, *names: TextName) -> Encode:
        """Return a function from the texts of short lists to their vectors (N, D')."""
        row_of = {
            text: row for name in names for text, row in zip(self.texts[name], self.rows[name].tolist(), strict=True)
        }
        return lambda texts: self.transform(self.vectors[[row_of[text] for text in texts]])
