"""Agreement: whether a subject finds the same sentences alike as the reference does, which needs no labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from xcompress.bench.eval.bootstrap import Scores, spearman
from xcompress.bench.eval.task import figures, pair_cosines
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import Encode, GradedSet, average_groups

SentencePairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Agreement:
    """Pairs of sentences by language or, where they are in two, by language pair."""

    name: str
    pairs: Mapping[str, SentencePairs]

    @classmethod
    def of(cls, name: str, graded: GradedSet) -> Self:
        """Take the sentences of a graded set, without their scores."""
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
        """Give both sentences of every pair."""
        return (text for rows in self.pairs.values() for pair in rows for text in pair)

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the wanted languages."""
        return replace(
            self, pairs={name: rows for name, rows in self.pairs.items() if languages.issuperset(name.split("-"))}
        )

    def every(self, step: int) -> Self:
        """Keep every `step`-th pair of each language."""
        return replace(self, pairs={name: rows[::step] for name, rows in self.pairs.items()})

    def evaluate(self, encode: Encode, base: Encode | None) -> Accuracy | None:
        """Correlate the subject's cosines with the reference's; None without a reference."""
        if base is None:
            return None
        crossed = average_groups(name for name in self.pairs if "-" in name)
        groups = {**crossed, "all": list(self.pairs)}
        single, averages = figures(self._scores(encode, base), None, groups)
        metric = "Spearman x 100 with the reference's similarities"
        return Accuracy(f"{self.name}: agreement", "agreement", metric, self.rows, single, averages)

    def _scores(self, encode: Encode, base: Encode) -> dict[str, Scores]:
        columns = {name: tuple(zip(*rows, strict=True)) for name, rows in self.pairs.items()}
        return {
            name: spearman(pair_cosines(encode, *both), pair_cosines(base, *both)) for name, both in columns.items()
        }
