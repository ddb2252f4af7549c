"""The full tables of a report."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from xml.etree.ElementTree import Element

from xcompress.bench.report.figures.format import disk, megabytes, milliseconds, times
from xcompress.bench.report.html.element import Node, tag
from xcompress.bench.report.notes import threads_text
from xcompress.bench.results import Browser, Latency, Memory, Report, Result, Start, Throughput

NONE = "–"
LATENCY = ("p50", "p95", "p99", "times as fast", "share of peak", "multiply-adds, M", "spread")
Cells = list[Node]
Part = TypeVar("Part", Start, Memory, Throughput, Browser)


def sizes(report: Report) -> Element:
    """Lay out the bytes on disk."""
    base = report.base

    def cells(result: Result) -> Cells:
        size = result.size
        smaller = times(disk(base.size) / disk(result.size)) if base and disk(base.size) and disk(size) else NONE
        return [megabytes(size.weights), megabytes(size.tokenizer), megabytes(disk(size)), smaller]

    head = ("weights", "tokenizer", "both", "times smaller")
    return table("On disk, MB", head, rows(report, report.results, cells))


def starts(report: Report) -> Element | None:
    """Lay out the time to the first vector."""

    def cells(start: Start) -> Cells:
        parts = (start.imports, start.model, start.first_vector, start.total)
        return [*map(milliseconds, parts), share(start.spread), str(start.processes)]

    head = ("imports", "model", "first vector", "together", "spread", "processes")
    caption = "From a fresh process to the first vector with one thread, ms"
    return _measured(report, caption, head, lambda result: result.start, cells)


def memories(report: Report) -> Element | None:
    """Lay out memory over the bare process."""

    def cells(memory: Memory) -> Cells:
        return [*map(_mb, (memory.resident, memory.tokenizer, memory.peak, memory.busy_peak, memory.bare))]

    head = ("resident", "its tokenizer", "peak", "busy peak", "bare process")
    return _measured(report, "Memory over the bare process, MB", head, lambda result: result.memory, cells)


def latencies(report: Report) -> list[Element]:
    """Lay out latency, a table for each number of threads, grouped by shape."""
    counts = sorted({one.threads for result in report.results for one in result.latency})
    return [_latencies(report, count) for count in counts]


def throughputs(report: Report) -> Element | None:
    """Lay out real sentences from text to vectors."""

    def cells(one: Throughput) -> Cells:
        tokens = f"{one.per_second * one.tokens / one.sentences:,.0f}" if one.tokens and one.sentences else NONE
        tokenizer = NONE if one.tokenizer is None else share(one.tokenizer)
        faster = NONE if one.speedup is None else times(one.speedup)
        return [f"{one.per_second:,.0f}", tokens, faster, tokenizer, share(one.spread), str(one.threads)]

    head = ("sentences/s", "tokens/s", "times as fast", "tokenizer", "spread", "threads")
    return _measured(report, "Throughput on real text", head, lambda result: result.throughput, cells)


def browsers(report: Report) -> Element | None:
    """Lay out what only a browser tells."""

    def cells(one: Browser) -> Cells:
        slow = f"{one.slow_down:g}×"
        return [one.version, slow, megabytes(one.js_heap), megabytes(one.wasm_memory), f"{one.parity:.5f}"]

    head = ("version", "slowed down", "JS heap, MB", "wasm memory, MB", "least cosine to native")
    return _measured(report, "In the browser", head, lambda result: result.browser, cells)


def table(caption: str, head: Sequence[str], *bodies: Element, first: str = "subject") -> Element:
    """Lay out a table that scrolls by itself where it is too wide.

    :param head: of every column but the first, which is headed `first`.
    """
    columns = (tag("th", one, scope="col", class_="name" if one == first else "") for one in (first, *head))
    whole = tag(
        "table", tag("caption", tag("span", caption)), tag("thead", tag("tr", *columns)), *(body for body in bodies)
    )
    return tag("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


def rows(report: Report, results: Iterable[Result], cells: Callable[[Result], Cells]) -> Element:
    """Lay out a row for each subject."""
    return tag("tbody", *(tag("tr", name_cell(report, one), *data(cells(one))) for one in results))


def name_cell(report: Report, result: Result) -> Element:
    """Head a row with a subject's name."""
    marks = [tag("span", "reference", class_="tag")] if result.name == report.reference else []
    marks += [tag("span", "failed", class_="tag warn")] if result.failed else []
    return tag("th", result.name, *(node for mark in marks for node in (" ", mark)), scope="row")


def data(cells: Iterable[Node]) -> list[Element]:
    """Wrap cells."""
    return [tag("td", cell) for cell in cells]


def share(value: float) -> str:
    """Format a share as percent."""
    return f"{100 * value:.0f} %"


def _measured(
    report: Report,
    caption: str,
    head: Sequence[str],
    part: Callable[[Result], Part | None],
    cells: Callable[[Part], Cells],
) -> Element | None:
    """Lay out the subjects that have this part; nothing where none has it."""
    found = {result.name: found for result in report.results if (found := part(result)) is not None}
    measured = [result for result in report.results if result.name in found]
    return table(caption, head, rows(report, measured, lambda one: cells(found[one.name]))) if found else None


def _latencies(report: Report, threads: int) -> Element:
    found = [(result, one) for result in report.results for one in result.latency if one.threads == threads]
    shapes = list(dict.fromkeys((one.batch, one.tokens) for _, one in found))
    bodies = [_group(report, [one for one in found if (one[1].batch, one[1].tokens) == shape]) for shape in shapes]
    return table(f"Latency with {threads_text(threads)}, ms", LATENCY, *bodies)


def _group(report: Report, found: Sequence[tuple[Result, Latency]]) -> Element:
    """Lay out the subjects of one shape under its name."""
    lines = [tag("tr", name_cell(report, result), *data(_latency_cells(one))) for result, one in found]
    head = tag("th", tag("span", _shape_head(found[0][1])), scope="rowgroup", colspan=len(LATENCY) + 1)
    return tag("tbody", tag("tr", head), *lines, class_="group")


def _latency_cells(one: Latency) -> Cells:
    noisy = tag("span", share(one.spread), " ", tag("span", "noisy", class_="tag warn"))
    return [
        *map(milliseconds, (one.p50, one.p95, one.p99)),
        NONE if one.speedup is None else times(one.speedup),
        NONE if one.peak_share is None else share(one.peak_share),
        NONE if one.multiply_adds is None else f"{one.multiply_adds / 1e6:,.0f}",
        noisy if one.noisy else share(one.spread),
    ]


def _shape_head(one: Latency) -> str:
    return f"one sentence of {one.tokens} tokens" if one.batch == 1 else f"{one.batch} sentences of {one.tokens} tokens"


def _mb(size: int | None) -> str:
    return NONE if size is None else megabytes(size)
