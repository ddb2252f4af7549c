"""Read pairs with labels: similarity scores, or whether the first sentence entails the second."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from xcompress.console import warn
from xcompress.corpus.graded import read_aligned_files
from xcompress.corpus.lines import BadLineError, Tally, table_rows
from xcompress.corpus.normalise import is_visible
from xcompress.corpus.pairs import EMPTY, check_read
from xcompress.errors import InputError

RELATIONS = ("entailment", "neutral", "contradiction")
"""How a hypothesis relates to its premise; labels are positions in this tuple."""
HIGHEST = 5
"""The score of two sentences that mean the same."""
NO_SCORE = f"no score from 0 to {HIGHEST}"


@dataclass(frozen=True, slots=True)
class GradedPair:
    """Two sentences and their similarity as judged by people, from 0, unrelated, to 1, the same meaning."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class Entailment:
    """A premise, a hypothesis and their relation, as a position in `RELATIONS`."""

    premise: str
    hypothesis: str
    label: int


LabelledPair = TypeVar("LabelledPair", GradedPair, Entailment)


def read_graded(path: Path) -> list[GradedPair]:
    """Read graded pairs: lines of sentence, sentence, score from 0 to 5, without a header.

    The suffix names the format: .csv, where a cell may be quoted, or .tsv; a further .gz or .xz is unpacked. Bad lines
    are left out with a warning. Of lines with the same two sentences, the first is kept.

    :returns: pairs with scores scaled to 0 ... 1.
    :raises InputError: when the file cannot be read, or more than half of its lines are bad.
    """

    def parse(first: str, second: str, others: list[str]) -> GradedPair:
        if len(others) > 1:
            raise BadLineError("more than three columns")
        try:
            score = float(others[0])
        except ValueError as error:
            raise BadLineError(NO_SCORE) from error
        if not 0 <= score <= HIGHEST:  # also refuses NaN
            raise BadLineError(NO_SCORE)
        return GradedPair(first, second, score / HIGHEST)

    pairs = _read(path, parse, f"sentence, sentence, score from 0 to {HIGHEST}")
    _warn_of_low_scores(path, pairs)
    return pairs


def read_aligned_graded(files: Mapping[str, Path], seed: int) -> list[GradedPair]:
    """Read graded pairs in several languages, with the same pair and score in row n of all files.

    :param files: two or more, by language.
    :param seed: draws the second language of the pairs in two languages.
    :returns: two pairs for each row and language, with scores scaled to 0 ... 1: one with both sentences in that
        language, and one with the second sentence in another.
    :raises InputError: when a file cannot be read, or naming the row that is not as it should be.
    """
    kinds = {table_kind(path) for path in files.values()}
    if len(kinds) > 1:
        raise InputError(f"{', '.join(map(str, files.values()))}: some are .csv and some .tsv; use one format")
    tables = read_aligned_files(files, kinds.pop())
    generator = random.Random(seed)
    pairs = []
    for language, table in tables.items():
        others = [other for other in tables if other != language]
        for row, (first, second, score) in enumerate(zip(table.first, table.second, table.scores, strict=True)):
            if not 0 <= score <= HIGHEST:
                raise InputError(f"{files[language]}: row {row + 1} has {NO_SCORE}; correct it")
            pairs.append(GradedPair(first, second, score / HIGHEST))
            pairs.append(GradedPair(first, tables[generator.choice(others)].second[row], score / HIGHEST))
    _warn_of_low_scores(next(iter(files.values())), pairs)
    return pairs


def _warn_of_low_scores(path: Path, pairs: Sequence[GradedPair]) -> None:
    """Warn where all scores may be on another scale: copies of the STS benchmark have it from 0 to 1."""
    if max(pair.score for pair in pairs) <= 1 / HIGHEST:
        warn(f"{path}: no score is above 1, of {HIGHEST}; if they are from 0 to 1, multiply them by {HIGHEST}")


def read_entailment(path: Path) -> list[Entailment]:
    """Read entailment pairs: lines of premise, hypothesis, and entailment, neutral or contradiction in any case.

    The label is the first cell after the second that is one of these words; other cells are ignored, such as SICK's
    score before it. A line with a number or a label in one of the first two cells, as in the published files of SICK,
    SNLI and XNLI, is bad. Otherwise as `read_graded`.

    :raises InputError: when the file cannot be read, or more than half of its lines are bad.
    """

    def parse(premise: str, hypothesis: str, others: list[str]) -> Entailment:
        if any(cell.isdecimal() or cell.casefold() in RELATIONS for cell in (premise, hypothesis)):
            raise BadLineError("a number or a label in place of a sentence")
        for cell in others:
            if cell.casefold() in RELATIONS:
                return Entailment(premise, hypothesis, RELATIONS.index(cell.casefold()))
        raise BadLineError("no label")

    return _read(path, parse, f"premise, hypothesis, {'|'.join(RELATIONS)}")


def table_kind(path: Path) -> Literal["csv", "tsv"]:
    """Return the format that a file's suffix names.

    :raises InputError: when it is neither.
    """
    suffix = Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix
    if suffix not in (".csv", ".tsv"):
        raise InputError(f"{path}: expected .csv or .tsv, optionally with .gz or .xz; write it as one of them")
    return "csv" if suffix == ".csv" else "tsv"


def _read(path: Path, parse: Callable[[str, str, list[str]], LabelledPair], layout: str) -> list[LabelledPair]:
    tally = Tally(path)
    pairs: dict[tuple[str, str], LabelledPair] = {}
    for number, cells in table_rows(path, table_kind(path)):
        if not is_visible("".join(cells)):
            continue
        try:
            if len(cells) < 3:
                raise BadLineError("fewer than three columns")
            if not all(is_visible(cell) for cell in cells[:2]):
                raise BadLineError(EMPTY)
            first, second, *others = (" ".join(cell.split()) for cell in cells)
            pair = parse(first, second, others)
        except BadLineError as error:
            tally.add(str(error), number)
            continue
        tally.good += 1
        pairs.setdefault((first, second), pair)
    check_read(tally, f"{layout}, one pair per line")
    return list(pairs.values())
