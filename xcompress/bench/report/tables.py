"""A report as tables: in the terminal, and as Markdown."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xcompress import console
from xcompress.bench.report.notes import shape_text, threads_text
from xcompress.bench.results import Accuracy, Figure, Latency, Report, Result
from xcompress.corpus.graded import BUILTIN

NONE = "-"
LEFT_OUT = {(BUILTIN, "monolingual")}
"""Figures for the JSON and the page alone: the table shows English and the other languages apart."""


@dataclass(frozen=True)
class Grid:
    """A table of text cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(report: Report) -> list[Grid]:
    """Lay out a report's tables; those without figures are left out."""
    counts = sorted({latency.threads for result in report.results for latency in result.latency})
    found = [_size_grid(report), *(_latency_grid(report, count) for count in counts)]
    found += _throughput_grid(report) + _browser_grid(report)
    tests = {(one.test, one.kind): one for result in report.results for one in result.accuracy}
    return found + [_accuracy_grid(report, test) for test in tests.values()]


def markdown(report: Report) -> str:
    """Return the report for reading: tables, then where and how it was measured."""
    parts = ["# Bench", measured_on(report)]
    for grid in grids(report):
        parts += [f"## {grid.title[0].upper()}{grid.title[1:]}", console.markdown_table(grid.head, grid.rows)]
    parts += [f"* {line}" for line in (*report.device.emulated, *report.notes, *report.warnings)]
    return "\n\n".join(parts) + "\n"


def show(report: Report) -> None:
    """Print the tables, the notes and the warnings."""
    for grid in grids(report):
        console.table(grid.title, grid.head, grid.rows)
    for line in (*report.device.emulated, *report.notes):
        console.say(line)
    for warning in report.warnings:
        console.warn(warning)


def measured_on(report: Report) -> str:
    """Describe when, on what and with what a report was measured."""
    machine, device = report.machine, report.device
    libraries = ", ".join(f"{name} {found}" for name, found in machine.libraries.items())
    peaks = ", ".join(f"{name}: {peak / 1e9:.0f}" for name, peak in report.peaks.items())
    ceiling = f", memory ceiling {device.memory_ceiling / 1e6:.0f} MB" if device.memory_ceiling else ""
    return (
        f"{report.date}, {sum(report.seconds.values()):.0f} s{', quick' if report.quick else ''}, "
        f"device {device.name}{ceiling}. {machine.cpu}, "
        f"{threads_text(machine.threads)}, {machine.memory / 1e9:.0f} GB, load {machine.load} before. "
        f"{machine.system}, Python {machine.python}, {libraries}. "
        f"Processor flags: {' '.join(machine.flags) or 'unknown'}."
        + (f" One large product, 10^9 multiply-adds a second: {peaks}." if peaks else "")
    )


def _mb(size: int | None) -> str:
    """Format bytes as 10^6 bytes, three digits."""
    if size is None:
        return NONE
    return f"{size / 1e6:.0f}" if size >= 1e8 else f"{size / 1e6:.1f}"


def _grid(report: Report, title: str, head: Sequence[str], cells: Callable[[Result], list[str]]) -> Grid:
    """Lay out one row per subject; one without figures shows that it failed."""
    rows = []
    for result in report.results:
        figures = cells(result) or ["failed" if result.failed else NONE] + [NONE] * (len(head) - 2)
        rows.append((result.name, *figures))
    return Grid(title, tuple(head), tuple(rows))


def _size_grid(report: Report) -> Grid:
    head = ("subject", "disk", "start", "resident", "tokenizer", "peak", "busy")

    def cells(result: Result) -> list[str]:
        disk = f"{_mb(result.size.weights)} + {_mb(result.size.tokenizer)}" if result.size.weights else NONE
        if not result.start or not result.memory:
            return [disk, f"failed: {result.failed}" if result.failed else NONE, *[NONE] * 4]
        start, memory = result.start, result.memory
        seconds = f"{start.imports:.1f} + {start.model + start.first_vector:.1f}"
        return [disk, seconds, *map(_mb, (memory.resident, memory.tokenizer, memory.peak, memory.busy_peak))]

    title = (
        "disk (weights + tokenizer) and memory over the bare process in MB; "
        "start: seconds to import + to load and give a vector; tokenizer: its part of resident; busy: peak after all "
        "shapes"
    )
    return _grid(report, title, head, cells)


