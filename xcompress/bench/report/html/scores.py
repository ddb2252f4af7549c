"""Accuracy in full: a table for each test, a row for each language pair, a column for each subject."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from xcompress.bench.report.figures.format import decimals_of, signed
from xcompress.bench.report.figures.headline import figures_of, tests_of
from xcompress.bench.report.html.element import tag
from xcompress.bench.report.html.tables import NONE, table
from xcompress.bench.results import Accuracy, Figure, Report

MOST_COLUMNS = 5
"""Subjects of one table; more would not fit a printed page."""
LOST, WON = "▼", "▲"


def accuracies(report: Report) -> list[Element]:
    """Lay out every test; of many subjects in several tables."""
    return [part for test in tests_of(report) if figures_of(test) for part in _tables(report, test)]


def interval(figure: Figure, digits: int) -> str:
    """Write a figure's interval."""
    return f"{signed(figure.low, digits)} to {signed(figure.high, digits)}"


def drop_text(figure: Figure, digits: int) -> str:
    """Write what was lost against the reference, with its interval where it has one."""
    if figure.drop is None:
        return ""
    if figure.drop_low is None or figure.drop_high is None:
        return signed(figure.drop, digits)
    reach = f"{signed(figure.drop_low, digits)} to {signed(figure.drop_high, digits)}"
    return f"{signed(figure.drop, digits)} ({reach})"


def beyond_chance(figure: Figure) -> str:
    """Return the sign for lost or for won, nothing where the interval of the drop has zero in it."""
    if figure.drop_low is None or figure.drop_high is None:
        return ""
    return LOST if figure.drop_low > 0 else WON if figure.drop_high < 0 else ""


def _tables(report: Report, test: Accuracy) -> Iterator[Element]:
    found = {result.name: one for result in report.results for one in result.accuracy if one.test == test.test}
    names = list(found)
    parts = [names[start : start + MOST_COLUMNS] for start in range(0, len(names), MOST_COLUMNS)]
    for number, part in enumerate(parts, 1):
        caption = f"{test.test}: {test.metric}, {test.rows:,} rows" + (
            f" (table {number} of {len(parts)})" if len(parts) > 1 else ""
        )
        yield _table(report, test.test, caption, {name: found[name] for name in part})


def _table(report: Report, test: str, caption: str, found: dict[str, Accuracy]) -> Element:
    digits = decimals_of(report, test)
    averages = dict.fromkeys(name for one in found.values() for name in one.averages)
    every = dict.fromkeys([*averages, *(name for one in found.values() for name in figures_of(one))])
    heads = [f"{name} (reference)" if name == report.reference else name for name in found]
    body = [_row(name, list(found.values()), digits, "strong" if name in averages else "") for name in every]
    return table(caption, heads, tag("tbody", *body), first="figure")


def _row(name: str, tests: Sequence[Accuracy], digits: int, look: str) -> Element:
    cells = (_cell(figures_of(one).get(name), digits) for one in tests)
    return tag("tr", tag("th", name, scope="row"), *cells, class_=look)


def _cell(figure: Figure | None, digits: int) -> Element:
    if figure is None:
        return tag("td", NONE)
    parts = [tag("span", signed(figure.value, digits), class_="value"), tag("small", interval(figure, digits))]
    if figure.drop is not None:
        parts.append(tag("small", f"{beyond_chance(figure)} drop {drop_text(figure, digits)}".strip(), class_="drop"))
    return tag("td", *parts, class_="stack")
