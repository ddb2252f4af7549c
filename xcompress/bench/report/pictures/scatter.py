"""Size on disk against accuracy, with the Pareto front as a line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import dist

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from xcompress.bench.report.format import label, wrap
from xcompress.bench.report.headlines import Headline, pareto_front
from xcompress.bench.report.pictures.labels import Box, beside, nearest
from xcompress.bench.report.pictures.style import Look, Theme, canvas, head, label_log_axis, looks
from xcompress.bench.results import Figure, Report

Place = tuple[float, float]
LABEL_WIDTH = 46
"""Characters beside the axis."""
LEADER = 12.0
"""Points: a label further than this from its marker is connected to it by a line."""


@dataclass(frozen=True)
class Marker:
    """One subject in the picture."""

    name: str
    place: Place
    """Megabytes, accuracy."""
    figure: Figure
    look: Look

    @property
    def weight(self) -> str:
        """The font weight of the name."""
        return "bold" if self.look.reference else "normal"


def draw_size(report: Report, headline: Headline, theme: Theme) -> Canvas:
    """Draw the subjects that have this figure and a known size."""
    look = looks(report, theme)
    markers = [
        Marker(label(report, result, 24), (result.size.total / 1e6, figure.value), figure, look[result.name])
        for result, figure in headline.sized(report)
    ]
    picture, axes = canvas(4.5)
    head(picture, f"Size against accuracy: {headline.label}")
    axes.set_xscale("log")
    axes.set_xlabel("size on disk, MB, log scale (further left is smaller)")
    axes.set_ylabel(wrap(f"{headline.metric} (higher is better)", LABEL_WIDTH))
    for marker in markers:
        x, y = marker.place
        reach = [[max(0.0, y - marker.figure.low)], [max(0.0, marker.figure.high - y)]]
        axes.errorbar(x, y, yerr=reach, color=marker.look.color, elinewidth=1.4, capsize=3, zorder=3)
        axes.plot(x, y, **marker.look.marker_style(theme, 2))
    sizes = [marker.place[0] for marker in markers]
    axes.set_xlim(min(sizes) / 1.7, max(sizes) * 1.7)
    axes.margins(y=0.16)
    label_log_axis(axes.xaxis)
    steps = _draw_front(axes, markers, theme)
    _write_names(picture, axes, markers, steps, theme)
    return picture


def _draw_front(axes: Axes, markers: Sequence[Marker], theme: Theme) -> list[Place]:
    """Draw the best accuracy at each size as a line of steps; return its corners."""
    corners = [markers[number].place for number in pareto_front([marker.place for marker in markers])]
    corners.append((axes.get_xlim()[1], corners[-1][1]))
    line = [corners[0], *(end for left, right in pairwise(corners) for end in ((right[0], left[1]), right))]
    axes.plot(*zip(*line, strict=True), color=theme.muted, linewidth=1.3, linestyle=(0, (5, 2)), zorder=2)
    axes.set_xlim(right=corners[-1][0])
    return line


def _write_names(figure: Canvas, axes: Axes, markers: Sequence[Marker], line: Sequence[Place], theme: Theme) -> None:
    """Write each name beside its marker, off the other names, markers and lines."""
    figure.draw_without_rendering()
    scale = 72 / figure.dpi

    def in_points(place: Place) -> Place:
        x, y = axes.transData.transform(place)
        return float(x) * scale, float(y) * scale

    # measure the names
    texts = [axes.text(0, 0, marker.name, fontsize=9, fontweight=marker.weight, in_layout=False) for marker in markers]
    extents = [text.get_window_extent() for text in texts]
    sizes = [(extent.width * scale * 1.06, extent.height * scale) for extent in extents]
    for text in texts:
        text.remove()

    # find room for them around markers, error bars and the front
    points = [in_points(marker.place) for marker in markers]
    obstacles = []
    for marker, (x, y) in zip(markers, points, strict=True):
        low = in_points((marker.place[0], marker.figure.low))[1]
        high = in_points((marker.place[0], marker.figure.high))[1]
        obstacles += [Box(x - 7, y - 7, x + 7, y + 7), Box(x - 3, low, x + 3, high)]
    for start, end in pairwise(map(in_points, line)):
        (left, right), (bottom, top) = sorted((start[0], end[0])), sorted((start[1], end[1]))
        obstacles.append(Box(left - 2, bottom - 2, right + 2, top + 2))
    frame = Box(*(float(edge) * scale for edge in axes.get_window_extent().extents))
    boxes = beside(points, sizes, obstacles, frame)

    for marker, point, box in zip(markers, points, boxes, strict=True):
        _write_name(axes, marker, point, box, theme)


def _write_name(axes: Axes, marker: Marker, point: Place, box: Box, theme: Theme) -> None:
    """Write one name into its box, with a line to its marker where the box is far from it."""
    x, y = nearest(point, box)
    arrow = None
    if dist(point, (x, y)) > LEADER:
        start = (x - box.left) / (box.right - box.left), (y - box.bottom) / (box.top - box.bottom)
        arrow = {"arrowstyle": "-", "color": theme.muted, "linewidth": 0.7, "shrinkA": 0, "shrinkB": 5, "relpos": start}
    axes.annotate(
        marker.name,
        marker.place,
        xytext=(box.left - point[0], box.bottom - point[1]),
        textcoords="offset points",
        ha="left",
        va="bottom",
        fontsize=9,
        fontweight=marker.weight,
        arrowprops=arrow,
        bbox={"facecolor": theme.surface, "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
        in_layout=False,
        zorder=2.5,
    )