def _latency_grid(report: Report, threads: int) -> Grid:
    timed = [(result.name, one) for result in report.results for one in result.latency if one.threads == threads]
    found = {(name, shape_text(one)): one for name, one in timed}
    shapes = list(dict.fromkeys(shape for _, shape in found))

    def cells(result: Result) -> list[str]:
        if not any((result.name, shape) in found for shape in shapes):
            return []
        return [_latency_cell(found.get((result.name, shape))) for shape in shapes]

    title = (
        f"latency with {threads_text(threads)}: p50 / p95 / p99 in ms, times as fast as the reference, share of the "
        "peak; ~ noisy"
    )
    return _grid(report, title, ("subject", *shapes), cells)


def _latency_cell(latency: Latency | None) -> str:
    if latency is None:
        return NONE
    faster = "" if latency.speedup is None else f"  {latency.speedup:.1f}x"
    share = "" if latency.peak_share is None else f"  {latency.peak_share:.0%}"
    times = " / ".join(map(_ms, (latency.p50, latency.p95, latency.p99)))
    return f"{times}{faster}{share}{' ~' if latency.noisy else ''}"


def _ms(seconds: float) -> str:
    """Format as milliseconds, three digits."""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _throughput_grid(report: Report) -> list[Grid]:
    found = [result.throughput for result in report.results if result.throughput]
    if not found:
        return []

    def cells(result: Result) -> list[str]:
        one = result.throughput
        if one is None:
            return []
        share = NONE if one.tokenizer is None else f"{one.tokenizer:.0%}"
        faster = NONE if one.speedup is None else f"{one.speedup:.1f}x"
        return [f"{one.per_second:.0f}", faster, share, NONE if one.single is None else _ms(one.single)]

    title = f"throughput: {found[0].sentences} real sentences, text to vectors, {threads_text(found[0].threads)}"
    head = ("subject", "sentences a second", "times the reference", "in the tokenizer", "one sentence, ms")
    return [_grid(report, title, head, cells)]


def _browser_grid(report: Report) -> list[Grid]:
    if not any(result.browser for result in report.results):
        return []

    def cells(result: Result) -> list[str]:
        one = result.browser
        return [] if one is None else [one.version, _mb(one.js_heap), _mb(one.wasm_memory), f"{one.parity:.6f}"]

    title = "in the browser: memory in MB, and the least cosine to the vectors of onnxruntime outside it"
    return [_grid(report, title, ("subject", "browser", "JS heap", "wasm memory", "parity"), cells)]


def _accuracy_grid(report: Report, test: Accuracy) -> Grid:
    """Lay out a test's averages, or its figures where there are no averages."""
    names = [name for name in test.averages or test.figures if (test.test, name) not in LEFT_OUT]

    def cells(result: Result) -> list[str]:
        own = next((one for one in result.accuracy if (one.test, one.kind) == (test.test, test.kind)), None)
        if own is None:
            return []
        figures = own.averages or own.figures
        return [_accuracy_cell(figures.get(name)) for name in names]

    title = f"accuracy on {test.test} ({test.metric}, {test.rows} rows): value, change to the reference [95 % interval]"
    return _grid(report, title, ("subject", *names), cells)


def _accuracy_cell(figure: Figure | None) -> str:
    if figure is None:
        return NONE
    if figure.drop is None or figure.drop_low is None or figure.drop_high is None:
        return f"{figure.value:.1f} [{figure.low:.1f}, {figure.high:.1f}]"
    return f"{figure.value:.1f}  {-figure.drop:+.1f} [{-figure.drop_high:+.1f}, {-figure.drop_low:+.1f}]"
