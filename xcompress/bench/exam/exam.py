"""All that a subject is asked."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.exam.marking import Task
from xcompress.bench.results import Accuracy
from xcompress.corpus.similarity import Encode
from xcompress.errors import InputError


@dataclass(frozen=True)
class Exam:
    """The tests, the built-in set first, and what was left out."""

    tests: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """List every distinct sentence once, shortest first, so that a batch holds sentences of like length."""
        return sorted(dict.fromkeys(text for test in self.tests for text in test.sentences()), key=len)

    def mark(
        self, sentences: Sequence[str], vectors: NDArray[np.float32], base: NDArray[np.float32] | None = None
    ) -> tuple[Accuracy, ...]:
        """Score the vectors (n, D) of `sentences`, which hold all of the exam's.

        :param base: the reference's vectors (n, D') of the same sentences, for the drops.
        :raises InputError: when there is not one vector of finite numbers for each sentence.
        """
        place = {text: row for row, text in enumerate(sentences)}
        own = _lookup(place, vectors)
        reference = None if base is None else _lookup(place, base)
        marked = (test.mark(own, reference) for test in self.tests)
        return tuple(accuracy for accuracy in marked if accuracy)


def _lookup(place: dict[str, int], vectors: NDArray[np.float32]) -> Encode:
    """Make a function that looks up the vectors of sentences."""
    if vectors.ndim != 2 or len(vectors) != len(place):
        raise InputError(f"vectors: shape {vectors.shape} for {len(place)} sentences; give one row for each")
    if broken := int((~np.isfinite(vectors).all(axis=1)).sum()):
        raise InputError(f"vectors: {broken} of {len(vectors)} hold NaN or infinity; the model cannot be scored")
    return lambda texts: vectors[[place[text] for text in texts]]
