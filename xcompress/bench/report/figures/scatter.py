"""Size on disk against accuracy, with the subjects that none beats in both joined by a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import dist
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from xcompress.bench.report.figures.format import disk, label, wrapped
from xcompress.bench.report.figures.front import front
from xcompress.bench.report.figures.headline import Headline
from xcompress.bench.report.figures.labels import Box, beside, nearest
from xcompress.bench.report.figures.style import Look, Theme, canvas, head, looks
from xcompress.bench.results import Figure, Report, Result

Place = tuple[float, float]
AXIS = 46
"""Characters beside the axis."""
LEADER = 12.0
"""Points from its marker from which on a label is tied to it by a line."""


@dataclass(frozen=True)
class Spot:
    """One subject in the picture."""

    result: Result
    figure: Figure
    look: Look

    @property
    def place(self) -> Place:
        """Megabytes, accuracy."""
        return disk(self.result.size) / 1e6, self.figure.value


def draw(report: Report, headline: Headline, theme: Theme) -> Canvas:
    """Draw the subjects that have this figure."""
    look = looks(report, theme)
    spots = [Spot(one, figure, look[one.name]) for one, figure in headline.sized(report)]
    picture, axes = canvas(4.5)
    head(picture, f"Size against accuracy: {headline.label}")
    axes.set_xscale("log")
    axes.set_xlabel("size on disk, MB, log scale (further left is smaller)")
    axes.set_ylabel(wrapped(f"{headline.metric} (higher is better)", AXIS))
    for spot in spots:
        _mark(axes, spot, theme)
    _limits(axes, [spot.place[0] for spot in spots])
    steps = _front(axes, spots, theme)
    _name(picture, axes, spots, [label(report, spot.result, 24) for spot in spots], steps, theme)
    return picture


def _mark(axes: Axes, spot: Spot, theme: Theme) -> None:
    x, y = spot.place
    reach = [[y - spot.figure.low], [spot.figure.high - y]]
    axes.errorbar(x, y, yerr=reach, color=spot.look.colour, elinewidth=1.4, capsize=3, zorder=3)
    axes.plot(
        x,
        y,
        spot.look.marker,
        color=spot.look.colour,
        markersize=spot.look.size + 2,
        markeredgecolor=theme.ink,
        markeredgewidth=0.8,
        zorder=4,
    )


def _limits(axes: Axes, sizes: Sequence[float]) -> None:
    axes.set_xlim(min(sizes) / 1.7, max(sizes) * 1.7)
    axes.margins(y=0.16)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _front(axes: Axes, spots: Sequence[Spot], theme: Theme) -> list[Place]:
    """Draw the best accuracy to be had at a size or less, and return the corners of that line."""
    corners = [spots[number].place for number in front([spot.place for spot in spots])]
    corners.append((axes.get_xlim()[1], corners[-1][1]))
    line = [corners[0], *(end for left, right in pairwise(corners) for end in ((right[0], left[1]), right))]
    axes.plot(*zip(*line, strict=True), color=theme.muted, linewidth=1.3, linestyle=(0, (5, 2)), zorder=2)
    axes.set_xlim(right=corners[-1][0])
    return line


def _name(
    figure: Canvas, axes: Axes, spots: Sequence[Spot], names: Sequence[str], line: Sequence[Place], theme: Theme
) -> None:
    """Write each name beside its marker, with a line to it where it had to go further away."""
    figure.draw_without_rendering()
    named = zip(names, spots, strict=True)
    texts = [axes.text(0, 0, name, fontsize=9, fontweight=_weight(spot), in_layout=False) for name, spot in named]
    scale = 72 / figure.dpi
    points = [_in_points(axes, spot.place, scale) for spot in spots]
    frame = _box(axes.get_window_extent().extents, scale)
    obstacles = [box for spot in spots for box in _obstacles(axes, spot, scale)]
    obstacles += [_along(*ends) for ends in pairwise(_in_points(axes, place, scale) for place in line)]
    boxes = beside(points, [_size(text, scale) for text in texts], obstacles, frame)
    for spot, text, point, box in zip(spots, texts, points, boxes, strict=True):
        text.remove()
        _write(axes, spot, text.get_text(), point, box, theme)


def _write(axes: Axes, spot: Spot, name: str, point: Place, box: Box, theme: Theme) -> None:
    axes.annotate(
        name,
        spot.place,
        xytext=(box.left - point[0], box.bottom - point[1]),
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=9,
        fontweight=_weight(spot),
        arrowprops=_leader(point, box, theme),
        bbox={"facecolor": theme.surface, "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
        in_layout=False,
        zorder=2.5,
    )


def _weight(spot: Spot) -> str:
    return "bold" if spot.look.reference else "normal"


def _leader(point: Place, box: Box, theme: Theme) -> dict[str, Any] | None:
    """Tie a label that had to go far away to its marker."""
    x, y = nearest(point, box)
    if dist(point, (x, y)) <= LEADER:
        return None
    start = (x - box.left) / (box.right - box.left), (y - box.bottom) / (box.top - box.bottom)
    return {"arrowstyle": "-", "color": theme.muted, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 5, "relpos": start}


def _in_points(axes: Axes, place: Place, scale: float) -> Place:
    x, y = axes.transData.transform(place)
    return float(x) * scale, float(y) * scale


def _obstacles(axes: Axes, spot: Spot, scale: float) -> list[Box]:
    """Return the boxes of a marker and of its error bar."""
    x, y = _in_points(axes, spot.place, scale)
    low = _in_points(axes, (spot.place[0], spot.figure.low), scale)[1]
    high = _in_points(axes, (spot.place[0], spot.figure.high), scale)[1]
    return [Box(x - 7, y - 7, x + 7, y + 7), Box(x - 3, low, x + 3, high)]


def _along(start: Place, end: Place) -> Box:
    """Return the box of a level or an upright line."""
    (left, right), (bottom, top) = sorted((start[0], end[0])), sorted((start[1], end[1]))
    return Box(left - 2, bottom - 2, right + 2, top + 2)


def _size(text: Text, scale: float) -> Place:
    extent = text.get_window_extent()
    return extent.width * scale * 1.06, extent.height * scale


def _box(extents: Sequence[float], scale: float) -> Box:
    left, bottom, right, top = (float(one) * scale for one in extents)
    return Box(left, bottom, right, top)
