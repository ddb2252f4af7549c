"""The tables of a report in full."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from xml.etree.ElementTree import Element

from xcompress.bench.report.format import (
    in_megabytes,
    milliseconds,
    percent,
    percentiles,
    sentences_text,
    signed,
    threads_text,
    times,
    with_sign,
)
from xcompress.bench.report.headlines import accuracies_of, figure_names, tests_of
from xcompress.bench.report.html.element import Node, each, table, tag
from xcompress.bench.results import Accuracy, Browser, Figure, Latency, Memory, Report, Result, Start, Throughput

NONE = "–"
"""For a figure that was not measured."""
LATENCY = ("p50", "p95", "p99", "speedup", "share of peak", "multiply-adds, M", "spread")
MOST_COLUMNS = 5
"""Subjects in one table of accuracy; more would not fit on a printed page."""
Part = TypeVar("Part", Start, Memory, Throughput, Browser)


def sizes(report: Report) -> Element:
    """Lay out the sizes on disk."""
    base = report.base
    rows = []
    for result in report.results:
        size = result.size.total
        smaller = times(base.size.total / size) if base and base.size.total and size else NONE
        cells = [in_megabytes(result.size.weights), in_megabytes(result.size.tokenizer), in_megabytes(size), smaller]
        rows.append(_row(report, result, cells))
    return table("On disk, MB", ("weights", "tokenizer", "both", "times smaller"), tag("tbody", *rows))


def starts(report: Report) -> Element | None:
    """Lay out the time to the first vector."""

    def cells(start: Start) -> list[Node]:
        parts = (start.imports, start.model, start.first_vector, start.total)
        return [*map(milliseconds, parts), percent(start.spread) if start.processes > 1 else NONE, str(start.processes)]

    head = ("imports", "model", "first vector", "total", "spread", "processes")
    caption = "From a fresh process to the first vector, one thread, ms"
    return _measured(report, caption, head, lambda result: result.start, cells)


def memories(report: Report) -> Element | None:
    """Lay out memory above the bare process."""

    def cells(memory: Memory) -> list[Node]:
        sizes = (memory.resident, memory.tokenizer, memory.peak, memory.busy_peak, memory.bare)
        return [NONE if size is None else in_megabytes(size) for size in sizes]

    head = ("resident", "its tokenizer", "peak", "busy peak", "bare process")
    return _measured(report, "Memory above the bare process, MB", head, lambda result: result.memory, cells)


def latencies(report: Report, threads: int) -> Element:
    """Lay out latency with a number of threads, grouped by shape."""
    groups: dict[tuple[int, int], list[tuple[Result, Latency]]] = {}
    for result in report.results:
        for latency in result.latency:
            if latency.threads == threads:
                groups.setdefault((latency.batch, latency.tokens), []).append((result, latency))
    bodies = []
    for group in groups.values():
        title = tag("span", sentences_text(group[0][1]))
        head = tag("tr", tag("th", title, scope="rowgroup", colspan=len(LATENCY) + 1))
        rows = [_row(report, result, _latency_cells(latency)) for result, latency in group]
        bodies.append(tag("tbody", head, *rows, class_="group"))
    return table(f"Latency with {threads_text(threads)}, ms", LATENCY, *bodies)


def _latency_cells(latency: Latency) -> list[Node]:
    noisy = tag("span", percent(latency.spread), " ", tag("span", "noisy", class_="tag warn"))
    return [
        *percentiles(latency, NONE),
        NONE if latency.speedup is None else times(latency.speedup),
        NONE if latency.peak_share is None else percent(latency.peak_share),
        NONE if latency.multiply_adds is None else f"{latency.multiply_adds / 1e6:,.0f}",
        noisy if latency.noisy else percent(latency.spread),
    ]


def throughputs(report: Report) -> Element | None:
    """Lay out throughput on real sentences."""

    def cells(throughput: Throughput) -> list[Node]:
        tokens, sentences = throughput.tokens, throughput.sentences
        return [
            f"{throughput.per_second:,.0f}",
            f"{throughput.per_second * tokens / sentences:,.0f}" if tokens and sentences else NONE,
            NONE if throughput.speedup is None else times(throughput.speedup),
            NONE if throughput.tokenizer is None else percent(throughput.tokenizer),
            NONE if throughput.single is None else milliseconds(throughput.single),
            percent(throughput.spread),
            str(throughput.threads),
        ]

    head = ("sentences/s", "tokens/s", "speedup", "time in tokenizer", "one sentence, ms", "spread", "threads")
    return _measured(report, "Throughput on real text", head, lambda result: result.throughput, cells)


def browsers(report: Report) -> Element | None:
    """Lay out the figures that only a browser gives."""

    def cells(browser: Browser) -> list[Node]:
        memory = in_megabytes(browser.js_heap), in_megabytes(browser.wasm_memory)
        runtime = NONE if browser.runtime is None else in_megabytes(browser.runtime)
        return [browser.version, f"{browser.slow_down:g}×", runtime, *memory, f"{browser.parity:.5f}"]

    head = (
        "version",
        "slowed down",
        "runtime to download, MB",
        "JS heap, MB",
        "wasm memory, MB",
        "lowest cosine with native",
    )
    return _measured(report, "In the browser", head, lambda result: result.browser, cells)


def accuracies(report: Report) -> list[Element]:
    """Lay out every test in full: a row for each figure, a column for each subject, in several tables if needed."""
    return [part for test in tests_of(report) if test.all_figures for part in _accuracy_tables(report, test)]


def _accuracy_tables(report: Report, test: Accuracy) -> Iterator[Element]:
    measured = list(accuracies_of(report, test.test).items())
    chunks = [measured[start : start + MOST_COLUMNS] for start in range(0, len(measured), MOST_COLUMNS)]
    for number, chunk in enumerate(chunks, 1):
        caption = f"{test.test}: {test.metric}, {test.rows:,} rows" + (
            f" (table {number} of {len(chunks)})" if len(chunks) > 1 else ""
        )
        rows = []
        for name, is_average in figure_names([accuracy for _, accuracy in chunk]).items():
            cells = (_accuracy_cell(accuracy.all_figures.get(name)) for _, accuracy in chunk)
            head = tag("th", name, scope="row")
            rows.append(tag("tr", head, *cells, class_="strong" if is_average else ""))
        heads = [f"{name} (reference)" if name == report.reference else name for name, _ in chunk]
        yield table(caption, heads, tag("tbody", *rows), first="figure")


def _accuracy_cell(figure: Figure | None) -> Element:
    if figure is None:
        return tag("td", NONE)
    parts = [
        tag("span", signed(figure.value), class_="value"),
        tag("small", f"{signed(figure.low)} to {signed(figure.high)}"),
    ]
    if figure.drop_interval:
        parts.append(tag("small", change_text(*figure.drop_interval)))
    return tag("td", *parts, class_="stack")


def change_text(drop: float, low: float, high: float) -> str:
    """Format the change, a drop the other way round, after a sign where its interval does not contain zero."""
    sign = "▼ " if low > 0 else "▲ " if high < 0 else ""
    return f"{sign}{with_sign(-drop)} ({with_sign(-high)} to {with_sign(-low)})"


def _measured(
    report: Report,
    caption: str,
    head: Sequence[str],
    part: Callable[[Result], Part | None],
    cells: Callable[[Part], list[Node]],
) -> Element | None:
    """Lay out the subjects that have this part; nothing where none has it."""
    parts = ((result, part(result)) for result in report.results)
    rows = [_row(report, result, cells(measured)) for result, measured in parts if measured is not None]
    return table(caption, head, tag("tbody", *rows)) if rows else None


def _row(report: Report, result: Result, cells: Iterable[Node]) -> Element:
    """Make a row for one subject, headed by its name."""
    marks = [tag("span", "reference", class_="tag")] if result.name == report.reference else []
    marks += [tag("span", "failed", class_="tag warn")] if result.failed else []
    head = tag("th", result.name, *(node for mark in marks for node in (" ", mark)), scope="row")
    return tag("tr", head, *each("td", cells))
