"""English pairs with labels: how similar two sentences are, or whether the first entails the second."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from xcompress.console import warn
from xcompress.corpus.bad_lines import EMPTY, BadLineError, Tally
from xcompress.corpus.lines import text_lines
from xcompress.corpus.normalise import is_visible
from xcompress.errors import InputError

RELATIONS = ("entailment", "neutral", "contradiction")
"""What a hypothesis can be to its premise; labels are places in here."""
HIGHEST = 5
"""The score of two sentences that mean the same."""
TOO_FEW = "fewer than three columns"
TOO_MANY = "more than three columns"
NO_SCORE = f"no score from 0 to {HIGHEST}"
NO_RELATION = "no label"


@dataclass(frozen=True, slots=True)
class GradedPair:
    """Two sentences and how similar people find them, from 0, unrelated, to 1, the same meaning."""

    first: str
    second: str
    score: float


@dataclass(frozen=True, slots=True)
class Entailment:
    """Two sentences and what the second is to the first, as a place in `RELATIONS`."""

    premise: str
    hypothesis: str
    label: int


Labelled = TypeVar("Labelled", GradedPair, Entailment)


def read_graded(path: Path) -> list[GradedPair]:
    """Read graded pairs: lines of sentence, sentence, score from 0 to 5, without a header.

    The name says how columns are told apart: .csv, where a cell may stand in double quotes, or .tsv; .gz and .xz after
    that are unpacked. Lines that are no such pair are left out with a warning. Of lines with the same two sentences the
    first stays.

    :returns: pairs with scores scaled to 0 ... 1.
    :raises InputError: when the file cannot be read, or more than half of its lines are bad.
    """
    return _read(path, _graded, f"sentence, sentence, score from 0 to {HIGHEST}")


def read_entailment(path: Path) -> list[Entailment]:
    """Read entailment pairs: lines of premise, hypothesis, and entailment, neutral or contradiction in any case.

    Other columns after the second are ignored: the label is the first that is one of these words, so that SICK's files,
    which have a score before it, are read as they are. Else as `read_graded`.

    :raises InputError: when the file cannot be read, or more than half of its lines are bad.
    """
    return _read(path, _entailment, f"premise, hypothesis, {'|'.join(RELATIONS)}")


def _read(path: Path, labelled: Callable[[str, str, list[str]], Labelled], layout: str) -> list[Labelled]:
    tally = Tally(path)
    found: dict[tuple[str, str], Labelled] = {}
    for number, cells in _numbered(path):
        try:
            first, second, *others = _tidied(cells)
            one = labelled(first, second, others)
        except BadLineError as error:
            tally.add(str(error), number)
            continue
        tally.good += 1
        found.setdefault((first, second), one)
    _refuse(tally, layout)
    return list(found.values())


def _refuse(tally: Tally, layout: str) -> None:
    """Refuse a file that is more bad than good; warn of one that is not all good."""
    if not tally.good + tally.bad.total():
        raise InputError(f"{tally.path}: it is empty; write {layout}, a pair a line")
    if tally.bad.total() > tally.good:
        raise InputError(f"{tally.path}: {tally}; write {layout}, a pair a line")
    if tally.bad:
        warn(f"{tally.path}: {tally}; the rest is used")


def _graded(first: str, second: str, others: list[str]) -> GradedPair:
    if len(others) > 1:
        raise BadLineError(TOO_MANY)
    return GradedPair(first, second, _score(others[0]) / HIGHEST)


def _score(cell: str) -> float:
    try:
        score = float(cell)
    except ValueError as error:
        raise BadLineError(NO_SCORE) from error
    if not 0 <= score <= HIGHEST:  # so that NaN is refused, too
        raise BadLineError(NO_SCORE)
    return score


def _entailment(premise: str, hypothesis: str, others: list[str]) -> Entailment:
    for cell in others:
        if cell.casefold() in RELATIONS:
            return Entailment(premise, hypothesis, RELATIONS.index(cell.casefold()))
    raise BadLineError(NO_RELATION)


def _tidied(cells: list[str]) -> list[str]:
    """Return three or more cells without white space around or doubled in them, the first two of which are texts."""
    if len(cells) < 3:
        raise BadLineError(TOO_FEW)
    if not all(is_visible(cell) for cell in cells[:2]):
        raise BadLineError(EMPTY)
    return [" ".join(cell.split()) for cell in cells]


def _numbered(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each line that is not blank, with the line's number."""
    kind = Path(path.stem).suffix if path.suffix in (".gz", ".xz") else path.suffix
    if kind not in (".csv", ".tsv"):
        raise InputError(f"{path}: neither .csv nor .tsv, before .gz or .xz; rename the file after what it is")
    for number, cells in _csv(path) if kind == ".csv" else _tsv(path):
        if is_visible("".join(cells)):
            yield number, cells


def _tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text_lines(path), 1):
        yield number, line.rstrip("\r\n").split("\t")


def _csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text_lines(path), strict=True)  # else an open quote swallows the rest of the file
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: no CSV ({error}); correct its quotes") from error
