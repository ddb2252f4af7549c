"""A dot plot: rows of values with their intervals, a dot for each subject in every row."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from xcompress.bench.figures.spans import Row, row_height
from xcompress.bench.figures.style import Look, Theme, canvas, head


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
