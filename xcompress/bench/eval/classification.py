"""Zero-shot cross-lingual classification: a linear probe is trained in one language and tested in another."""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.intervals import Hits, share_figure
from xcompress.bench.eval.task import summarize_scores
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import PIVOT
from xcompress.errors import InputError
from xcompress.metrics import Encode

COSTS = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""Values of C, the inverse of the logistic regression's regularisation."""
FOLDS = 5
SEED = 0
MIN_LABELS = 2

LabelledRows = tuple[tuple[str, str], ...]
"""Rows of (label, text)."""


class Probe:
    """Logistic regression on standardised vectors.

    C is chosen by stratified cross-validation on the training rows. It is 0.01 when no label has enough rows for the
    folds, or all labels but one have a single row. Papers report the mean of several runs of a classifier with random
    initialisation; this loss is convex, so every run finds the same classifier and the seed changes only the folds.

    :param vectors: of the training rows, (N, D).
    :param seed: of the folds.
    """

    def __init__(self, vectors: NDArray[np.float32], labels: Sequence[str], seed: int = SEED) -> None:
        # takes a second, and may be missing
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import GridSearchCV, StratifiedKFold
        from sklearn.pipeline import Pipeline
        from sklearn.preprocessing import StandardScaler

        regression = LogisticRegression(C=COSTS[2], max_iter=1000)
        model = Pipeline([("scale", StandardScaler()), ("regression", regression)])
        *_, second, most = sorted(Counter(labels).values())
        if most >= FOLDS and second > 1:  # else the rows of a fold may have one label alone
            folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
            model = GridSearchCV(model, {"regression__C": list(COSTS)}, cv=folds)
        with warnings.catch_warnings(action="ignore"):  # about labels with fewer rows than folds, which are fine here
            self._model = model.fit(vectors, np.asarray(labels))

    def predict(self, vectors: NDArray[np.float32]) -> NDArray[np.str_]:
        """Return the label of each vector (N, D)."""
        labels: NDArray[np.str_] = self._model.predict(vectors)
        return labels


@dataclass(frozen=True)
class Classification:
    """Labelled texts by language, for training and for testing.

    A probe trained in English is tested in every language. A probe trained in another language is tested in English and
    in that language, so that each language adds one probe, not one for every pair.
    """

    name: str
    training: Mapping[str, LabelledRows]
    testing: Mapping[str, LabelledRows]
    seed: int = SEED
    """Of the probes' folds."""

    @property
    def train_languages(self) -> list[str]:
        """Languages of the probes: English first, others only if English is tested; without English, the first."""
        if PIVOT not in self.training:
            return list(self.training)[:1]
        return [PIVOT, *(code for code in self.training if code != PIVOT and PIVOT in self.testing)]

    @property
    def rows(self) -> int:
        """Test rows of the largest language; 0 when there are no training rows."""
        return max(map(len, self.testing.values()), default=0) if self.training else 0

    def check_labels(self) -> None:
        """Check that the training rows cover the labels of the test rows.

        :raises InputError: when there is only one training label, or a test label is missing from the training rows.
        """
        for trained, tested in self._directions().values():
            file, labels = f"{trained}.train.tsv", {label for label, _ in self.training[trained]}
            if len(labels) < MIN_LABELS:
                raise InputError(f"{self.name}: {file} has 1 label; a classifier needs at least {MIN_LABELS}")
            if unknown := {label for label, _ in self.testing[tested]} - labels:
                raise InputError(
                    f"{self.name}: {tested} has label {min(unknown)!r}, which {file} does not have; use the same "
                    "labels in all languages, or remove this file"
                )

    def languages(self) -> set[str]:
        """List the languages trained on or tested."""
        return {code for direction in self._directions().values() for code in direction}

    def sentences(self) -> Iterable[str]:
        """Yield the training texts of all probes, and all test texts."""
        yield from (text for code in self.train_languages for _, text in self.training[code])
        yield from (text for rows in self.testing.values() for _, text in rows)

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the rows in `languages`."""
        training, testing = (
            {code: rows for code, rows in split.items() if code in languages} for split in (self.training, self.testing)
        )
        return replace(self, training=training, testing=testing)

    def every(self, step: int) -> Self:
        """Keep every `step`-th row of each label in each language, so that no label is lost."""
        training, testing = (
            {code: _every_of_each_label(rows, step) for code, rows in split.items()}
            for split in (self.training, self.testing)
        )
        return replace(self, training=training, testing=testing)

    def first_language_only(self) -> Self:
        """Return the same task with a probe for the first training language only."""
        return replace(self, training={code: self.training[code] for code in self.train_languages[:1]})

    def summarize(self, scores: Mapping[str, Hits], reference: Mapping[str, Hits] | None) -> Accuracy:
        """Return the figures of all directions and their averages, and the drop."""
        if len(self.train_languages) == 1:
            metric = f"accuracy of a linear probe trained on {self.train_languages[0]}, %"
        else:
            metric = "accuracy of a linear probe, language learnt > language tested, %"
        figures, averages = summarize_scores(share_figure, scores, reference, self._groups())
        return Accuracy(self.name, "classification", metric, self.rows, figures, averages)

    def _directions(self) -> dict[str, tuple[str, str]]:
        """Return (training language, test language) by the name of the score."""
        if len(self.train_languages) == 1:
            return {tested: (self.train_languages[0], tested) for tested in self.testing}
        return {
            f"{trained}>{tested}": (trained, tested)
            for trained in self.train_languages
            for tested in self.testing
            if trained == PIVOT or tested in (PIVOT, trained)
        }

    def _groups(self) -> dict[str, list[str]]:
        """Return the scores that each average is taken over; empty averages are left out."""
        first, *others = self.train_languages
        crossed = [name for name, (trained, tested) in self._directions().items() if trained == first != tested]
        if others:
            back = [f"{code}>{PIVOT}" for code in others]
            groups = {f"xx>{PIVOT}": back, f"{PIVOT}>xx": crossed, "average": [*back, *crossed]}
        else:
            groups = {"other languages": crossed, "all": list(self.testing)}
        return {name: members for name, members in groups.items() if members}

    def score(self, encode: Encode) -> dict[str, Hits]:
        """Train the probes and tell for each test row whether its prediction is correct, in each direction."""
        probes = {}
        for code in self.train_languages:
            labels, texts = zip(*self.training[code], strict=True)
            probes[code] = Probe(encode(texts), labels, self.seed)
        correct = {}
        for name, (trained, tested) in self._directions().items():
            labels, texts = zip(*self.testing[tested], strict=True)
            correct[name] = probes[trained].predict(encode(texts)) == np.asarray(labels)
        return correct


def _every_of_each_label(rows: LabelledRows, step: int) -> LabelledRows:
    positions: defaultdict[str, count[int]] = defaultdict(count)
    return tuple(row for row in rows if next(positions[row[0]]) % step == 0)
