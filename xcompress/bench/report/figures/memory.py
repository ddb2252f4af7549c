"""Memory as bars: the resident part, the tokenizer's share of it, and the peaks."""

from typing import Any

from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from xcompress.bench.report.figures.style import COLOURS, LIGHT, Theme, canvas, head
from xcompress.bench.report.format import in_megabytes, label
from xcompress.bench.results import Memory, Report

EDGE: dict[str, Any] = {"edgecolor": LIGHT.ink, "linewidth": 0.7}
"""Dark in both themes, because the fill colours are bright."""
MODEL = EDGE | {"facecolor": COLOURS[5]}
TOKENIZER = EDGE | {"facecolor": COLOURS[4], "hatch": "///"}
BAR_HEIGHT = 0.52


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
