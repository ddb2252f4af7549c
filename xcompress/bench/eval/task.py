"""The evaluation tasks of a bench, and what all of them share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.bootstrap import Scores, to_figure
from xcompress.bench.results import Accuracy, Figure
from xcompress.errors import InputError
from xcompress.metrics import Encode


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

    def score(self, encode: Encode) -> dict[str, Scores]:
        """Return a model's scores, by language or direction; `Agreement` returns the cosines that it compares."""

    def summarize(self, scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None) -> Accuracy | None:
        """Return the figures of a model's scores, and the drop against those of the reference.

        :returns: None when the task only compares and there is no reference.
        """


def summarize_scores(
    scores: Mapping[str, Scores], reference: Mapping[str, Scores] | None, groups: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Return the figure of each score, and of each average.

    :param groups: the names of the scores that each average is the mean of.
    """

    def mean(values: Mapping[str, Scores], names: Sequence[str]) -> Scores:
        average: Scores = np.mean([values[name] for name in names], axis=0)
        return average

    figures = {name: to_figure(score, reference[name] if reference else None) for name, score in scores.items()}
    averages = {
        group: to_figure(mean(scores, names), mean(reference, names) if reference else None)
        for group, names in groups.items()
    }
    return figures, averages


@dataclass(frozen=True)
class EvalSuite:
    """The tasks of a bench, built-in ones first, and notes on what was left out."""

    tasks: tuple[EvalTask, ...]
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """List every distinct sentence, shortest first, so that a batch holds sentences of similar length."""
        return sorted(dict.fromkeys(text for task in self.tasks for text in task.sentences()), key=len)

    def score(self, sentences: Sequence[str], vectors: NDArray[np.float32]) -> list[dict[str, Scores]]:
        """Return a model's scores on every task.

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
        self, scores: Sequence[Mapping[str, Scores]], reference: Sequence[Mapping[str, Scores]] | None = None
    ) -> tuple[Accuracy, ...]:
        """Return the figures of a model's scores on every task, with the drop against those of the reference."""
        bases: Sequence[Mapping[str, Scores] | None] = reference or [None] * len(self.tasks)
        outcomes = (task.summarize(own, base) for task, own, base in zip(self.tasks, scores, bases, strict=True))
        return tuple(accuracy for accuracy in outcomes if accuracy)
