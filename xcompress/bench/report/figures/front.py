"""Which subjects nobody beats: the Pareto front."""

from collections.abc import Sequence

Point = tuple[float, float]
"""What it costs (less is better), and what it gives (more is better)."""


def front(points: Sequence[Point]) -> list[int]:
    """Return the numbers of the points that no other point dominates, the cheapest first.

    A point dominates another when it costs no more, gives no less, and is better in one of the two. Equal points do not
    dominate each other.
    """
    kept = [number for number, point in enumerate(points) if not any(_dominates(other, point) for other in points)]
    return sorted(kept, key=lambda number: points[number])


def _dominates(one: Point, other: Point) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other
