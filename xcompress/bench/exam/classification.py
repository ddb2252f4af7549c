"""Zero-shot classification across languages: a linear probe learns in one language and is tested in the others."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from xcompress.bench.exam.bootstrap import Scores, percentage
from xcompress.bench.exam.marking import figures
from xcompress.bench.exam.probe import Probe
from xcompress.bench.results import Accuracy
from xcompress.corpus.similarity import PIVOT, Encode
from xcompress.errors import InputError

Labelled = tuple[tuple[str, str], ...]
"""Rows of label and text."""
LEAST = 2
"""Labels to tell apart."""


@dataclass(frozen=True)
class Classification:
    """Labelled texts by language, to learn from and to be tested on."""

    name: str
    training: Mapping[str, Labelled]
    testing: Mapping[str, Labelled]

    @property
    def learnt(self) -> str:
        """The language that is learnt from: English, or else the first."""
        return PIVOT if PIVOT in self.training else next(iter(self.training))

    @property
    def rows(self) -> int:
        """Rows of the largest language tested; 0 where there is nothing to learn from."""
        return max(map(len, self.testing.values()), default=0) if self.training else 0

    def check(self) -> None:
        """Make sure that the labels tested can be learnt.

        :raises InputError: when there is only one label to learn, or one that is tested cannot be learnt.
        """
        labels = {label for label, _ in self.training[self.learnt]}
        if len(labels) < LEAST:
            raise InputError(f"{self.name}: {self.learnt}.train.tsv has 1 label; a classifier needs at least {LEAST}")
        for code, tested in self.testing.items():
            if new := {label for label, _ in tested} - labels:
                raise InputError(
                    f"{self.name}: {code} has label {min(new)!r}, which {self.learnt}.train.tsv does not have; "
                    "labels are the same in all languages"
                )

    def languages(self) -> set[str]:
        """List the languages tested."""
        return set(self.testing)

    def sentences(self) -> Iterable[str]:
        """Give the texts learnt from and all texts tested."""
        yield from (text for _, text in self.training[self.learnt])
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

    def mark(self, encode: Encode, base: Encode | None) -> Accuracy:
        """Train the probe and count the right labels; a bootstrap draw holds tested rows, the probe stays as it is."""
        others = [code for code in self.testing if code != self.learnt]
        groups = {"other languages": others, "all": list(self.testing)}
        given = {name: codes for name, codes in groups.items() if codes}
        single, averages = figures(self._scores(encode), self._scores(base) if base else None, given)
        metric = f"accuracy of a linear probe trained on {self.learnt}, %"
        return Accuracy(self.name, "classification", metric, self.rows, single, averages)

    def _scores(self, encode: Encode) -> dict[str, Scores]:
        labels, texts = zip(*self.training[self.learnt], strict=True)
        probe = Probe(encode(texts), labels)

        def score(rows: Labelled) -> Scores:
            expected, asked = zip(*rows, strict=True)
            return percentage(probe.label(encode(asked)) == np.asarray(expected))

        return {code: score(rows) for code, rows in self.testing.items()}
