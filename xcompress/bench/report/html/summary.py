"""The summary on top of the page: what each bundle gained and lost against the reference."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from xcompress.bench.report.format import (
    in_megabytes,
    milliseconds,
    sentences_text,
    signed,
    threads_text,
    times,
    with_sign,
)
from xcompress.bench.report.headlines import Headline, headlines, pareto_front
from xcompress.bench.report.html.element import tag
from xcompress.bench.results import Figure, Latency, Report, Result

EVEN = 0.995
"""Ratios between this and its inverse are written as "the same"."""


def summary(report: Report) -> Element:
    """Summarise the report in a few sentences, and in a card for each bundle."""
    others = [result for result in report.results if result.name != report.reference]
    shown = [result for result in others if result.kind not in ("pytorch", "python")] or others
    cards = [_card(report, result) for result in shown]
    return tag(
        "section",
        tag("h2", "Summary"),
        *(tag("p", sentence) for sentence in _sentences(report)),
        tag("div", *cards, class_="cards") if cards else None,
    )


def _sentences(report: Report) -> Iterator[str]:
    failed = [result.name for result in report.results if result.failed]
    count = len(report.results)
    yield (
        f"{count} {'subject' if count == 1 else 'subjects'} in one run, "
        + (f"compared with {report.reference}." if report.reference else "without a reference.")
        + (f" Failed: {', '.join(failed)}." if failed else "")
    )
    for headline in headlines(report):
        if sized := headline.sized(report):
            front = [sized[n] for n in pareto_front([(result.size.total, figure.value) for result, figure in sized])]
            names = ", ".join(
                f"{result.name} ({in_megabytes(result.size.total)} MB, {signed(figure.value)})"
                for result, figure in front
            )
            yield f"No other subject is both smaller and more accurate ({headline.label}) than: {names}."
            return


def _card(report: Report, result: Result) -> Element:
    facts = [] if result.failed else list(_facts(report, result))
    return tag(
        "section",
        tag("h3", result.name),
        tag("p", f"{result.kind}, {result.precision}", class_="muted"),
        tag("p", tag("strong", "Failed: "), result.failed, class_="failure") if result.failed else None,
        tag("dl", *facts) if facts else None,
        class_="card",
    )


def _facts(report: Report, result: Result) -> Iterator[Element]:
    """Make a fact each for size, latency, memory and the headline figures."""
    base = report.base
    words = "smaller", "larger", "weights and tokenizer"
    yield _bytes_fact("on disk", result.size.total, base.size.total if base else 0, *words)
    # the shortest single sentence with the fewest threads, or the nearest to it
    if latency := min(result.latency, key=lambda timed: (timed.threads, timed.batch, timed.tokens), default=None):
        yield _latency_fact(base, latency)
    if result.memory:
        words = "less", "more", "above the bare process"
        reference = base.memory.resident if base and base.memory else 0
        yield _bytes_fact("memory, resident", result.memory.resident, reference, *words)
    for headline in headlines(report):
        if figure := headline.figure(result):
            yield _accuracy_fact(headline, figure)


def _fact(label: str, value: str, detail: str) -> Element:
    return tag(
        "div", tag("dt", label), tag("dd", value, class_="big"), tag("dd", detail, class_="muted"), class_="fact"
    )


def _latency_fact(base: Result | None, latency: Latency) -> Element:
    label = f"{sentences_text(latency)}, {threads_text(latency.threads)}"
    reference = base.latency_of(latency.call) if base else None
    if latency.speedup is None or reference is None:
        return _fact(label, f"{milliseconds(latency.p50)} ms", f"median of {latency.calls} calls")
    detail = f"{milliseconds(latency.p50)} ms against {milliseconds(reference.p50)} ms"
    return _fact(label, compared(latency.speedup, "faster", "slower"), detail)


def _bytes_fact(label: str, size: int, reference: int, better: str, worse: str, alone: str) -> Element:
    """Compare a number of bytes with the reference's, if both are known.

    :param alone: said of the bytes where there is nothing to compare with.
    """
    text = f"{in_megabytes(size)} MB"
    if min(size, reference) <= 0:
        return _fact(label, text, alone)
    return _fact(label, compared(reference / size, better, worse), f"{text} against {in_megabytes(reference)} MB")


def _accuracy_fact(headline: Headline, figure: Figure) -> Element:
    label, value = f"{headline.label} ({headline.metric})", signed(figure.value)
    if figure.drop_interval is None:
        return _fact(label, value, f"95 % interval {signed(figure.low)} to {signed(figure.high)}")

    drop, low, high = figure.drop_interval
    change = f"change {with_sign(-high)} to {with_sign(-low)} (95\N{NO-BREAK SPACE}%)"
    return _fact(label, with_sign(-drop), f"{value} against {signed(figure.value + drop)}, {change}")


def compared(ratio: float, better: str, worse: str) -> str:
    """Format a ratio as at least one, with the word for its direction."""
    if EVEN <= ratio <= 1 / EVEN:
        return "the same"
    return f"{times(ratio)} {better}" if ratio > 1 else f"{times(1 / ratio)} {worse}"
