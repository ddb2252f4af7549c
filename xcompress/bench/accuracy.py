"""Accuracy of vectors: graded similarity and translation retrieval, on the same sentences for every subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.subjects import Place
from xcompress.corpus.similarity import PIVOT, Encode, GradedSet, averages, builtin, read_folder, score
from xcompress.errors import InputError
from xcompress.files import hash_of
from xcompress.metrics import retrieval_accuracy

RETRIEVAL_PAIRS = 100
"""Translations per language among which the right one has to be found; a 12-layer model takes longest with these."""
QUICK_PAIRS = 50
QUICK_STEP = 3
"""A quick bench takes every third row of the graded set."""
SPEARMAN = "Spearman x 100"
RETRIEVAL = "retrieval"
NEAREST = "nearest neighbour, %"

Translations = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Accuracy:
    """One subject's figures on one test."""

    test: str
    metric: str
    rows: int
    """Rows of each language pair or, for retrieval, of the largest language."""
    figures: dict[str, float]
    """By language pair or, for retrieval, by language."""
    averages: dict[str, float]


@dataclass(frozen=True)
class Exam:
    """Everything a subject is asked."""

    graded: tuple[GradedSet, ...]
    """The built-in set first."""
    retrieval: Mapping[str, Translations]
    """English sentences and their translations, by language."""

    def sentences(self) -> list[str]:
        """List every distinct sentence once, shortest first, so that a batch holds sentences of like length."""
        graded = (text for graded_set in self.graded for text in graded_set.sentences())
        retrieval = (text for rows in self.retrieval.values() for pair in rows for text in pair)
        return sorted(dict.fromkeys([*graded, *retrieval]), key=len)

    def mark(self, sentences: Sequence[str], vectors: NDArray[np.float32]) -> tuple[Accuracy, ...]:
        """Score the vectors (n, D) of `sentences` on every test."""
        place = {text: row for row, text in enumerate(sentences)}

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            return vectors[[place[text] for text in texts]]

        graded = tuple(mark_similarity(encode, graded_set) for graded_set in self.graded)
        return graded + ((mark_retrieval(encode, self.retrieval),) if self.retrieval else ())


def mark_similarity(encode: Encode, graded_set: GradedSet) -> Accuracy:
    """Score graded similarity."""
    figures = score(encode, graded_set)
    rows = max(map(len, graded_set.language_pairs.values()))
    return Accuracy(graded_set.name, SPEARMAN, rows, figures, averages(figures))


def mark_retrieval(encode: Encode, retrieval: Mapping[str, Translations]) -> Accuracy:
    """Score how often a translation is found among those of its language."""
    figures = {}
    for language, rows in retrieval.items():
        english, translated = zip(*rows, strict=True)
        figures[language] = retrieval_accuracy(encode(english), encode(translated))
    mean = sum(figures.values()) / len(figures)
    return Accuracy(RETRIEVAL, NEAREST, max(map(len, retrieval.values())), figures, {"average": mean})


def prepare(place: Place, data: Path | None, quick: bool) -> Exam:
    """Gather the tests: the built-in set, the run's held-out translations, and `data` in the run's languages.

    :raises InputError: when a file is not what it should be.
    """
    graded = builtin().every(QUICK_STEP if quick else 1)
    retrieval = read_holdouts(place.run / "corpus", QUICK_PAIRS if quick else RETRIEVAL_PAIRS) if place.run else {}
    return Exam((graded, *_extra(data, retrieval, quick)), retrieval)


def _extra(data: Path | None, retrieval: Mapping[str, Translations], quick: bool) -> list[GradedSet]:
    if data is None:
        return []
    extra = read_folder(data).every(QUICK_STEP if quick else 1)
    if retrieval:
        extra = extra.within([PIVOT, *retrieval])
    if not extra.language_pairs:
        raise InputError(
            f"{data}: no language pair of {PIVOT}, {', '.join(retrieval)}; use a set in the run's languages"
        )
    return [extra]


def read_holdouts(folder: Path, most: int) -> dict[str, Translations]:
    """Read `holdout.<lang>.tsv` files of `english<TAB>translation`, by language.

    :param most: rows kept per language; which ones depends on the English sentence alone, so that languages that share
        sentences keep the same ones and those are encoded once.
    :raises InputError: naming file and line.
    """
    found = {path.name.split(".")[1]: _translations(path) for path in sorted(folder.glob("holdout.*.tsv"))}
    return {language: _sample(rows, most) for language, rows in found.items() if len(rows) > 1}


def _translations(path: Path) -> list[tuple[str, str]]:
    """Read the rows of one file, without those that repeat a sentence of either side."""
    english_seen: set[str] = set()
    other_seen: set[str] = set()
    rows = []
    for number, line in enumerate(_lines(path), 1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise InputError(f"{path}:{number}: {len(cells)} columns instead of 2 (english, translation); correct it")
        english, other = cells
        if english not in english_seen and other not in other_seen:
            rows.append((english, other))
        english_seen.add(english)
        other_seen.add(other)
    return rows


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8") as stream:
            return [line.rstrip("\n") for line in stream]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); make the corpus again") from error


def _sample(rows: list[tuple[str, str]], most: int) -> Translations:
    return tuple(sorted(rows, key=lambda row: hash_of(row[0]))[:most])
