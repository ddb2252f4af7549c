"""Latency of one call: lines over the number of tokens, or dots by shape where only one length was timed."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import NullLocator

from xcompress.bench.report.figures.catalogue import Row
from xcompress.bench.report.figures.dots import draw_rows
from xcompress.bench.report.figures.labels import apart
from xcompress.bench.report.figures.style import Look, Theme, canvas, head, label_log_axis, looks
from xcompress.bench.report.format import label, shape_text, threads_text
from xcompress.bench.results import Figure, Latency, Report, Result

LINE_POINTS = 11.5
"""Height of a line of text."""


def draw_latency(report: Report, threads: int, theme: Theme) -> Canvas:
    """Draw the latencies with this number of threads."""
    return _draw_lines(report, threads, theme) if has_lines(report, threads) else _draw_shapes(report, threads, theme)


def has_lines(report: Report, threads: int) -> bool:
    """Tell whether single sentences of several lengths were timed."""
    return len({latency.tokens for result in report.results for latency in _single(result, threads)}) > 1


def _single(result: Result, threads: int) -> list[Latency]:
    """Return the latencies of one sentence by length."""
    timed = (latency for latency in result.latency if latency.threads == threads and latency.batch == 1)
    return sorted(timed, key=lambda latency: latency.tokens)


def _draw_lines(report: Report, threads: int, theme: Theme) -> Canvas:
    subjects = [result for result in report.results if _single(result, threads)]
    names = [label(report, result, 22) for result in subjects]
    gap = max(name.count("\n") + 1 for name in names) * LINE_POINTS + 4
    figure, axes = canvas(max(3.8, 1.2 + len(names) * gap / 72))
    head(figure, f"Latency of one sentence by length, {threads_text(threads)}")
    look = looks(report, theme)
    for number, subject in enumerate(subjects):
        aside = (number - len(subjects) / 2) * 0.012
        _draw_line(axes, _single(subject, threads), look[subject.name], aside, theme)
    _set_scales(axes, report)
    ends = [_single(subject, threads)[-1] for subject in subjects]
    _label_ends(figure, axes, ends, names, [look[subject.name] for subject in subjects], gap)
    return figure


def _draw_line(axes: Axes, latency: Sequence[Latency], look: Look, aside: float, theme: Theme) -> None:
    """Draw one subject, shifted aside a little so that whiskers do not cover each other."""
    x = [timed.tokens * 2**aside for timed in latency]
    p50 = [timed.p50 * 1e3 for timed in latency]
    whiskers = [[0.0] * len(latency), [max(0.0, timed.p95 - timed.p50) * 1e3 for timed in latency]]
    axes.errorbar(x, p50, yerr=whiskers, fmt="none", ecolor=look.color, elinewidth=1.2, capsize=3, zorder=3)
    axes.plot(x, p50, color=look.color, linestyle=look.dash, linewidth=1.8, zorder=3)
    axes.plot(x, p50, **look.marker_style(theme))


def _set_scales(axes: Axes, report: Report) -> None:
    """Set scales that do not depend on the number of threads."""
    timed = [latency for result in report.results for latency in result.latency if latency.batch == 1]
    lengths = sorted({latency.tokens for latency in timed})
    lowest = min(latency.p50 for latency in timed)
    highest = max(max(latency.p95, latency.p50) for latency in timed)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(lengths[0] / 1.15, lengths[-1] * 1.15)
    axes.set_ylim(lowest * 1e3 / 1.5, highest * 1e3 * 1.5)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    label_log_axis(axes.yaxis)
    axes.set_xlabel("tokens of the sentence, log scale")
    axes.set_ylabel("ms, log scale (lower is better)")


def _label_ends(
    figure: Canvas, axes: Axes, ends: Sequence[Latency], names: Sequence[str], drawn: Sequence[Look], gap: float
) -> None:
    """Write each name at the right, as near as possible to the height where its line ends."""

    def in_axes(x: float, y: float) -> tuple[float, float]:
        """Convert data to axes coordinates, 0 to 1."""
        across, up = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
        return float(across), float(up)

    heights = [in_axes(1, end.p50 * 1e3)[1] for end in ends]
    texts = [axes.text(1.06, 0.5, name, transform=axes.transAxes, va="center", fontsize=9) for name in names]
    figure.draw_without_rendering()
    height = axes.get_window_extent().height * 72 / figure.dpi
    places = apart(heights, gap / height, 0.0, 1.0)
    for text, end, wanted, place, look in zip(texts, ends, heights, places, drawn, strict=True):
        text.set_y(place)
        text.set_fontweight("bold" if look.reference else "normal")
        start = in_axes(end.tokens, 1)[0]
        axes.plot(
            [start, 1.05], [wanted, place], transform=axes.transAxes, color=look.color, linewidth=0.9, clip_on=False
        )


def _draw_shapes(report: Report, threads: int, theme: Theme) -> Canvas:
    """Draw dots, not bars: times of one sentence and of a batch need a log scale, which has no zero for bars."""
    rows: dict[str, dict[str, Figure]] = {}
    for result in report.results:
        for timed in result.latency:
            if timed.threads == threads:
                whisker = Figure(timed.p50 * 1e3, timed.p50 * 1e3, timed.p95 * 1e3)
                rows.setdefault(shape_text(timed, " × "), {})[result.name] = whisker
    subjects = {name for row in rows.values() for name in row}
    names = {result.name: label(report, result) for result in report.results if result.name in subjects}
    title = f"Latency by batch × tokens, {threads_text(threads)}"
    drawn = [Row(shape, row) for shape, row in rows.items()]
    figure, axes = draw_rows(title, drawn, names, looks(report, theme), theme)
    axes.set_xscale("log")
    label_log_axis(axes.xaxis)
    axes.set_xlabel("ms, log scale (further left is better)")
    return figure
