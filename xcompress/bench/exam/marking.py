"""What a test is, and how scores become figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Self

import numpy as np

from xcompress.bench.exam.bootstrap import Scores, figure
from xcompress.bench.results import Accuracy, Figure
from xcompress.corpus.similarity import Encode
from xcompress.metrics import cosines


class Task(Protocol):
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

    def mark(self, encode: Encode, base: Encode | None) -> Accuracy | None:
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
