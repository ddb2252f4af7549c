"""Latency of one call: against the number of tokens, or shape by shape where the grid has no two lengths."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from xcompress.bench.report.figures.dots import Row, Span, draw_rows
from xcompress.bench.report.figures.format import label, shape_text
from xcompress.bench.report.figures.labels import apart
from xcompress.bench.report.figures.style import Look, Theme, canvas, head, looks
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import Latency, Report, Result

LINE_POINTS = 11.5
"""Height of a line of text."""


def draw(report: Report, threads: int, theme: Theme) -> Canvas:
    """Draw what was timed with so many threads."""
    return _lines(report, threads, theme) if is_line(report, threads) else _shapes(report, threads, theme)


def is_line(report: Report, threads: int) -> bool:
    """Tell whether single sentences of several lengths were timed."""
    return len({one.tokens for result in report.results for one in _single(result, threads)}) > 1


def timed(result: Result, threads: int) -> list[Latency]:
    """Return a subject's measurements with so many threads."""
    return [one for one in result.latency if one.threads == threads]


def _single(result: Result, threads: int) -> list[Latency]:
    return sorted((one for one in timed(result, threads) if one.batch == 1), key=lambda one: one.tokens)


def _lines(report: Report, threads: int, theme: Theme) -> Canvas:
    subjects = [one for one in report.results if _single(one, threads)]
    names = [label(report, one, 22) for one in subjects]
    lines = max(name.count("\n") + 1 for name in names)
    height = max(3.8, 1.2 + len(names) * (lines * LINE_POINTS + 4) / 72)
    figure, axes = canvas(height)
    head(figure, f"Latency of one sentence by length, {threads_text(threads)}")
    look = looks(report, theme)
    for number, subject in enumerate(subjects):
        _line(axes, _single(subject, threads), look[subject.name], (number - len(subjects) / 2) * 0.012, theme)
    _scales(axes, report)
    ends = [_single(one, threads)[-1] for one in subjects]
    _ends(figure, axes, ends, names, [look[one.name] for one in subjects], lines * LINE_POINTS + 4)
    return figure


def _line(axes: Axes, latency: Sequence[Latency], look: Look, aside: float, theme: Theme) -> None:
    """Draw one subject; a little aside, so that whiskers do not cover each other."""
    x = [one.tokens * 2**aside for one in latency]
    p50 = [one.p50 * 1e3 for one in latency]
    whiskers = [[0.0] * len(latency), [max(0.0, one.p95 - one.p50) * 1e3 for one in latency]]
    axes.errorbar(x, p50, yerr=whiskers, fmt="none", ecolor=look.colour, elinewidth=1.2, capsize=3, zorder=3)
    axes.plot(x, p50, color=look.colour, linestyle=look.dash, linewidth=1.8, zorder=3)
    axes.plot(
        x,
        p50,
        look.marker,
        color=look.colour,
        markersize=look.size,
        markeredgecolor=theme.ink,
        markeredgewidth=0.7,
        zorder=4,
    )


def _scales(axes: Axes, report: Report) -> None:
    """Set the same scales whatever the number of threads."""
    every = [one for result in report.results for one in result.latency if one.batch == 1]
    lengths = sorted({one.tokens for one in every})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
    axes.set_ylim(min(one.p50 for one in every) * 1e3 / 1.5, max(max(one.p95, one.p50) for one in every) * 1e3 * 1.5)
    axes.set_xticks(lengths, [str(one) for one in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("tokens of the sentence, log scale")
    axes.set_ylabel("ms, log scale (lower is better)")


def _ends(
    figure: Canvas, axes: Axes, ends: Sequence[Latency], names: Sequence[str], drawn: Sequence[Look], gap: float
) -> None:
    """Write the names at the right, each as high as its line ends there or as near to it as there is room."""
    heights = [_height(axes, end.p50 * 1e3) for end in ends]
    texts = [axes.text(1.06, 0.5, name, transform=axes.transAxes, va="center", fontsize=9) for name in names]
    figure.draw_without_rendering()
    room = axes.get_window_extent().height * 72 / figure.dpi
    for text, end, wanted, place, look in zip(
        texts, ends, heights, apart(heights, gap / room, 0.0, 1.0), drawn, strict=True
    ):
        text.set_y(place)
        text.set_fontweight("bold" if look.reference else "normal")
        start = _across(axes, end.tokens)
        axes.plot(
            [start, 1.05], [wanted, place], transform=axes.transAxes, color=look.colour, linewidth=0.9, clip_on=False
        )


def _height(axes: Axes, milliseconds: float) -> float:
    """Return where a value lies between the lower (0) and the upper end (1)."""
    return float(axes.transAxes.inverted().transform(axes.transData.transform((1, milliseconds)))[1])


def _across(axes: Axes, tokens: int) -> float:
    return float(axes.transAxes.inverted().transform(axes.transData.transform((tokens, 1)))[0])


def _shapes(report: Report, threads: int, theme: Theme) -> Canvas:
    """Draw dots, not bars: times of one sentence and of a batch need a log scale, which has no zero to start from."""
    found = {one.name: timed(one, threads) for one in report.results if timed(one, threads)}
    names = {one.name: label(report, one) for one in report.results if one.name in found}
    shapes = list(dict.fromkeys(shape_text(one) for latency in found.values() for one in latency))
    rows = [Row(shape, _spans(found, shape)) for shape in shapes]
    title = f"Latency by batch × tokens, {threads_text(threads)}"
    figure, axes = draw_rows(title, rows, names, looks(report, theme), theme)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("ms, log scale (further left is better)")
    return figure


def _spans(found: dict[str, list[Latency]], shape: str) -> dict[str, Span]:
    return {
        name: Span(one.p50 * 1e3, one.p50 * 1e3, max(one.p95, one.p50) * 1e3)
        for name, latency in found.items()
        for one in latency
        if shape_text(one) == shape
    }
