"""What a bench found: one report, as JSON, as Markdown and as tables in the terminal."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from xcompress import console
from xcompress.bench.accuracy import RETRIEVAL, Accuracy
from xcompress.bench.devices import Machine
from xcompress.bench.latency import NOISY, Latency
from xcompress.corpus.similarity import BUILTIN
from xcompress.errors import InputError
from xcompress.files import write_text

SCHEMA = 1
BUSY = 0.2
"""Share of the processors' time above which the machine was not idle."""
NONE = "-"
LEFT_OUT = {(BUILTIN, "monolingual")}
"""Figures for the JSON alone: the table shows English and the other languages apart."""


@dataclass(frozen=True)
class Size:
    """Bytes on disk, and what the weights are."""

    weights: int
    tokenizer: int
    sha256: str
    """Of the weights file."""


@dataclass(frozen=True)
class Load:
    """Seconds from a fresh process to the first vector, one thread, the files in the system's cache."""

    imports: float
    """Importing the library."""
    model: float
    """Reading the model and its tokenizer."""
    first_vector: float


@dataclass(frozen=True)
class Memory:
    """Bytes resident in a fresh process with one thread; all but `bare` are over the bare interpreter."""

    bare: int
    resident: int
    """After loading, a first vector and three calls of 1 x 16 tokens."""
    tokenizer: int | None
    """What of `resident` its tokenizer takes, measured by itself in another process."""
    peak: int
    """The highest until then."""
    busy_peak: int | None
    """The highest after all latency shapes with one thread; None when it did not come to that."""


