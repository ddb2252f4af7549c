"""Graded similarity: whether cosines rank pairs of sentences as people do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from xcompress.bench.eval.bootstrap import Scores, spearman
from xcompress.bench.eval.task import figures, pair_cosines
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import Encode, GradedPairs, GradedSet, average_groups


@dataclass(frozen=True)
class Similarity:
    """Graded rows by language pair, such as `en-de`."""

    graded: GradedSet

    @property
    def name(self) -> str:
        """The set's name."""
        return self.graded.name

    @property
    def pairs(self) -> Mapping[str, GradedPairs]:
        """The rows of each language pair."""
        return self.graded.language_pairs

    @property
    def rows(self) -> int:
        """Rows of the largest language pair."""
        return max(map(len, self.pairs.values()), default=0)

    def languages(self) -> set[str]:
        """List the languages of all pairs."""
        return {language for pair in self.pairs for language in pair.split("-")}

    def sentences(self) -> Iterable[str]:
        """Give both sentences of every row."""
        return self.graded.sentences()

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the pairs of which both languages are wanted."""
        return type(self)(self.graded.within(languages))

    def every(self, step: int) -> Self:
        """Keep every `step`-th row of each pair."""
        return type(self)(self.graded.every(step))

    def evaluate(self, encode: Encode, base: Encode | None) -> Accuracy:
        """Correlate cosines with the human scores."""
        single, averages = figures(
            self._scores(encode), self._scores(base) if base else None, average_groups(self.pairs)
        )
        return Accuracy(self.name, "similarity", "Spearman x 100", self.rows, single, averages)

    def _scores(self, encode: Encode) -> dict[str, Scores]:
        return {
            pair: spearman(pair_cosines(encode, rows.first, rows.second), np.asarray(rows.scores))
            for pair, rows in self.pairs.items()
        }
