"""Tasks on the cosines of sentence pairs: correlation with human scores, and agreement with the reference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.intervals import Scores, apart, bootstrap_figure, spearman_scores
from xcompress.bench.eval.task import summarize_scores
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import GradedPairs, GradedSet, average_groups
from xcompress.metrics import Encode, cosines

SentencePairs = tuple[tuple[str, str], ...]


def pair_cosines(encode: Encode, first: Sequence[str], second: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosine of each sentence (N,) with its counterpart, 0 where a vector is zero."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(cosines(encode(first), encode(second)))


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
            pair: spearman_scores(pair_cosines(encode, rows.first, rows.second), np.asarray(rows.scores))
            for pair, rows in self.pairs.items()
        }

    def summarize(self, scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None) -> Accuracy:
        """Return the figures of correlations, and the drop."""
        if reference:
            reference = {pair: apart(reference[pair], own, len(self.pairs[pair])) for pair, own in scores.items()}
        figures, averages = summarize_scores(bootstrap_figure, scores, reference, average_groups(self.pairs))
        return Accuracy(self.name, "similarity", "Spearman x 100", self.rows, figures, averages)


@dataclass(frozen=True)
class Agreement:
    """Unlabelled sentence pairs: the model's cosines should rank them as the reference's do."""

    name: str
    pairs: Mapping[str, SentencePairs]
    """By language or, for pairs across two languages, by language pair."""

    @classmethod
    def from_graded(cls, name: str, graded: GradedSet) -> Self:
        """Take the sentence pairs of a graded set, without their scores."""
        pairs = graded.language_pairs.items()
        return cls(name, {pair: tuple(zip(rows.first, rows.second, strict=True)) for pair, rows in pairs})

    @property
    def rows(self) -> int:
        """Pairs of the largest language."""
        return max(map(len, self.pairs.values()), default=0)

    def languages(self) -> set[str]:
        """List the languages."""
        return {language for name in self.pairs for language in name.split("-")}

    def sentences(self) -> Iterable[str]:
        """Yield both sentences of every pair."""
        return (text for rows in self.pairs.values() for pair in rows for text in pair)

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the pairs whose languages are in `languages`."""
        kept = {name: rows for name, rows in self.pairs.items() if languages.issuperset(name.split("-"))}
        return replace(self, pairs=kept)

    def every(self, step: int) -> Self:
        """Keep every `step`-th pair of each language."""
        return replace(self, pairs={name: rows[::step] for name, rows in self.pairs.items()})

    def score(self, encode: Encode) -> dict[str, Scores]:
        """Return the cosines of the pairs (N,) of each language."""
        return {name: pair_cosines(encode, *zip(*rows, strict=True)) for name, rows in self.pairs.items()}

    def summarize(self, scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None) -> Accuracy | None:
        """Correlate the model's cosines with the reference's; return None without a reference."""
        if reference is None:
            return None
        correlations = {name: spearman_scores(own, reference[name]) for name, own in scores.items()}
        crossed = average_groups(name for name in self.pairs if "-" in name)
        figures, averages = summarize_scores(bootstrap_figure, correlations, None, {**crossed, "all": list(self.pairs)})
        metric = "Spearman x 100 with the reference's similarities"
        return Accuracy(f"{self.name}: agreement", "agreement", metric, self.rows, figures, averages)
