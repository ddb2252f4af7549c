"""Format numbers and names, the same way in tables, pages and pictures."""

import textwrap

from xcompress.bench.results import Latency, Report, Result
from xcompress.printable import one_line, printable

LONGEST = 44
"""Characters of a name in a picture; longer names lose their middle, since paths differ at their ends."""
P95_CALLS = 20
"""Calls from which on a p95 is shown."""


def shape_text(latency: Latency, by: str = "x") -> str:
    """Format batch and tokens, such as `1x16`."""
    return f"{latency.batch}{by}{latency.tokens}"


def threads_text(count: int) -> str:
    """Format a number of threads."""
    return "1 thread" if count == 1 else f"{count} threads"


def call_text(latency: Latency) -> str:
    """Format what was timed, such as `1x16 with 2 threads`."""
    return f"{shape_text(latency)} with {threads_text(latency.threads)}"


def sentences_text(latency: Latency) -> str:
    """Describe a batch, such as `one sentence of 16 tokens`."""
    count = "one sentence" if latency.batch == 1 else f"{latency.batch} sentences"
    return f"{count} of {latency.tokens} tokens"


def in_megabytes(size: float) -> str:
    """Format bytes as megabytes (10^6 bytes) with three digits and no unit, for tables; compare `files.megabytes`."""
    return _three_digits(size / 1e6)


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds, with three digits."""
    return _three_digits(seconds * 1e3)


def percentiles(latency: Latency, none: str) -> list[str]:
    """Format p50, p95 and p99 in milliseconds.

    :param none: in place of a percentile of too few calls. That above which one call in n lies needs n of them: p99 of
        five calls is about the slowest, and 95 times in 100 the true one is above it.
    """
    points = (latency.p50, 1), (latency.p95, P95_CALLS), (latency.p99, 100)
    return [milliseconds(seconds) if latency.calls >= least else none for seconds, least in points]


def _three_digits(value: float) -> str:
    """Format a number with three digits: below 10 with two decimals, below 0.1 with three."""
    if value >= 99.95:
        return f"{value:,.0f}"
    decimals = 1 if value >= 9.995 else 3 if 0 < value < 0.0995 else 2
    return f"{value:.{decimals}f}"


def times(ratio: float) -> str:
    """Format a ratio of at least 1, such as `3.9×`."""
    return f"{ratio:,.0f}×" if ratio >= 99.5 else f"{ratio:.1f}×" if ratio >= 1.95 else f"{ratio:.2f}×"


def percent(share: float) -> str:
    """Format a share as percent."""
    return f"{100 * share:.0f} %"


def signed(value: float) -> str:
    """Format a figure in points, with a real minus sign; a number that rounds to zero has none."""
    return f"{value:z.1f}".replace("-", "−")


def with_sign(change: float) -> str:
    """Format a change in points, as `signed` does, with a plus where it is not negative."""
    return f"{change:+z.1f}".replace("-", "−")


def shorten(name: str) -> str:
    """Put a name into one line of at most `LONGEST` characters."""
    line = " ".join(one_line(name).split())
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[: half - 1]}…{line[-half:]}"


def label(report: Report, result: Result, width: int = LONGEST + 12) -> str:
    """Return a subject's name for a picture, wrapped at `width` characters; the reference is marked."""
    name = shorten(result.name) + (" (reference)" if result.name == report.reference else "")
    return wrap(name, width) or "?"


def wrap(text: str, width: int) -> str:
    """Break a text into lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(printable(text), width))
