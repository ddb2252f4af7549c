"""The few figures that summarise accuracy where there is no room for all: one for each kind of test."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xcompress.bench.eval import HOLDOUTS
from xcompress.bench.results import Accuracy, Figure, Report, Result
from xcompress.corpus.graded import BUILTIN, PART, UNSEEN

KINDS = ("similarity", "retrieval", "classification")
FALLBACK = "agreement"
"""Used only when nothing else was measured: it is similarity to the reference, not accuracy."""
PREFERRED = ("average", "en-xx")
"""The averages that summarise a test; without either, its last average."""

Point = tuple[float, float]
"""(cost, value): less cost is better, more value is better."""


@dataclass(frozen=True)
class Headline:
    """One average, or one figure, of one test."""

    test: str
    kind: str
    metric: str
    average: str

    @property
    def label(self) -> str:
        """Name the test and the figure."""
        return f"{self.test}, {self.average}"

    def figure(self, result: Result) -> Figure | None:
        """Return a subject's figure; None where it has none."""
        accuracy = result.accuracy_on(self.test)
        return accuracy.all_figures.get(self.average) if accuracy else None

    def sized(self, report: Report) -> list[tuple[Result, Figure]]:
        """List the subjects that have this figure and a known size on disk."""
        return [(result, figure) for result in report.results if (figure := self.figure(result)) and result.size.total]


def headlines(report: Report) -> list[Headline]:
    """Choose one figure for each kind of test.

    The user's tests are preferred to the built-in set and the run's translations, then the test that most subjects
    have, then the one with most rows. Where a set has a part without sentences of its train split, only that part
    counts.
    """

    def rank(test: Accuracy) -> tuple[bool, int, int]:
        return test.test not in (BUILTIN, HOLDOUTS), len(accuracies_of(report, test.test)), test.rows

    tests = [test for test in tests_of(report) if test.all_figures]
    measured = {test.test for test in tests}
    tests = [test for test in tests if f"{test.test}{PART}{UNSEEN}" not in measured]
    kinds = KINDS if any(test.kind in KINDS for test in tests) else (FALLBACK,)
    chosen = []
    for kind in kinds:
        if test := max((test for test in tests if test.kind == kind), key=rank, default=None):
            names = list(test.averages) or list(test.figures)[:1]
            average = next((name for name in PREFERRED if name in names), names[-1])
            chosen.append(Headline(test.test, kind, test.metric, average))
    return chosen


def tests_of(report: Report) -> list[Accuracy]:
    """Return every test of the report once, from the first subject that has it."""
    tests: dict[str, Accuracy] = {}
    for result in report.results:
        for accuracy in result.accuracy:
            tests.setdefault(accuracy.test, accuracy)
    return list(tests.values())


def accuracies_of(report: Report, test: str) -> dict[str, Accuracy]:
    """Return a test's accuracy by subject, for the subjects that have it."""
    return {result.name: accuracy for result in report.results if (accuracy := result.accuracy_on(test))}


def figure_names(accuracies: Collection[Accuracy]) -> dict[str, bool]:
    """Return the names of the figures of a test, averages first, and whether each is an average."""
    averages = {name: True for accuracy in accuracies for name in accuracy.averages}
    return averages | {name: name in averages for accuracy in accuracies for name in accuracy.figures}


def pareto_front(points: Sequence[Point]) -> list[int]:
    """Return the numbers of the points that no other point dominates, the cheapest first.

    A point dominates another when it costs no more, gives no less, and is better in one of the two. Equal points do not
    dominate each other.
    """

    def dominated(point: Point) -> bool:
        return any(other[0] <= point[0] and other[1] >= point[1] and other != point for other in points)

    front = [number for number, point in enumerate(points) if not dominated(point)]
    return sorted(front, key=lambda number: points[number])
