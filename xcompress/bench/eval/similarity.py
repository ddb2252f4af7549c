"""Tasks on the cosines of sentence pairs: correlation with human scores, and agreement with the reference."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from xcompress.bench.eval.intervals import Scores, apart, bootstrap_figure, spearman_scores
from xcompress.bench.eval.task import PairTask, summarize_scores
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import GradedPairs, GradedSet, average_groups
from xcompress.metrics import Encode, cosines


@dataclass(frozen=True)
class Similarity:
    """Graded sentence pairs: the model's cosines should rank them as people do."""

    graded: GradedSet

    @property
    def name(self) -> str:
        """The set's name."""
        return self.graded.name

    @property
    def pairs(self) -> Mapping[str, GradedPairs]:
        """The rows of each language pair, such as `en-de`."""
        return self.graded.language_pairs

    @property
    def rows(self) -> int:
        """Rows of the largest language pair."""
        return max(map(len, self.pairs.values()), default=0)

    def languages(self) -> set[str]:
        """List the languages of all pairs."""
        return {language for pair in self.pairs for language in pair.split("-")}

    def sentences(self) -> Iterable[str]:
        """Yield both sentences of every row."""
        return self.graded.sentences()

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the language pairs whose languages are both in `languages`."""
        return type(self)(self.graded.within(languages))

    def every(self, step: int) -> Self:
        """Keep every `step`-th row of each language pair."""
        return type(self)(self.graded.every(step))

    def score(self, encode: Encode) -> dict[str, Scores]:
        """Correlate cosines with human scores."""
        return {
            pair: spearman_scores(cosines(encode(rows.first), encode(rows.second)), np.asarray(rows.scores))
            for pair, rows in self.pairs.items()
        }

    def summarize(self, scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None) -> Accuracy:
        """Return the figures of correlations, and the drop."""
        if reference:
            reference = {pair: apart(reference[pair], own, len(self.pairs[pair])) for pair, own in scores.items()}
        figures, averages = summarize_scores(bootstrap_figure, scores, reference, average_groups(self.pairs))
        return Accuracy(self.name, "similarity", "Spearman x 100", self.rows, figures, averages)


class Agreement(PairTask):
    """Unlabelled sentence pairs: the model's cosines should rank them as the reference's do."""

    @classmethod
    def from_graded(cls, name: str, graded: GradedSet) -> Self:
        """Take the sentence pairs of a graded set, without their scores."""
        pairs = graded.language_pairs.items()
        return cls(name, {pair: tuple(zip(rows.first, rows.second, strict=True)) for pair, rows in pairs})

    def score(self, encode: Encode) -> dict[str, Scores]:
        """Return the cosines of the pairs (N,) of each language."""
        return {name: cosines(*map(encode, zip(*rows, strict=True))) for name, rows in self.pairs.items()}

    def summarize(self, scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None) -> Accuracy | None:
        """Correlate the model's cosines with the reference's; return None without a reference."""
        if reference is None:
            return None
        correlations = {name: spearman_scores(own, reference[name]) for name, own in scores.items()}
        crossed = average_groups(name for name in self.pairs if "-" in name)
        figures, averages = summarize_scores(bootstrap_figure, correlations, None, {**crossed, "all": list(self.pairs)})
        metric = "Spearman x 100 with the reference's similarities"
        return Accuracy(f"{self.name}: agreement", "agreement", metric, self.rows, figures, averages)
