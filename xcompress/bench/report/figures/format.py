"""How figures and names are written, the same in pictures and tables."""

import textwrap
from collections.abc import Iterable

from xcompress.bench.report.figures.headline import Headline, figures_of
from xcompress.bench.results import Figure, Latency, Report, Result, Size

LONGEST = 44
"""Characters of a name in a picture; the middle of a longer one is left out, since paths differ at their ends."""
SMALL = 1.5
"""Figures that are all at most this are shares of one, and need three decimals."""


def disk(size: Size) -> int:
    """Return the bytes on disk, weights and tokenizer together."""
    return size.weights + size.tokenizer


def megabytes(size: float) -> str:
    """Format bytes as 10^6 bytes, three digits."""
    value = size / 1e6
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def milliseconds(seconds: float) -> str:
    """Format seconds as milliseconds, three digits."""
    value = seconds * 1e3
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def times(ratio: float) -> str:
    """Format a ratio of at least 1, with the sign for times."""
    return f"{ratio:,.0f}×" if ratio >= 99.5 else f"{ratio:.1f}×" if ratio >= 1.95 else f"{ratio:.2f}×"


def signed(value: float, digits: int) -> str:
    """Format a number with a real minus sign; what rounds to zero has none."""
    return f"{value:z.{digits}f}".replace("-", "−")


def decimals(figures: Iterable[Figure]) -> int:
    """Return how many decimals the figures of one test need."""
    return 3 if all(abs(one.value) <= SMALL for one in figures) else 1


def decimals_of(report: Report, test: str) -> int:
    """Return how many decimals a test's figures need."""
    tests = (one for result in report.results for one in result.accuracy if one.test == test)
    return decimals(figure for one in tests for figure in figures_of(one).values())


def value_text(report: Report, headline: Headline, figure: Figure) -> str:
    """Write a headline's figure."""
    return signed(figure.value, decimals_of(report, headline.test))


def shape_text(latency: Latency) -> str:
    """Write a shape as batch x tokens."""
    return f"{latency.batch} × {latency.tokens}"


def short(name: str) -> str:
    """Put a name in one line of at most `LONGEST` characters."""
    line = " ".join(name.encode("utf-8", "replace").decode().split())
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[: half - 1]}…{line[-half:]}"


def label(report: Report, result: Result, width: int = LONGEST + 12) -> str:
    """Write a subject's name for a picture, in lines of at most `width` characters, and whether it is the reference."""
    name = short(result.name) + (" (reference)" if result.name == report.reference else "")
    return wrapped(name, width) or "?"


def wrapped(text: str, width: int) -> str:
    """Break a text into lines of at most `width` characters."""
    return "\n".join(textwrap.wrap(text, width))
