"""Memory as bars: what stays resident, the tokenizer's part of it, and the peaks."""

from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from xcompress.bench.report.figures.format import label, megabytes
from xcompress.bench.report.figures.style import COLOURS, LIGHT, Theme, canvas, head
from xcompress.bench.results import Memory, Report

EDGE: dict[str, Any] = {"edgecolor": LIGHT.ink, "linewidth": 0.7}
"""Dark in both themes, since the colours are bright."""
MODEL = EDGE | {"facecolor": COLOURS[5]}
TOKENIZER = EDGE | {"facecolor": COLOURS[4], "hatch": "///"}
THICK = 0.52


def draw(report: Report, theme: Theme) -> Canvas:
    """Draw the subjects whose memory was measured, the first on top."""
    found = [(label(report, one, 26), one.memory) for one in report.results if one.memory]
    figure, axes = canvas(1.6 + 0.5 * len(found))
    for number, (_, memory) in enumerate(found):
        _bar(axes, number, memory, theme)
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, 1.16 * max(_most(memory) for _, memory in found) / 1e6)
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("MB (less is better); in figures, the highest peak")
    head(figure, "Memory over the bare process", _key(theme))
    return figure


def _bar(axes: Axes, number: int, memory: Memory, theme: Theme) -> None:
    tokenizer = min(memory.tokenizer or 0, memory.resident) / 1e6
    rest = memory.resident / 1e6 - tokenizer
    for width, left, look in ((rest, 0.0, MODEL), (tokenizer, rest, TOKENIZER)):
        axes.add_patch(Rectangle((left, number - THICK / 2), width, THICK, zorder=2, **look))
    for value, marker in ((memory.peak, "|"), (memory.busy_peak, "d")):
        if value is not None:
            axes.add_line(_tick(marker, theme, [value / 1e6], [number]))
    axes.text(_most(memory) / 1e6, number, f"   {megabytes(_most(memory))}", va="center", fontsize=9)


def _most(memory: Memory) -> int:
    return max(memory.resident, memory.peak, memory.busy_peak or 0)


def _tick(marker: str, theme: Theme, x: list[float], y: list[float]) -> Line2D:
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


def _key(theme: Theme) -> list[tuple[Artist, str]]:
    peak = _tick("|", theme, [], [])
    peak.set_markersize(10)
    return [
        (Patch(**MODEL), "resident: model and runtime"),
        (Patch(**TOKENIZER), "resident: tokenizer"),
        (peak, "peak after loading"),
        (_tick("d", theme, [], []), "peak after all shapes"),
    ]
