"""A report as tables: in the terminal, and as Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xcompress import console
from xcompress.bench.report.format import (
    in_megabytes,
    milliseconds,
    percent,
    percentiles,
    shape_text,
    threads_text,
    times,
)
from xcompress.bench.report.headlines import tests_of
from xcompress.bench.results import Accuracy, Figure, Latency, Report, Result
from xcompress.corpus.graded import BUILTIN
from xcompress.printable import markdown_text

NONE = "-"
"""For a figure that was not measured."""
MONOLINGUAL = {"en-en", "other monolingual"}
"""What `monolingual` is the mean of: with one of them alone, it is the same figure again."""


@dataclass(frozen=True)
class Table:
    """A table of text cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables_of(report: Report) -> list[Table]:
    """Lay out a report's tables; tables without figures are left out."""
    return [
        _size_table(report),
        *(_latency_table(report, count) for count in report.thread_counts),
        *_throughput_table(report),
        *_browser_table(report),
        *(_accuracy_table(report, test) for test in tests_of(report)),
    ]


def markdown(report: Report) -> str:
    """Return the report as Markdown: machine and date, tables, notes."""
    parts = ["# Bench", markdown_text(measured_on(report))]
    for table in tables_of(report):
        head, *rows = ([markdown_text(cell) for cell in row] for row in (table.head, *table.rows))
        title = markdown_text(f"{table.title[0].upper()}{table.title[1:]}")
        parts += [f"## {title}", console.markdown_table(head, rows)]
    parts += [f"* {markdown_text(line)}" for line in (*report.device.emulated, *report.notes, *report.warnings)]
    return "\n\n".join(parts) + "\n"


def show(report: Report) -> None:
    """Print the tables, the notes and the warnings."""
    for table in tables_of(report):
        console.table(table.title, table.head, table.rows)
    for line in (*report.device.emulated, *report.notes):
        console.say(line)
    for warning in report.warnings:
        console.warn(warning)


def measured_on(report: Report) -> str:
    """Describe the date, the machine and the libraries of a report."""
    machine, device = report.machine, report.device
    libraries = ", ".join(f"{name} {version}" for name, version in machine.libraries.items())
    peaks = ", ".join(f"{name}: {peak / 1e9:.0f}" for name, peak in report.peaks.items())
    ceiling = f", memory ceiling {in_megabytes(device.memory_ceiling)} MB" if device.memory_ceiling else ""
    return (
        f"{report.date}, {sum(report.seconds.values()):.0f} s{', quick' if report.quick else ''}, "
        f"device {device.name}{ceiling}. {machine.cpu}, "
        f"{threads_text(machine.threads)}, {machine.memory / 1e9:.0f} GB, load {machine.load} before. "
        f"{machine.system}, Python {machine.python}, {libraries}. "
        f"Processor flags: {' '.join(machine.flags) or 'unknown'}."
        + (f" Peak in one large matrix product, 10^9 multiply-adds per second: {peaks}." if peaks else "")
    )


def _table(report: Report, title: str, head: Sequence[str], cells: Callable[[Result], list[str]]) -> Table:
    """Lay out one row per subject; a row without figures says whether the subject failed."""
    rows = []
    for result in report.results:
        figures = cells(result) or ["failed" if result.failed else NONE] + [NONE] * (len(head) - 2)
        rows.append((result.name, *figures))
    return Table(title, tuple(head), tuple(rows))


def _size_table(report: Report) -> Table:
    def cells(result: Result) -> list[str]:
        size, start, memory = result.size, result.start, result.memory
        disk = f"{in_megabytes(size.weights)} + {in_megabytes(size.tokenizer)}" if size.weights else NONE
        if not start or not memory:
            return [disk, f"failed: {result.failed}" if result.failed else NONE, *[NONE] * 4]
        seconds = f"{start.imports:.1f} + {start.model + start.first_vector:.1f}"
        sizes = memory.resident, memory.tokenizer, memory.peak, memory.busy_peak
        return [disk, seconds, *(NONE if size is None else in_megabytes(size) for size in sizes)]

    title = (
        "disk (weights + tokenizer) and memory above the bare process in MB; start: seconds to import + to load and "
        "compute the first vector; tokenizer: its share of resident; busy: peak after all shapes"
    )
    return _table(report, title, ("subject", "disk", "start", "resident", "tokenizer", "peak", "busy"), cells)


