"""Pictures of accuracy and latency as rows of dots, and of memory as bars."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from xcompress.bench.report.format import P95_CALLS, in_megabytes, label, shape_text, shorten, threads_text, wrap
from xcompress.bench.report.headlines import accuracies_of
from xcompress.bench.report.pictures.catalogue import Row, accuracy_rows, row_height
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
from xcompress.bench.results import Figure, Report

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
    """Draw dots, not bars: times of one sentence and of a batch need a log scale, which has no zero for bars."""
    rows: dict[str, dict[str, Figure]] = {}
    for result in report.results:
        for timed in result.latency:
            if timed.threads == threads:
                end = max(timed.p50, timed.p95) if timed.calls >= P95_CALLS else timed.p50
                whisker = Figure(timed.p50 * 1e3, timed.p50 * 1e3, end * 1e3)
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
    names = [label(report, result, 26) for result in report.results if result.memory]
    memories = [result.memory for result in report.results if result.memory]
    rows = range(len(memories))
    figure, axes = canvas(1.6 + 0.5 * len(rows))
    tokenizers = [min(memory.tokenizer or 0, memory.resident) / 1e6 for memory in memories]
    others = [memory.resident / 1e6 - tokenizer for memory, tokenizer in zip(memories, tokenizers, strict=True)]
    key: list[tuple[Artist, str]] = [
        (axes.barh(rows, others, BAR_HEIGHT, zorder=2, **MODEL)[0], "resident: model and runtime"),
        (axes.barh(rows, tokenizers, BAR_HEIGHT, left=others, zorder=2, **TOKENIZER)[0], "resident: tokenizer"),
    ]
    dots: dict[str, Any] = {"linestyle": "none", "color": theme.ink, "zorder": 4, "clip_on": False}
    dots["markerfacecolor"] = theme.surface
    peaks = [memory.peak / 1e6 for memory in memories]
    axes.plot(peaks, rows, **dots, marker="|", markersize=19, markeredgewidth=2.2)
    key.append((Line2D([], [], **dots, marker="|", markersize=10, markeredgewidth=2.2), "peak after loading"))
    busy = [nan if memory.busy_peak is None else memory.busy_peak / 1e6 for memory in memories]
    key += [(line, "peak after all shapes") for line in axes.plot(busy, rows, **dots, marker="d", markersize=7.5)]
    highest = [max(memory.resident, memory.peak, memory.busy_peak or 0) for memory in memories]
    for row, size in enumerate(highest):
        axes.text(size / 1e6, row, f"   {in_megabytes(size)}", va="center", fontsize=9)
    axes.set_yticks(rows, names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 1.16 * max(highest) / 1e6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("MB (less is better); in figures, the highest peak")
    head(figure, "Memory over the bare process", key)
    return figure
