"""Accuracy per language pair, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from xcompress.bench.report.figures.format import label, wrapped
from xcompress.bench.report.figures.headline import figures_of
from xcompress.bench.report.figures.style import LINE, Look, Theme, canvas, head, looks
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


def draw_rows(
    title: str, rows: Sequence[Row], names: Mapping[str, str], look: Mapping[str, Look], theme: Theme
) -> tuple[Canvas, Axes]:
    """Draw the first row on top, and in each row the subjects in the order of `names` from the top.

    :param names: what each subject is called in the key above the picture.
    """
    high = row_height(len(names))
    figure, axes = canvas(1.15 + 0.2 * ((len(names) + 1) // 2) + high * len(rows))
    for number, row in enumerate(rows):
        if number % 2 == 0:
            axes.axhspan(number - 0.5, number + 0.5, color=theme.band, linewidth=0, zorder=0)
        _dots(axes, number, row, list(names), look, theme)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row.strong else "normal")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    head(figure, title, [(_marker(look[subject], theme, [], []), name) for subject, name in names.items()])
    return figure, axes


def _dots(axes: Axes, number: int, row: Row, names: list[str], look: Mapping[str, Look], theme: Theme) -> None:
    for place, name in enumerate(names):
        if span := row.spans.get(name):
            y = number + (place + 1) / (len(names) + 1) - 0.5
            reach = [[span.value - span.low], [span.high - span.value]]
            axes.errorbar(span.value, y, xerr=reach, color=look[name].colour, elinewidth=1.4, capsize=2, zorder=3)
            axes.add_line(_marker(look[name], theme, [span.value], [y]))


def _marker(look: Look, theme: Theme, x: list[float], y: list[float]) -> Line2D:
    return Line2D(
        x,
        y,
        marker=look.marker,
        color=look.colour,
        markersize=look.size - 0.5,
        markeredgecolor=theme.ink,
        markeredgewidth=0.7,
        linestyle="none",
        zorder=4,
    )


def draw(report: Report, test: str, theme: Theme) -> Canvas:
    """Draw the averages of a test in bold and its figures below them."""
    found = having(report, test)
    names = {one.name: label(report, one) for one in report.results if one.name in found}
    metric = next(iter(found.values())).metric
    rows, _ = rows_of(report, test)
    figure, axes = draw_rows(f"Accuracy: {test}", rows, names, looks(report, theme), theme)
    axes.set_xlabel(wrapped(f"{metric} (further right is better)", LINE))
    return figure
