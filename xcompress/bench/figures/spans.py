"""What a dot plot shows: rows of values, each from where to where it may lie."""

from collections.abc import Mapping
from dataclasses import dataclass

from xcompress.bench.figures.headline import figures_of
from xcompress.bench.results import Accuracy, Figure, Report

ROOM = 8.2
"""Inches for all rows of a picture that has to fit a page."""
DOT = 0.105
"""Inches between the dots of one row."""


@dataclass(frozen=True)
class Span:
    """A value, and from where to where it may lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """What all subjects have of one thing."""

    name: str
    spans: Mapping[str, Span]
    """By subject."""
    strong: bool = False


def row_height(subjects: int) -> float:
    """Return how many inches a row needs."""
    return max(0.3, DOT * (subjects + 1))


def rows_of(report: Report, test: str) -> tuple[list[Row], int]:
    """Return the rows drawn, and how many there are in all; of too many, those in which subjects differ most stay."""
    found = having(report, test)
    averages = list(dict.fromkeys(name for one in found.values() for name in one.averages))
    figures = dict.fromkeys(name for one in found.values() for name in figures_of(one))
    others = [_row(found, name, False) for name in figures if name not in averages]
    rows = [_row(found, name, True) for name in averages]
    widest = sorted(others, key=_range, reverse=True)[: max(1, int(ROOM / row_height(len(found))) - len(rows))]
    return rows + [row for row in others if row in widest], len(rows) + len(others)


def having(report: Report, test: str) -> dict[str, Accuracy]:
    """Return a test's outcome by subject, for those that have it."""
    return {result.name: one for result in report.results for one in result.accuracy if one.test == test}


def _row(found: dict[str, Accuracy], name: str, strong: bool) -> Row:
    figures = {subject: figures_of(one).get(name) for subject, one in found.items()}
    return Row(name, {subject: _span(figure) for subject, figure in figures.items() if figure}, strong)


def _span(figure: Figure) -> Span:
    return Span(figure.value, min(figure.low, figure.value), max(figure.high, figure.value))


def _range(row: Row) -> float:
    values = [span.value for span in row.spans.values()]
    return max(values) - min(values)