@dataclass(frozen=True)
class Result:
    """Everything known about one subject; parts are missing when it failed."""

    name: str
    kind: str
    precision: str
    path: str
    size: Size
    load: Load | None = None
    memory: Memory | None = None
    latency: tuple[Latency, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    failed: str | None = None
    """Why it could not be measured to the end."""


@dataclass(frozen=True)
class Grid:
    """A table of text cells."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """The outcome of one bench."""

    schema: int
    date: str
    bundle: str
    run: str | None
    quick: bool
    seconds: dict[str, float]
    """How long each part of the bench took."""
    machine: Machine
    reference: str | None
    """Name of the subject the others are compared with; None when it is missing or failed."""
    results: tuple[Result, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> str:
        """Return the report as indented JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what `to_json` wrote.

        :raises InputError: when the text is not a report.
        """
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "text"
            raise InputError(f"bench report: {where}: {first['msg']}; run `xcompress bench` again") from error

    def grids(self) -> list[Grid]:
        """Return the report's tables."""
        counts = sorted({latency.threads for result in self.results for latency in result.latency})
        return [_size_grid(self), *(_latency_grid(self, count) for count in counts), *_accuracy_grids(self)]

    def markdown(self) -> str:
        """Return the report for reading: tables, then where and how it was measured."""
        parts = [f"# Bench of {self.bundle}", _measured_on(self)]
        for grid in self.grids():
            parts += [f"## {grid.title[0].upper()}{grid.title[1:]}", console.markdown_table(grid.head, grid.rows)]
        parts += [f"* {line}" for line in (*self.notes, *self.warnings)]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write bench.json and bench.md, each whole or not at all, and return their paths."""
        paths = folder / "bench.json", folder / "bench.md"
        write_text(paths[0], self.to_json())
        write_text(paths[1], self.markdown())
        return paths

    def show(self) -> None:
        """Print the tables, the notes and the warnings."""
        for grid in self.grids():
            console.table(grid.title, grid.head, grid.rows)
        for note in self.notes:
            console.say(note)
        for warning in self.warnings:
            console.warn(warning)


def load_warnings(machine: Machine) -> list[str]:
    """Write a line when other programs were at work: what slows every call alike does not show as spread."""
    if machine.load <= BUSY * machine.threads:
        return []
    return [
        f"machine.load: {machine.load} before the bench on {_threads(machine.threads)}; all times are too long, "
        "above all with several threads; close other programs and run again"
    ]


def noise_warnings(results: Sequence[Result]) -> list[str]:
    """Write a line for every subject whose calls spread too far in some shape."""
    return [
        f"{result.name}: calls spread by more than {NOISY:.0%} (interquartile range over median) at "
        f"{', '.join(shapes)}; close other programs and run again"
        for result in results
        if (shapes := [f"{_shape(one)} with {_threads(one.threads)}" for one in result.latency if one.noisy])
    ]


def _shape(latency: Latency) -> str:
    return f"{latency.batch}x{latency.tokens}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _measured_on(report: Report) -> str:
    machine = report.machine
    libraries = ", ".join(f"{name} {found}" for name, found in machine.libraries.items())
    return (
        f"{report.date}, {sum(report.seconds.values()):.0f} s{', quick' if report.quick else ''}. {machine.cpu}, "
        f"{_threads(machine.threads)}, {machine.memory / 1e9:.0f} GB, load {machine.load} before. "
        f"{machine.system}, Python {machine.python}, {libraries}. "
        f"Processor flags: {' '.join(machine.flags) or 'unknown'}."
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
        disk = f"{_mb(result.size.weights)} + {_mb(result.size.tokenizer)}"
        if not result.load or not result.memory:
            return [disk, f"failed: {result.failed}", *[NONE] * 4]
        load, memory = result.load, result.memory
        start = f"{load.imports:.1f} + {load.model + load.first_vector:.1f}"
        return [disk, start, *map(_mb, (memory.resident, memory.tokenizer, memory.peak, memory.busy_peak))]

    title = (
        "disk (weights + tokenizer) and memory over the bare interpreter in MB; "
        "start: seconds to import + to load and give a vector; tokenizer: its part of resident; busy: peak after 32x32"
    )
    return _grid(report, title, head, cells)


def _latency_grid(report: Report, threads: int) -> Grid:
    timed = [(result.name, one) for result in report.results for one in result.latency if one.threads == threads]
    found = {(name, _shape(one)): one for name, one in timed}
    shapes = list(dict.fromkeys(shape for _, shape in found))

    def cells(result: Result) -> list[str]:
        if not any((result.name, shape) in found for shape in shapes):
            return []
        return [_latency_cell(found.get((result.name, shape))) for shape in shapes]

    title = f"latency with {_threads(threads)}: p50 / p95 in ms, times as fast as the reference; ~ noisy"
    return _grid(report, title, ("subject", *shapes), cells)


def _latency_cell(latency: Latency | None) -> str:
    if latency is None:
        return NONE
    faster = "" if latency.speedup is None else f"  {latency.speedup:.1f}x"
    return f"{_ms(latency.p50)} / {_ms(latency.p95)}{faster}{' ~' if latency.noisy else ''}"


def _ms(seconds: float) -> str:
    """Format as milliseconds, three digits."""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _accuracy_grids(report: Report) -> list[Grid]:
    """Lay out the built-in set and retrieval together, and any further set by itself."""
    tests = {one.test: one for result in report.results for one in result.accuracy}
    further = [one for one in tests.values() if one.test not in (BUILTIN, RETRIEVAL)]
    main = [one for one in tests.values() if one not in further]
    grids = [_accuracy_grid(report, "accuracy", main)] if main else []
    return grids + [_accuracy_grid(report, f"accuracy on {one.test}", [one]) for one in further]


def _accuracy_grid(report: Report, title: str, tests: Sequence[Accuracy]) -> Grid:
    base = next((one for one in report.results if one.name == report.reference), None)
    columns = [(test.test, name) for test in tests for name in test.averages if (test.test, name) not in LEFT_OUT]

    def cells(result: Result) -> list[str]:
        against = None if result is base else base
        return [_accuracy_cell(result, against, *column) for column in columns] if result.accuracy else []

    what = "; ".join(f"{test.metric}, {test.rows} rows" for test in tests)
    return _grid(
        report, f"{title} ({what}), and the difference to the reference", ("subject", *_labels(columns)), cells
    )


def _labels(columns: Sequence[tuple[str, str]]) -> list[str]:
    return [RETRIEVAL if test == RETRIEVAL else name for test, name in columns]


def _figure(result: Result | None, test: str, name: str) -> float | None:
    found = (one.averages.get(name) for one in result.accuracy if one.test == test) if result else iter(())
    return next(found, None)


def _accuracy_cell(result: Result, base: Result | None, test: str, name: str) -> str:
    value, other = _figure(result, test, name), _figure(base, test, name)
    if value is None:
        return NONE
    return f"{value:.1f}" if other is None else f"{value:.1f}  {value - other:+.1f}"
