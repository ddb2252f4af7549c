"""Place labels beside points without overlaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, dist, pi, sin

DISTANCES = (9.0, 16.0, 26.0, 38.0, 54.0, 74.0)
DIRECTIONS = (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11)
"""Sixteenths of a circle in order of preference: right, left, above, below, then in between."""
OUTSIDE, CROSSED, COVERED = 50.0, 40.0, 10.0
"""Cost of a square point outside the frame, of a line through a label, and on another label; 1 on anything else."""
MISLEADING = 100.0
"""Cost of a label that is nearer to another point than to its own."""
STEPS = 12
"""Boxes that approximate a line."""


@dataclass(frozen=True)
class Box:
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def area(self) -> float:
        """Square points."""
        return max(0.0, self.right - self.left) * max(0.0, self.top - self.bottom)

    def common(self, other: "Box") -> float:
        """Return the area of the intersection."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)


def beside(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], obstacles: Sequence[Box], frame: Box
) -> list[Box]:
    """Find a place near each point for its label: in the frame, off other labels, over as little else as possible.

    Places are preferred where no other point is nearer to the label than its own.

    :param sizes: width and height of each label.
    :param obstacles: boxes of what else is drawn there, such as markers and error bars.
    """
    placed: list[Box] = []
    leaders: list[Box] = []
    for point, size in zip(points, sizes, strict=True):

        def cost(candidate: tuple[float, Box], point: tuple[float, float] = point) -> float:
            distance, box = candidate
            outside = box.area - box.common(frame)
            crossed = sum(_overlap(line, placed) for line in leader(point, box)) + _overlap(box, leaders)
            covered = COVERED * _overlap(box, placed)
            gap = dist(point, nearest(point, box))
            misleading = MISLEADING * any(dist(other, nearest(other, box)) < gap for other in points)
            return distance + OUTSIDE * outside + covered + CROSSED * crossed + misleading + _overlap(box, obstacles)

        best = min(_candidates(point, size), key=cost)[1]
        placed.append(best)
        leaders.extend(leader(point, best))
    return placed


def nearest(point: tuple[float, float], box: Box) -> tuple[float, float]:
    """Return the position in a box nearest to a point."""
    return min(max(point[0], box.left), box.right), min(max(point[1], box.bottom), box.top)


def leader(point: tuple[float, float], box: Box) -> list[Box]:
    """Return small boxes along the line from a point to the nearest position in a box."""
    x, y = nearest(point, box)
    steps = [step / STEPS for step in range(1, STEPS)]
    places = [(point[0] + step * (x - point[0]), point[1] + step * (y - point[1])) for step in steps]
    return [Box(across - 1, up - 1, across + 1, up + 1) for across, up in places]


def _overlap(box: Box, others: Sequence[Box]) -> float:
    return sum(box.common(other) for other in others)


def _candidates(point: tuple[float, float], size: tuple[float, float]) -> Iterator[tuple[float, Box]]:
    """Yield boxes around a point with their distances from it, the near ones first."""
    for distance in DISTANCES:
        for direction in DIRECTIONS:
            across, up = cos(direction * pi / 8), sin(direction * pi / 8)
            x = point[0] + across * distance + (across - 1) * size[0] / 2
            y = point[1] + up * distance + (up - 1) * size[1] / 2
            yield distance, Box(x, y, x + size[0], y + size[1])
