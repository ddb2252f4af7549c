"""The evaluation tasks of a bench, and what all of them share."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.results import Accuracy, Figure
from xcompress.errors import InputError
from xcompress.metrics import Encode

Outcome = NDArray[Any]
"""What a task keeps of a model for one language or direction: resampled scores, hits, or cosines."""
Outcomes = Mapping[str, Outcome]
"""By language or direction."""
_Outcome = TypeVar("_Outcome", bound=Outcome)
SentencePairs = tuple[tuple[str, str], ...]
"""Rows of two sentences; of translations, the English one first."""


class EvalTask(Protocol):
    """A test set, and how sentence vectors are scored on it."""

    @property
    def name(self) -> str:
        """Such as `tatoeba`."""

    @property
    def rows(self) -> int:
        """Rows of the largest language or language pair; 0 when the task is empty."""

    def languages(self) -> set[str]:
        """List the languages that are scored."""

    def sentences(self) -> Iterable[str]:
        """Yield the sentences to encode, possibly with repetitions."""

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the rows that need no other languages."""

    def every(self, step: int) -> Self:
        """Keep every `step`-th row."""

    def score(self, encode: Encode) -> Outcomes:
        """Return what `summarize` needs of a model."""

    def summarize(self, scores: Outcomes, reference: Outcomes | None) -> Accuracy | None:
        """Return the figures of a model, and the drop against those of the reference.

        :returns: None when the task only compares and there is no reference.
        """


@dataclass(frozen=True)
class PairTask:
    """Rows of two sentences, by language or language pair; what a task on such rows scores is up to its class."""

    name: str
    pairs: Mapping[str, SentencePairs]
    """By language, such as `de`, or by language pair, such as `en-de`."""

    @property
    def rows(self) -> int:
        """Rows of the largest language or language pair."""
        return max(map(len, self.pairs.values()), default=0)

    def languages(self) -> set[str]:
        """List the languages of all rows."""
        return {language for name in self.pairs for language in name.split("-")}

    def sentences(self) -> Iterable[str]:
        """Yield both sentences of every row."""
        return (text for rows in self.pairs.values() for pair in rows for text in pair)

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the rows whose languages are in `languages`."""
        kept = {name: rows for name, rows in self.pairs.items() if languages.issuperset(name.split("-"))}
        return replace(self, pairs=kept)

    def every(self, step: int) -> Self:
        """Keep every `step`-th row of each language or language pair."""
        return replace(self, pairs={name: rows[::step] for name, rows in self.pairs.items()})


def summarize_scores(
    figure: Callable[[Sequence[_Outcome], Sequence[_Outcome] | None], Figure],
    scores: Mapping[str, _Outcome],
    reference: Mapping[str, _Outcome] | None,
    groups: Mapping[str, Sequence[str]],
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Return the figure of each score, and of each average.

    :param figure: makes the figure of a mean of scores and, with those of the reference, of its drop.
    :param groups: the names of the scores that each average is the mean of.
    """

    def of(names: Sequence[str]) -> Figure:
        return figure([scores[name] for name in names], [reference[name] for name in names] if reference else None)

    return {name: of([name]) for name in scores}, {group: of(names) for group, names in groups.items()}


@dataclass(frozen=True)
class EvalSuite:
    """The tasks of a bench, built-in ones first, and notes on what was left out."""

    tasks: tuple[EvalTask, ...]
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """List every distinct sentence, shortest first, so that a batch holds sentences of similar length."""
        return sorted(dict.fromkeys(text for task in self.tasks for text in task.sentences()), key=len)

    def score(self, sentences: Sequence[str], vectors: NDArray[np.float32]) -> list[Outcomes]:
        """Return what `summarize` needs of a model, for every task.

        :param sentences: n sentences, among them all sentences of the suite.
        :param vectors: their vectors (n, D).
        :raises InputError: when there is not one finite vector for each sentence.
        """
        if vectors.ndim != 2 or len(vectors) != len(sentences):
            raise InputError(f"vectors: shape {vectors.shape}, not ({len(sentences)}, D); give one for each sentence")
        if broken := int((~np.isfinite(vectors).all(axis=1)).sum()):
            raise InputError(f"vectors: {broken} of {len(vectors)} hold NaN or infinity; the model cannot be scored")
        row_of = {text: row for row, text in enumerate(sentences)}
        return [task.score(lambda texts: vectors[[row_of[text] for text in texts]]) for task in self.tasks]

    def summarize(
        self, scores: Sequence[Outcomes], reference: Sequence[Outcomes] | None = None
    ) -> tuple[Accuracy, ...]:
        """Return the figures of a model on every task, with the drop against those of the reference."""
        bases: Sequence[Outcomes | None] = reference or [None] * len(self.tasks)
        outcomes = (task.summarize(own, base) for task, own, base in zip(self.tasks, scores, bases, strict=True))
        return tuple(accuracy for accuracy in outcomes if accuracy)
