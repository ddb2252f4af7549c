"""The few figures that stand for a subject's accuracy where there is no room for all: one for each kind of test."""

from dataclasses import dataclass

from xcompress.bench.results import Accuracy, Figure, Report, Result

KINDS = ("similarity", "retrieval", "classification")
LIKENESS = "agreement"
"""Stands in only where nothing else was measured: it is no accuracy but likeness to the reference."""
PREFERRED = ("average", "en-xx")
"""Averages that stand for a test, where it has them; its last one otherwise."""


@dataclass(frozen=True)
class Headline:
    """One average, or one figure, of one test."""

    test: str
    kind: str
    metric: str
    average: str

    @property
    def label(self) -> str:
        """Say which figure it is."""
        return f"{self.test}, {self.average}"

    def of(self, result: Result) -> Figure | None:
        """Return a subject's figure; None where it has none."""
        found = next((one for one in result.accuracy if one.test == self.test), None)
        return figures_of(found).get(self.average) if found else None

    def sized(self, report: Report) -> list[tuple[Result, Figure]]:
        """List the subjects that have this figure, and whose size on disk is known."""
        return [
            (one, figure)
            for one in report.results
            if (figure := self.of(one)) and one.size.weights + one.size.tokenizer
        ]


def headlines(report: Report) -> list[Headline]:
    """Choose one figure for each kind of test: of the tests that most subjects have, the one with the most rows."""
    chosen = [found for kind in KINDS if (found := _headline(report, kind))]
    return chosen or [found for found in [_headline(report, LIKENESS)] if found]


def figures_of(accuracy: Accuracy) -> dict[str, Figure]:
    """Return the averages and then the other figures."""
    return accuracy.averages | {name: one for name, one in accuracy.figures.items() if name not in accuracy.averages}


def tests_of(report: Report) -> list[Accuracy]:
    """Return every test of the report once, as the first subject that has it tells of it."""
    found: dict[str, Accuracy] = {}
    for result in report.results:
        for one in result.accuracy:
            found.setdefault(one.test, one)
    return list(found.values())


def _headline(report: Report, kind: str) -> Headline | None:
    tests = [one for one in tests_of(report) if one.kind == kind and figures_of(one)]
    if not tests:
        return None
    test = max(tests, key=lambda one: (_subjects(report, one.test), one.rows))
    return Headline(test.test, kind, test.metric, _average(test))


def _subjects(report: Report, test: str) -> int:
    return sum(any(one.test == test for one in result.accuracy) for result in report.results)


def _average(test: Accuracy) -> str:
    names = list(test.averages) or list(test.figures)[:1]
    return next((name for name in PREFERRED if name in names), names[-1])
