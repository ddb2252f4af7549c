"""All that a subject is asked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.bootstrap import Scores, figure
from xcompress.bench.results import Accuracy, Figure
from xcompress.corpus.graded import Encode
from xcompress.errors import InputError
from xcompress.metrics import cosines


class EvalTask(Protocol):
    """A set of questions on sentence vectors."""

    @property
    def name(self) -> str:
        """Such as `tatoeba`."""

    @property
    def rows(self) -> int:
        """Rows of the largest language or pair; 0 when nothing is left."""

    def languages(self) -> set[str]:
        """List the languages that figures are given for."""

    def sentences(self) -> Iterable[str]:
        """Give what has to be encoded, repeated or not."""

    def within(self, languages: frozenset[str]) -> Self:
        """Keep what needs no other languages."""

    def every(self, step: int) -> Self:
        """Keep every `step`-th row."""

    def evaluate(self, encode: Encode, base: Encode | None) -> Accuracy | None:
        """Score a subject, and compare it with the reference; None where that is all there is to score."""


def figures(
    own: Mapping[str, Scores], base: Mapping[str, Scores] | None, groups: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Return the figures of all names, and the averages.

    :param groups: for each average, the names it is the mean of.
    """
    single = {name: figure(scores, base[name] if base else None) for name, scores in own.items()}
    averages = {
        group: figure(_average(own, names), _average(base, names) if base else None) for group, names in groups.items()
    }
    return single, averages


def pair_cosines(encode: Encode, first: Sequence[str], second: Sequence[str]) -> Scores:
    """Return the cosine of each sentence (N,) with its counterpart; a vector of zeros is like no other."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(cosines(encode(first), encode(second)))


def _average(scores: Mapping[str, Scores], names: Sequence[str]) -> Scores:
    mean: Scores = np.mean([scores[name] for name in names], axis=0)
    return mean


@dataclass(frozen=True)
class EvalSuite:
    """The tests, the built-in set first, and what was left out."""

    tests: tuple[EvalTask, ...]
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """List every distinct sentence once, shortest first, so that a batch holds sentences of like length."""
        return sorted(dict.fromkeys(text for test in self.tests for text in test.sentences()), key=len)

    def evaluate(
        self, sentences: Sequence[str], vectors: NDArray[np.float32], base: NDArray[np.float32] | None = None
    ) -> tuple[Accuracy, ...]:
        """Score the vectors (n, D) of `sentences`, which hold all of the exam's.

        :param base: the reference's vectors (n, D') of the same sentences, for the drops.
        :raises InputError: when there is not one vector of finite numbers for each sentence.
        """
        place = {text: row for row, text in enumerate(sentences)}
        own = _lookup(place, vectors)
        reference = None if base is None else _lookup(place, base)
        marked = (test.evaluate(own, reference) for test in self.tests)
        return tuple(accuracy for accuracy in marked if accuracy)


def _lookup(place: dict[str, int], vectors: NDArray[np.float32]) -> Encode:
    """Make a function that looks up the vectors of sentences."""
    if vectors.ndim != 2 or len(vectors) != len(place):
        raise InputError(f"vectors: shape {vectors.shape} for {len(place)} sentences; give one row for each")
    if broken := int((~np.isfinite(vectors).all(axis=1)).sum()):
        raise InputError(f"vectors: {broken} of {len(vectors)} hold NaN or infinity; the model cannot be scored")
    return lambda texts: vectors[[place[text] for text in texts]]
