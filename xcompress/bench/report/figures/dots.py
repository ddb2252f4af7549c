"""Rows of dots with intervals, such as accuracy per language pair."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from xcompress.bench.report.figures.catalogue import Row, accuracies_of, accuracy_rows, row_height
from xcompress.bench.report.figures.style import TITLE_WIDTH, Look, Theme, canvas, head, looks
from xcompress.bench.report.format import label, shorten, wrap
from xcompress.bench.results import Report


def draw_accuracy(report: Report, test: str, theme: Theme) -> Canvas:
    """Draw the averages of a test, in bold, and its figures below them."""
    accuracies = accuracies_of(report, test)
    names = {result.name: label(report, result) for result in report.results if result.name in accuracies}
    metric = next(iter(accuracies.values())).metric
    rows, _ = accuracy_rows(report, test)
    figure, axes = draw_rows(f"Accuracy: {test}", rows, names, looks(report, theme), theme)
    axes.set_xlabel(wrap(f"{metric} (further right is better)", TITLE_WIDTH))
    return figure


def draw_rows(
    title: str, rows: Sequence[Row], names: Mapping[str, str], look: Mapping[str, Look], theme: Theme
) -> tuple[Canvas, Axes]:
    """Draw the rows from the top, with the subjects of each row in the order of `names`.

    :param names: for each subject, its name in the key above the picture.
    """
    figure, axes = canvas(1.15 + 0.2 * ((len(names) + 1) // 2) + row_height(len(names)) * len(rows))
    for number, row in enumerate(rows):
        if number % 2 == 0:
            axes.axhspan(number - 0.5, number + 0.5, color=theme.band, linewidth=0, zorder=0)
        for place, name in enumerate(names):
            if drawn := row.figures.get(name):
                y = number + (place + 1) / (len(names) + 1) - 0.5
                reach = [[max(0.0, drawn.value - drawn.low)], [max(0.0, drawn.high - drawn.value)]]
                axes.errorbar(drawn.value, y, xerr=reach, color=look[name].color, elinewidth=1.4, capsize=2, zorder=3)
                axes.plot(drawn.value, y, **look[name].marker_style(theme, -0.5))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [shorten(row.name) for row in rows])
    for text, row in zip(axes.get_yticklabels(), rows, strict=True):
        text.set_fontweight("bold" if row.strong else "normal")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    key = [(Line2D([], [], **look[subject].marker_style(theme, -0.5)), name) for subject, name in names.items()]
    head(figure, title, key)
    return figure, axes
