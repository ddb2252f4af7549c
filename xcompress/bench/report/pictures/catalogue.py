"""List the pictures that a report has data for, with captions and alternative texts; needs no matplotlib."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from xcompress.bench.report.format import in_megabytes, milliseconds, shape_text, signed, threads_text
from xcompress.bench.report.headlines import Headline, accuracies_of, figure_names, headlines, tests_of
from xcompress.bench.results import Figure, Report

ROWS_HEIGHT = 8.2
"""Inches for all rows of a picture, so that it fits on a page."""
DOT_GAP = 0.105
"""Inches between the dots of one row."""


@dataclass(frozen=True)
class Picture:
    """One picture of a report."""

    name: str
    """Of its file, without the suffix."""
    caption: str
    """How to read it."""
    alt: str
    """Its content in words."""
    subject: Headline | int | str | None
    """What is drawn: size against a headline figure, latency by threads, accuracy on a test, or memory."""


def pictures(report: Report) -> list[Picture]:
    """List the pictures that the report has data for.

    Their names are `size` (for the first kind of accuracy; `size-retrieval` and so on for the others),
    `latency-1-thread` and so on, `accuracy-<test>`, and `memory`.
    """
    chosen = [headline for headline in headlines(report) if headline.sized(report)]
    tests = [test.test for test in tests_of(report) if test.all_figures]
    # tests whose names give the same file name are numbered
    stems = [f"accuracy-{re.sub(r'[^a-z0-9]+', '-', test.lower()).strip('-') or 'test'}" for test in tests]
    names = [name if stems.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(stems, 1)]
    return [
        *(_size_picture(report, headline, first=headline == chosen[0]) for headline in chosen),
        *(_latency_picture(report, count) for count in report.thread_counts),
        *(_accuracy_picture(report, test, name) for test, name in zip(tests, names, strict=True)),
        *([_memory_picture(report)] if any(result.memory for result in report.results) else []),
    ]


def _size_picture(report: Report, headline: Headline, *, first: bool) -> Picture:
    values = (
        f"{result.name}: {in_megabytes(result.size.total)} MB, {signed(figure.value)}"
        for result, figure in headline.sized(report)
    )
    return Picture(
        name="size" if first else f"size-{headline.kind}",
        caption=(
            "The dashed line is the Pareto front: the best accuracy at each size. For every subject below it, another "
            "one is no larger, no less accurate, and better in one of the two. Bars are 95 % intervals."
        ),
        alt=f"Size on disk against {headline.label} ({headline.metric}). {_join(values)}",
        subject=headline,
    )


def _latency_picture(report: Report, threads: int) -> Picture:
    values = []
    for result in report.results:
        timed = [latency for latency in result.latency if latency.threads == threads]
        calls = (f"{shape_text(latency, ' × ')} tokens {milliseconds(latency.p50)} ms" for latency in timed)
        if timed:
            values.append(f"{result.name}: {', '.join(calls)}")
    return Picture(
        name=f"latency-{threads_text(threads).replace(' ', '-')}",
        caption="Markers are medians of all calls; whiskers reach to the 95th percentile of 20 calls or more.",
        alt=f"Median latency with {threads_text(threads)}. {_join(values)}",
        subject=threads,
    )


def _accuracy_picture(report: Report, test: str, name: str) -> Picture:
    rows, count = accuracy_rows(report, test)
    left_out = f" The {len(rows)} rows of {count} in which subjects differ most." if len(rows) < count else ""
    values = (
        f"{row.name}: " + ", ".join(f"{subject} {signed(figure.value)}" for subject, figure in row.figures.items())
        for row in [row for row in rows if row.strong] or rows
    )
    return Picture(
        name=name,
        caption=f"Markers are figures, bars are 95 % intervals; averages are in bold.{left_out}",
        alt=f"Accuracy on {test}. {_join(values)}",
        subject=test,
    )


def _memory_picture(report: Report) -> Picture:
    values = (
        f"{result.name}: {in_megabytes(result.memory.resident)} MB resident, {in_megabytes(result.memory.peak)} MB peak"
        for result in report.results
        if result.memory
    )
    return Picture(
        name="memory",
        caption="A fresh process with one thread. The striped part is the tokenizer, where it could be measured.",
        alt=f"Memory above the bare process. {_join(values)}",
        subject=None,
    )


def _join(values: Iterable[str]) -> str:
    return "; ".join(values) + "."


@dataclass(frozen=True)
class Row:
    """The values of all subjects for one figure."""

    name: str
    figures: Mapping[str, Figure]
    """By subject."""
    strong: bool = False
    """Whether the name is in bold."""


def row_height(subjects: int) -> float:
    """Return the height of a row in inches."""
    return max(0.3, DOT_GAP * (subjects + 1))


def accuracy_rows(report: Report, test: str) -> tuple[list[Row], int]:
    """Return the rows to draw, averages first, and how many there are in all.

    Of too many rows, those in which subjects differ most are kept.
    """
    accuracies = accuracies_of(report, test)

    def spread(row: Row) -> float:
        values = [figure.value for figure in row.figures.values()]
        return max(values) - min(values)

    rows = []
    for name, is_average in figure_names(accuracies.values()).items():
        figures = {subject: accuracy.all_figures.get(name) for subject, accuracy in accuracies.items()}
        rows.append(Row(name, {subject: figure for subject, figure in figures.items() if figure}, is_average))
    others = [row for row in rows if not row.strong]
    room = max(1, int(ROWS_HEIGHT / row_height(len(accuracies))) - (len(rows) - len(others)))
    widest = sorted(others, key=spread, reverse=True)[:room]
    return [row for row in rows if row.strong or row in widest], len(rows)