def _latency_table(report: Report, threads: int) -> Table:
    timed = {
        result.name: {shape_text(latency): latency for latency in result.latency if latency.threads == threads}
        for result in report.results
    }
    shapes = list(dict.fromkeys(shape for latencies in timed.values() for shape in latencies))

    def cell(latency: Latency | None) -> str:
        if latency is None:
            return NONE
        faster = "" if latency.speedup is None else f"  {times(latency.speedup)}"
        share = "" if latency.peak_share is None else f"  {percent(latency.peak_share)}"
        return f"{' / '.join(percentiles(latency, NONE))}{faster}{share}{' ~' if latency.noisy else ''}"

    def cells(result: Result) -> list[str]:
        latencies = timed[result.name]
        return [cell(latencies.get(shape)) for shape in shapes] if latencies else []

    speedup = "speedup over the reference, " if report.reference else ""
    title = (
        f"latency with {threads_text(threads)}: p50 / p95 / p99 in ms, {speedup}share of the machine's peak; ~ noisy"
    )
    return _table(report, title, ("subject", *shapes), cells)


def _throughput_table(report: Report) -> list[Table]:
    measured = [result.throughput for result in report.results if result.throughput]
    if not measured:
        return []

    def cells(result: Result) -> list[str]:
        throughput = result.throughput
        if throughput is None:
            return []
        return [
            f"{throughput.per_second:,.0f}",
            NONE if throughput.speedup is None else times(throughput.speedup),
            NONE if throughput.tokenizer is None else percent(throughput.tokenizer),
            NONE if throughput.single is None else milliseconds(throughput.single),
        ]

    title = (
        f"throughput: {measured[0].sentences} real sentences from text to vectors, {threads_text(measured[0].threads)}"
    )
    head = ("subject", "sentences/s", "speedup", "time in tokenizer", "one sentence, ms")
    return [_table(report, title, head, cells)]


def _browser_table(report: Report) -> list[Table]:
    if not any(result.browser for result in report.results):
        return []

    def cells(result: Result) -> list[str]:
        browser = result.browser
        if browser is None:
            return []
        memory = map(in_megabytes, (browser.js_heap, browser.wasm_memory))
        runtime = NONE if browser.runtime is None else in_megabytes(browser.runtime)
        return [browser.version, runtime, *memory, f"{browser.parity:.6f}"]

    title = (
        "browser: memory in MB; runtime: onnxruntime-web, MB to download beside the model; parity: lowest cosine with "
        "the vectors of native onnxruntime"
    )
    return [_table(report, title, ("subject", "browser", "runtime", "JS heap", "wasm memory", "parity"), cells)]


def _accuracy_table(report: Report, test: Accuracy) -> Table:
    """Lay out a test's averages, or its figures where there are no averages."""
    # `monolingual` of the built-in set is left to the JSON and the page: the table has English and the others apart.
    left_out = "monolingual" if test.test == BUILTIN or len(MONOLINGUAL & test.averages.keys()) == 1 else None
    names = [name for name in test.averages or test.figures if name != left_out]

    def cell(figure: Figure | None) -> str:
        if figure is None:
            return NONE
        if figure.drop_interval is None:
            return f"{figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]"
        drop, low, high = figure.drop_interval
        return f"{figure.value:.1f}  {-drop:+z.1f} [{-high:+z.1f}, {-low:+z.1f}]"

    def cells(result: Result) -> list[str]:
        accuracy = result.accuracy_on(test.test)
        if accuracy is None:
            return []
        figures = accuracy.averages or accuracy.figures
        return [cell(figures.get(name)) for name in names]

    change = ", change to the reference" if report.reference and test.kind != "agreement" else ""
    title = f"accuracy on {test.test} ({test.metric}, {test.rows} rows): value{change} [95 % interval]"
    return _table(report, title, ("subject", *names), cells)
