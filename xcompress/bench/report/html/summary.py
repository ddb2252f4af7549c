"""What a reader wants to know first: what each bundle has won and lost against the reference."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from xcompress.bench.report.figures.format import (
    decimals_of,
    disk,
    megabytes,
    milliseconds,
    signed,
    times,
    value_text,
)
from xcompress.bench.report.figures.front import front
from xcompress.bench.report.figures.headline import Headline, headlines
from xcompress.bench.report.html.element import tag
from xcompress.bench.report.html.scores import interval
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import Figure, Latency, Report, Result

EVEN = 0.995
"""Ratios from this to its inverse are written as 'as large', 'as fast'."""
RESIDENT = "memory, resident"


def summary(report: Report) -> Element:
    """Say in a few sentences what came out, and in a card for each bundle."""
    cards = [_card(report, one) for one in _shown(report)]
    return tag(
        "section",
        tag("h2", "In short"),
        *(tag("p", sentence) for sentence in _sentences(report)),
        tag("div", *cards, class_="cards") if cards else None,
    )


def _shown(report: Report) -> list[Result]:
    """Return the bundles; every subject where there is none; the reference not."""
    others = [one for one in report.results if one.name != report.reference]
    return [one for one in others if one.kind == "onnx"] or others


def _sentences(report: Report) -> Iterator[str]:
    failed = [one.name for one in report.results if one.failed]
    count = len(report.results)
    yield (
        f"{count} {'subject' if count == 1 else 'subjects'} in one run, "
        + (f"compared with {report.reference}." if report.reference else "without a reference to compare with.")
        + (f" Failed: {', '.join(failed)}." if failed else "")
    )
    for headline in [one for one in headlines(report) if one.sized(report)][:1]:
        yield _front_sentence(report, headline)


def _front_sentence(report: Report, headline: Headline) -> str:
    found = headline.sized(report)
    best = front([(disk(one.size), figure.value) for one, figure in found])
    names = ", ".join(
        f"{found[number][0].name} ({megabytes(disk(found[number][0].size))} MB, "
        f"{value_text(report, headline, found[number][1])})"
        for number in best
    )
    return f"No other subject is both smaller and more accurate ({headline.label}) than: {names}."


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
    yield _size(report.base, result)
    if timed := _headline_latency(report, result):
        yield _latency(report.base, timed)
    if result.memory:
        yield _memory(report.base, result)
    for headline in headlines(report):
        if figure := headline.of(result):
            yield _accuracy(report, headline, figure)


def _fact(label: str, value: str, detail: str) -> Element:
    return tag(
        "div", tag("dt", label), tag("dd", value, class_="big"), tag("dd", detail, class_="muted"), class_="fact"
    )


def _size(base: Result | None, result: Result) -> Element:
    own = disk(result.size)
    if base is None or not own or not disk(base.size):
        return _fact("on disk", f"{megabytes(own)} MB", "weights and tokenizer")
    detail = f"{megabytes(own)} MB against {megabytes(disk(base.size))} MB"
    return _fact("on disk", compared(disk(base.size) / own, "smaller", "larger"), detail)


def _headline_latency(report: Report, result: Result) -> Latency | None:
    """Choose the shortest single sentence with the fewest threads, or what comes nearest to it."""
    return min(result.latency, key=lambda one: (one.threads, one.batch, one.tokens), default=None)


def _latency(base: Result | None, own: Latency) -> Element:
    label = f"{'one sentence' if own.batch == 1 else f'{own.batch} sentences'} of {own.tokens} tokens"
    label = f"{label}, {threads_text(own.threads)}"
    shape = (own.batch, own.tokens, own.threads)
    other = next((one for one in (base.latency if base else ()) if (one.batch, one.tokens, one.threads) == shape), None)
    if own.speedup is None or other is None:
        return _fact(label, f"{milliseconds(own.p50)} ms", f"p95 {milliseconds(own.p95)} ms")
    detail = f"{milliseconds(own.p50)} ms against {milliseconds(other.p50)} ms"
    return _fact(label, compared(own.speedup, "faster", "slower"), detail)


def _memory(base: Result | None, result: Result) -> Element:
    own = result.memory.resident if result.memory else 0
    if base is None or base.memory is None or own <= 0:
        return _fact(RESIDENT, f"{megabytes(own)} MB", "over the bare process")
    other = base.memory.resident
    return _fact(RESIDENT, compared(other / own, "less", "more"), f"{megabytes(own)} MB against {megabytes(other)} MB")


def _accuracy(report: Report, headline: Headline, figure: Figure) -> Element:
    digits = decimals_of(report, headline.test)
    value = signed(figure.value, digits)
    label = f"{headline.label} ({headline.metric})"
    if figure.drop is None:
        return _fact(label, value, f"95 % interval {interval(figure, digits)}")
    change, low, high = (None if one is None else -one for one in (figure.drop, figure.drop_high, figure.drop_low))
    reach = (
        ""
        if low is None or high is None
        else f", change {_plus(low, digits)} to {_plus(high, digits)} (95\N{NO-BREAK SPACE}%)"
    )
    detail = f"{value} against {signed(figure.value + figure.drop, digits)}{reach}"
    return _fact(label, _plus(change or 0.0, digits), detail)


def _plus(value: float, digits: int) -> str:
    text = signed(value, digits)
    return text if text.startswith("−") or float(text) == 0 else f"+{text}"


def compared(ratio: float, better: str, worse: str) -> str:
    """Write a ratio of at least one, with the word for its direction."""
    if EVEN <= ratio <= 1 / EVEN:
        return "the same"
    return f"{times(ratio)} {better}" if ratio > 1 else f"{times(1 / ratio)} {worse}"
