"""Accuracy per language pair, with intervals."""

from matplotlib.figure import Figure as Canvas

from xcompress.bench.figures.rows import draw_rows
from xcompress.bench.figures.spans import having, rows_of
from xcompress.bench.figures.style import LINE, Theme, looks
from xcompress.bench.figures.words import label, wrapped
from xcompress.bench.results import Report


def draw(report: Report, test: str, theme: Theme) -> Canvas:
    """Draw the averages of a test in bold and its figures below them."""
    found = having(report, test)
    names = {one.name: label(report, one) for one in report.results if one.name in found}
    metric = next(iter(found.values())).metric
    rows, _ = rows_of(report, test)
    figure, axes = draw_rows(f"Accuracy: {test}", rows, names, looks(report, theme), theme)
    axes.set_xlabel(wrapped(f"{metric} (further right is better)", LINE))
    return figure
