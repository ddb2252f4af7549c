"""Pictures of accuracy as rows of dots, of latency as lines over the number of tokens, and of memory as bars."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

from xcompress.bench.report.format import in_megabytes, label, shape_text, shorten, threads_text, whisker_end, wrap
from xcompress.bench.report.headlines import accuracies_of
from xcompress.bench.report.pictures.catalogue import Row, accuracy_rows, row_height
from xcompress.bench.report.pictures.labels import apart
from xcompress.bench.report.pictures.style import (
    COLOURS,
    LIGHT,
    TITLE_WIDTH,
    Look,
    Theme,
    canvas,
    head,
    label_log_axis,
    looks,
)
from xcompress.bench.results import Figure, Latency, Memory, Report, Result

LINE_POINTS = 11.5
"""Height of a line of text."""
EDGE: dict[str, Any] = {"edgecolor": LIGHT.ink, "linewidth": 0.7}
"""Dark in both themes, because the fill colours are bright."""
MODEL = EDGE | {"facecolor": COLOURS[5]}
TOKENIZER = EDGE | {"facecolor": COLOURS[4], "hatch": "///"}
BAR_HEIGHT = 0.52


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


def draw_latency(report: Report, threads: int, theme: Theme) -> Canvas:
    """Draw the latencies with this number of threads: lines over the length, or dots where one length was timed."""
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
    whiskers = [[0.0] * len(latency), [(whisker_end(timed) - timed.p50) * 1e3 for timed in latency]]
    axes.errorbar(x, p50, yerr=whiskers, fmt="none", ecolor=look.color, elinewidth=1.2, capsize=3, zorder=3)
    axes.plot(x, p50, color=look.color, linestyle=look.dash, linewidth=1.8, zorder=3)
    axes.plot(x, p50, **look.marker_style(theme))


def _set_scales(axes: Axes, report: Report) -> None:
    """Set scales that do not depend on the number of threads."""
    timed = [latency for result in report.results for latency in result.latency if latency.batch == 1]
    lengths = sorted({latency.tokens for latency in timed})
    lowest = min(latency.p50 for latency in timed)
    highest = max(map(whisker_end, timed))
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
                whisker = Figure(timed.p50 * 1e3, timed.p50 * 1e3, whisker_end(timed) * 1e3)
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


def draw_memory(report: Report, theme: Theme) -> Canvas:
    """Draw the subjects whose memory was measured, the first on top."""
    bars = [(label(report, result, 26), result.memory) for result in report.results if result.memory]
    figure, axes = canvas(1.6 + 0.5 * len(bars))
    for number, (_, memory) in enumerate(bars):
        tokenizer = min(memory.tokenizer or 0, memory.resident) / 1e6
        rest = memory.resident / 1e6 - tokenizer
        for width, left, look in ((rest, 0.0, MODEL), (tokenizer, rest, TOKENIZER)):
            axes.add_patch(Rectangle((left, number - BAR_HEIGHT / 2), width, BAR_HEIGHT, zorder=2, **look))
        for value, marker in ((memory.peak, "|"), (memory.busy_peak, "d")):
            if value is not None:
                axes.add_line(_peak_marker(marker, theme, [value / 1e6], [number]))
        highest = _highest(memory)
        axes.text(highest / 1e6, number, f"   {in_megabytes(highest)}", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlim(0, 1.16 * max(_highest(memory) for _, memory in bars) / 1e6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("MB (less is better); in figures, the highest peak")
    peak = _peak_marker("|", theme, [], [])
    peak.set_markersize(10)
    key = [
        (Patch(**MODEL), "resident: model and runtime"),
        (Patch(**TOKENIZER), "resident: tokenizer"),
        (peak, "peak after loading"),
        (_peak_marker("d", theme, [], []), "peak after all shapes"),
    ]
    head(figure, "Memory over the bare process", key)
    return figure


def _highest(memory: Memory) -> int:
    return max(memory.resident, memory.peak, memory.busy_peak or 0)


def _peak_marker(marker: str, theme: Theme, x: list[float], y: list[float]) -> Line2D:
    size, edge = (19.0, 2.2) if marker == "|" else (7.5, 1.0)
    return Line2D(
        x,
        y,
        marker=marker,
        linestyle="none",
        color=theme.ink,
        markerfacecolor=theme.surface,
        markersize=size,
        markeredgewidth=edge,
        zorder=4,
        clip_on=False,
    )
