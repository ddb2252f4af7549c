"""Which pictures a report has data for, and what is said of each in words."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from xcompress.bench.report.figures.dots import rows_of
from xcompress.bench.report.figures.format import decimals_of, disk, megabytes, milliseconds, signed, value_text
from xcompress.bench.report.figures.headline import Headline, figures_of, headlines, tests_of
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import Report


@dataclass(frozen=True)
class Picture:
    """One picture of a report."""

    name: str
    """Of its file, without the ending."""
    kind: Literal["size", "latency", "accuracy", "memory"]
    caption: str
    """How to read it."""
    alt: str
    """What is to be seen, for those who do not see it."""
    subject: Headline | int | str | None = None
    """The figure on the upright axis, the number of threads, or the test."""


def pictures(report: Report) -> list[Picture]:
    """List the pictures that the report has data for.

    Their names are `size` (for the first kind of accuracy; `size-retrieval` and the like for further ones),
    `latency-1-thread` and so on, `accuracy-<test>`, and `memory`.
    """
    counts = sorted({one.threads for result in report.results for one in result.latency})
    chosen = [headline for headline in headlines(report) if headline.sized(report)]
    tests = [one.test for one in tests_of(report) if figures_of(one)]
    names = _file_names(tests)
    return [
        *(_size(report, headline, first=headline == chosen[0]) for headline in chosen),
        *(_latency(report, count) for count in counts),
        *(_accuracy(report, test, name) for test, name in zip(tests, names, strict=True)),
        *([_memory(report)] if any(one.memory for one in report.results) else []),
    ]


def _size(report: Report, headline: Headline, *, first: bool) -> Picture:
    told = (
        f"{one.name}: {megabytes(disk(one.size))} MB, {value_text(report, headline, figure)}"
        for one, figure in headline.sized(report)
    )
    return Picture(
        name="size" if first else f"size-{headline.kind}",
        kind="size",
        caption=(
            "The dashed line is the Pareto front: the best accuracy to be had at a size or less. A subject below it is "
            "beaten by one that is no larger and no worse. Bars are 95 % intervals."
        ),
        alt=f"Size on disk against {headline.label} ({headline.metric}). {_list(told)}",
        subject=headline,
    )


def _latency(report: Report, threads: int) -> Picture:
    told = (
        f"{result.name}: "
        + ", ".join(
            f"{one.batch} × {one.tokens} tokens {milliseconds(one.p50)} ms"
            for one in result.latency
            if one.threads == threads
        )
        for result in report.results
        if any(one.threads == threads for one in result.latency)
    )
    return Picture(
        name=f"latency-{threads_text(threads).replace(' ', '-')}",
        kind="latency",
        caption="Markers are medians of all calls, whiskers reach to the 95th percentile.",
        alt=f"Median latency with {threads_text(threads)}. {_list(told)}",
        subject=threads,
    )


def _accuracy(report: Report, test: str, name: str) -> Picture:
    digits = decimals_of(report, test)
    rows, count = rows_of(report, test)
    left_out = f" The {len(rows)} rows of {count} in which subjects differ most." if len(rows) < count else ""
    strong = [row for row in rows if row.strong] or rows
    told = (
        f"{row.name}: " + ", ".join(f"{one} {signed(span.value, digits)}" for one, span in row.spans.items())
        for row in strong
    )
    return Picture(
        name=name,
        kind="accuracy",
        caption=f"Markers are figures, bars 95 % bootstrap intervals; averages are in bold.{left_out}",
        alt=f"Accuracy on {test}. {_list(told)}",
        subject=test,
    )


def _memory(report: Report) -> Picture:
    told = (
        f"{one.name}: {megabytes(one.memory.resident)} MB resident, {megabytes(one.memory.peak)} MB at the peak"
        for one in report.results
        if one.memory
    )
    return Picture(
        name="memory",
        kind="memory",
        caption="Of a fresh process with one thread. The striped part is the tokenizer's, where it could be measured.",
        alt=f"Memory over the bare process. {_list(told)}",
    )


def _list(parts: Iterable[str]) -> str:
    return "; ".join(parts) + "."


def _file_names(tests: Sequence[str]) -> list[str]:
    """Name files after tests; names that come out alike are numbered."""
    plain = [f"accuracy-{re.sub(r'[^a-z0-9]+', '-', test.lower()).strip('-') or 'test'}" for test in tests]
    return [name if plain.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(plain, 1)]
