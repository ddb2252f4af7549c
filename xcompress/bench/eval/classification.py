"""Zero-shot classification across languages: a linear probe learns in one language and is tested in another."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.bootstrap import Scores, percentage
from xcompress.bench.eval.task import figures
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import PIVOT, Encode
from xcompress.errors import InputError

COSTS = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""C of the logistic regression: the inverse of its regularisation."""
FOLDS = 5
SEED = 0


def available() -> bool:
    """Tell whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


class Probe:
    """Logistic regression on vectors that are standardised as the training vectors are.

    C is the one with the best accuracy in a stratified cross-validation on the training rows alone. Papers print the
    mean of several runs of a classifier that starts at random; here the loss is convex, so that every run would find
    the same one, and a seed changes nothing but the folds.

    :param vectors: of the training rows, (N, D).
    :param seed: of the folds.
    """

    def __init__(self, vectors: NDArray[np.float32], labels: Sequence[str], seed: int = SEED) -> None:
        with warnings.catch_warnings():
            # a label rarer than the folds is no fault here
            warnings.simplefilter("ignore")
            self._model = _search(labels, seed).fit(vectors, np.asarray(labels))

    def label(self, vectors: NDArray[np.float32]) -> NDArray[np.str_]:
        """Return the label of each vector (N, D)."""
        labels: NDArray[np.str_] = self._model.predict(vectors)
        return labels


def _search(labels: Sequence[str], seed: int) -> Any:  # noqa: ANN401 - scikit-learn has no types
    """Make the untrained classifier; without a label that every fold can have, C is 0.01."""
    # imported when it is needed: it takes a second, and may be missing
    linear, pipeline = import_module("sklearn.linear_model"), import_module("sklearn.pipeline")
    choice, scaling = import_module("sklearn.model_selection"), import_module("sklearn.preprocessing")
    regression = linear.LogisticRegression(C=COSTS[2], max_iter=1000)
    model = pipeline.Pipeline([("scale", scaling.StandardScaler()), ("regression", regression)])
    if max(Counter(labels).values()) < FOLDS:
        return model
    folds = choice.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return choice.GridSearchCV(model, {"regression__C": list(COSTS)}, cv=folds)


Labelled = tuple[tuple[str, str], ...]
"""Rows of label and text."""
LEAST = 2
"""Labels to tell apart."""


@dataclass(frozen=True)
class Classification:
    """Labelled texts by language, to learn from and to be tested on.

    What was learnt in English is tested in all languages. What was learnt in another language is tested in English and
    in that language itself, so that there is one probe, not one for each pair, for a language more.
    """

    name: str
    training: Mapping[str, Labelled]
    testing: Mapping[str, Labelled]
    seed: int = SEED
    """Of the probes' folds."""

    @property
    def learnt(self) -> list[str]:
        """The languages learnt from: English first, the others where English is tested; the first without English."""
        if PIVOT not in self.training:
            return list(self.training)[:1]
        return [PIVOT, *(code for code in self.training if code != PIVOT and PIVOT in self.testing)]

    @property
    def rows(self) -> int:
        """Rows of the largest language tested; 0 where there is nothing to learn from."""
        return max(map(len, self.testing.values()), default=0) if self.training else 0

    def check(self) -> None:
        """Make sure that the labels tested can be learnt.

        :raises InputError: when there is only one label to learn, or one that is tested cannot be learnt.
        """
        for learnt, tested in self._directions():
            file, labels = f"{learnt}.train.tsv", {label for label, _ in self.training[learnt]}
            if len(labels) < LEAST:
                raise InputError(f"{self.name}: {file} has 1 label; a classifier needs at least {LEAST}")
            if new := {label for label, _ in self.testing[tested]} - labels:
                raise InputError(
                    f"{self.name}: {tested} has label {min(new)!r}, which {file} does not have; labels are the same in "
                    "all languages; correct them, or leave this file out"
                )

    def languages(self) -> set[str]:
        """List the languages learnt from or tested."""
        return {code for direction in self._directions() for code in direction}

    def sentences(self) -> Iterable[str]:
        """Give the texts learnt from and all texts tested."""
        yield from (text for code in self.learnt for _, text in self.training[code])
        yield from (text for rows in self.testing.values() for _, text in rows)

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the wanted languages."""
        training, testing = (
            {code: rows for code, rows in part.items() if code in languages} for part in (self.training, self.testing)
        )
        return replace(self, training=training, testing=testing)

    def every(self, step: int) -> Self:
        """Keep every `step`-th row of each language."""
        training, testing = (
            {code: rows[::step] for code, rows in part.items()} for part in (self.training, self.testing)
        )
        return replace(self, training=training, testing=testing)

    def one_way(self) -> Self:
        """Return the same test learnt from the first language alone."""
        return replace(self, training={code: self.training[code] for code in self.learnt[:1]})

    def evaluate(self, encode: Encode, base: Encode | None) -> Accuracy:
        """Train the probes and count the right labels; a bootstrap draw holds tested rows, a probe stays as it is."""
        own, reference = self._scores(encode), self._scores(base) if base else None
        single, averages = figures(own, reference, self._groups())
        return Accuracy(self.name, "classification", self._metric(), self.rows, single, averages)

    def _metric(self) -> str:
        if len(self.learnt) == 1:
            return f"accuracy of a linear probe trained on {self.learnt[0]}, %"
        return "accuracy of a linear probe, language learnt > language tested, %"

    def _directions(self) -> Iterator[tuple[str, str]]:
        """Yield the language learnt from, and the language tested."""
        for place, learnt in enumerate(self.learnt):
            yield from ((learnt, tested) for tested in self.testing if not place or tested in (PIVOT, learnt))

    def _figure(self, learnt: str, tested: str) -> str:
        """Name a direction; by the language tested where but one is learnt from."""
        return tested if len(self.learnt) == 1 else f"{learnt}>{tested}"

    def _groups(self) -> dict[str, list[str]]:
        """List the averages, each with its figures; those that would be empty are left out."""
        first, *others = self.learnt
        crossed = [self._figure(first, code) for code in self.testing if code != first]
        if others:
            back = [self._figure(code, PIVOT) for code in others]
            groups = {f"xx>{PIVOT}": back, f"{PIVOT}>xx": crossed, "average": [*back, *crossed]}
        else:
            groups = {"other languages": crossed, "all": list(self.testing)}
        return {name: members for name, members in groups.items() if members}

    def _scores(self, encode: Encode) -> dict[str, Scores]:
        probes = {code: self._probe(code, encode) for code in self.learnt}
        return {
            self._figure(learnt, tested): _right(probes[learnt], self.testing[tested], encode)
            for learnt, tested in self._directions()
        }

    def _probe(self, code: str, encode: Encode) -> Probe:
        labels, texts = zip(*self.training[code], strict=True)
        return Probe(encode(texts), labels, self.seed)


def _right(probe: Probe, rows: Labelled, encode: Encode) -> Scores:
    """Return how many rows get their label, in percent."""
    expected, asked = zip(*rows, strict=True)
    return percentage(probe.label(encode(asked)) == np.asarray(expected))
