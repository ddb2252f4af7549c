"""Compare two reports: what changed beyond noise, and what cannot be compared."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from xcompress import console
from xcompress.bench.noise import (
    between_runs,
    differ,
    intervals_differ,
    latency_noise,
    memory_differs,
    start_noise,
    throughput_noise,
)
from xcompress.bench.report.format import call_text, in_megabytes, milliseconds, threads_text
from xcompress.bench.report.notes import load_warnings
from xcompress.bench.results import SCHEMA, Accuracy, Figure, Report, Result
from xcompress.errors import InputError, first_mistake
from xcompress.files import read_mapping
from xcompress.printable import markdown_text

Unit = Literal["bytes", "seconds", "times", "per second", "points", "cosine"]
HEAD = ("subject", "figure", "before", "after", "change", "")
PARTS = ("start", "memory", "latency", "throughput", "accuracy", "browser")
MIN_PARITY_CHANGE = 0.001
"""Smaller changes of the cosine with the native vectors are rounding of the runtime."""


@dataclass(frozen=True)
class Change:
    """A figure that changed beyond noise."""

    subject: str
    figure: str
    unit: Unit
    before: float
    after: float
    better: bool

    def cells(self) -> tuple[str, ...]:
        """Return a row of a table, with the columns of HEAD."""
        values = _with_unit(self.before, self.unit), _with_unit(self.after, self.unit)
        difference = self.after - self.before
        if self.unit in ("points", "cosine"):
            text = f"{difference:+.1f}" if self.unit == "points" else f"{difference:+.4f}"
        elif self.before <= 0 or (self.unit == "bytes" and abs(difference) < 0.0005 * self.before):
            text = f"{difference:+,.0f} {self.unit}"
        else:
            text = f"{difference / self.before:+.1%}"
        return self.subject, self.figure, *values, text, "better" if self.better else "worse"


def _with_unit(value: float, unit: Unit) -> str:
    texts = {
        "bytes": f"{in_megabytes(value)} MB",
        "seconds": f"{milliseconds(value)} ms" if value < 1 else f"{value:.3g} s",
        "times": f"{value:.2f}x",
        "per second": f"{value:.0f}/s",
        "points": f"{value:.1f}",
        "cosine": f"{value:.4f}",
    }
    return texts[unit]


@dataclass(frozen=True)
class Comparison:
    """What changed from an old report to a new one."""

    before: str
    """Date of the old report."""
    after: str
    changes: tuple[Change, ...]
    """Changes beyond noise."""
    notes: tuple[str, ...]
    """Figures that only one report has, and those that were not compared."""
    warnings: tuple[str, ...]
    """Differences other than the models, and subjects that now fail."""

    @property
    def verdict(self) -> str:
        """A summary in one line."""
        if not self.changes:
            return f"nothing {'that can be compared ' if self.notes or self.warnings else ''}changed beyond noise"
        better = sum(change.better for change in self.changes)
        count = f"{len(self.changes)} figure{'s' * (len(self.changes) > 1)}"
        return f"{count} changed beyond noise: {len(self.changes) - better} worse, {better} better"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's rows, with the columns of HEAD."""
        return [change.cells() for change in self.changes]

    def show(self) -> None:
        """Print the table, the verdict, the notes and the warnings."""
        if self.changes:
            console.table(f"compared with the report of {self.before}", HEAD, self.rows())
        console.emit(self.verdict)
        for note in self.notes:
            console.say(note)
        for warning in self.warnings:
            console.warn(warning)

    def markdown(self) -> str:
        """Return the comparison as a section of Markdown."""
        title = markdown_text(f"Compared with the report of {self.before}")
        parts = [f"## {title}", f"{self.verdict[0].upper()}{self.verdict[1:]}."]
        if self.changes:
            rows = [[markdown_text(cell) for cell in row] for row in self.rows()]
            parts.append(console.markdown_table(HEAD, rows))
        lines = [f"* {markdown_text(line)}" for line in (*self.warnings, *self.notes)]
        return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])]) + "\n"

    def with_report(self, report: Report) -> str:
        """Return a report as indented JSON, with this comparison as the key `comparison`."""
        comparison = asdict(self) | {"verdict": self.verdict}
        return json.dumps(asdict(report) | {"comparison": comparison}, indent=2, ensure_ascii=False) + "\n"


def read_report(path: Path) -> Report:
    """Read a report that `xcompress bench` wrote.

    :raises InputError: when the file cannot be read, is not a report, or has another schema.
    """
    fields = read_mapping(path)
    if not {"schema", "results", "machine"} <= set(fields):
        raise InputError(f"{path}: not a report of `xcompress bench`; give the bench.json of this version of xcompress")
    if fields["schema"] != SCHEMA:
        raise InputError(
            f"{path}: schema {fields['schema']}, this xcompress reads {SCHEMA}; run `xcompress bench` again to get a "
            "report to compare with"
        )
    try:
        return TypeAdapter(Report).validate_python(fields)
    except ValidationError as error:
        raise InputError(f"{path}: bench report: {first_mistake(error)}; run `xcompress bench` again") from error


def compare(new: Report, old: Report) -> Comparison:
    """Compare the subjects that both reports have, by name.

    Sizes: any change of bytes. Memory: more than 5 % and 1 MB. Start, latency and throughput: the ratio to the
    reference where both reports have the same reference, because a machine as a whole is slower or faster on another
    day; else absolute times, where machine and device are alike. Accuracy: the drop against the reference where both
    reports have it, else the score, on the same test with as many rows. Noise: xcompress/bench/noise.py.
    """
    reports = _Reports(new, old)
    old_results = {result.name: result for result in old.results}
    in_both = [(result, old_results[result.name]) for result in new.results if result.name in old_results]
    changes: list[Change] = []
    skipped: list[str] = []
    for after, before in in_both:
        outcomes = list(_compare_subject(after, before, reports))
        changes += [outcome for outcome in outcomes if isinstance(outcome, Change)]
        if figures := dict.fromkeys(outcome for outcome in outcomes if isinstance(outcome, str)):
            skipped.append(f"{after.name}: not compared: {', '.join(figures)}")
    new_names = [result.name for result in new.results]
    notes = [f"{name}: new" for name in new_names if name not in old_results]
    notes += [f"{name}: no longer there" for name in old_results if name not in new_names]
    warnings = []
    for after, before in in_both:
        if before.failed and not after.failed:
            notes.append(f"{after.name}: measured now; failed before: {before.failed}")
        elif after.failed and not before.failed:
            warnings.append(f"{after.name}: fails now, was measured before: {after.failed}")
    return Comparison(
        before=old.date,
        after=new.date,
        changes=tuple(changes),
        notes=(*notes, *_only_in_one(new, old), *skipped),
        warnings=(*warnings, *_circumstances(reports)),
    )


@dataclass(frozen=True)
class _Reports:
    """Two reports, and which of their figures can be compared."""

    new: Report
    old: Report

    @property
    def same_reference(self) -> bool:
        """Whether both references have the same name and weights, so that ratios can be compared."""
        new, old = self.new.base, self.old.base
        return bool(new and old and new.name == old.name and new.size.sha256 == old.size.sha256)

    @property
    def same_machine(self) -> bool:
        """Whether the machines look alike, so that absolute times can be compared."""
        new, old = self.new.machine, self.old.machine
        return (new.cpu, new.threads, self.new.device.name) == (old.cpu, old.threads, self.old.device.name)


@dataclass(frozen=True)
class _Timing:
    """A time or a rate, absolute and as speedup over the reference, each with its noise within the run."""

    figure: str
    unit: Unit
    threads: int
    absolute: float
    noise: float
    speedup: float | None
    speedup_noise: float


_Outcomes = Iterator[Change | str]
"""Changes, and figures that cannot be compared, each with the reason."""


def _compare_subject(new: Result, old: Result, reports: _Reports) -> _Outcomes:
    for part in ("weights", "tokenizer"):
        after, before = getattr(new.size, part), getattr(old.size, part)
        if after != before:
            yield _change(new, part, "bytes", after, before, less=True)
    if bool(new.browser) == bool(old.browser):
        yield from _compare_memory(new, old)
    elif new.memory and old.memory:
        yield "memory (in a browser in one report only)"
    if not (reports.same_reference and reports.new.reference == new.name):
        yield from _compare_times(new, old, reports)
    yield from _compare_accuracy(new, old, reports)
    if new.browser and old.browser:
        yield from _compare_bytes(new, "JavaScript heap", new.browser.js_heap, old.browser.js_heap)
        yield from _compare_bytes(new, "wasm memory", new.browser.wasm_memory, old.browser.wasm_memory)
        if abs(new.browser.parity - old.browser.parity) > MIN_PARITY_CHANGE:
            yield _change(new, "parity", "cosine", new.browser.parity, old.browser.parity, less=False)


def _change(result: Result, figure: str, unit: Unit, after: float, before: float, *, less: bool) -> Change:
    """Make a change; `less` says that smaller is better."""
    better = after < before if less else after > before
    return Change(result.name, figure, unit, before, after, better)


def _compare_bytes(result: Result, figure: str, after: int, before: int) -> _Outcomes:
    if memory_differs(after, before):
        yield _change(result, figure, "bytes", after, before, less=True)


def _compare_memory(new: Result, old: Result) -> _Outcomes:
    after, before = new.memory, old.memory
    if not after or not before:
        return
    yield from _compare_bytes(new, "memory, resident", after.resident, before.resident)
    yield from _compare_bytes(new, "memory, peak", after.peak, before.peak)
    if after.busy_peak is None or before.busy_peak is None:
        return
    new_shapes, old_shapes = (
        {latency.call for latency in result.latency if latency.threads == 1} for result in (new, old)
    )
    if new_shapes == old_shapes:  # the peak depends on the shapes that were run
        yield from _compare_bytes(new, "memory, busy peak", after.busy_peak, before.busy_peak)
    else:
        yield "memory, busy peak (other shapes)"


def _compare_times(new: Result, old: Result, reports: _Reports) -> _Outcomes:
    """Compare start, latency and throughput: by speedup over a common reference, else on machines that look alike."""
    slow_downs = [result.browser.slow_down if result.browser else None for result in (new, old)]
    if slow_downs[0] != slow_downs[1]:  # a reference beside the browser is not slowed down
        if new.start and old.start:
            yield "start, latency, throughput (in a browser in one report only, or slowed down by another factor)"
        return
    earlier = _timings(old, reports.old)
    for key, after in _timings(new, reports.new).items():
        if not (before := earlier.get(key)):
            continue
        if reports.same_reference and after.speedup is not None and before.speedup is not None:
            noise = after.speedup_noise + before.speedup_noise + between_runs(after.threads, ratio=True)
            if differ(after.speedup, before.speedup, noise):
                yield _change(new, f"{after.figure}, speedup", "times", after.speedup, before.speedup, less=False)
        elif reports.same_machine:
            noise = after.noise + before.noise + between_runs(after.threads, ratio=False)
            if differ(after.absolute, before.absolute, noise):
                less = after.unit == "seconds"
                yield _change(new, after.figure, after.unit, after.absolute, before.absolute, less=less)
        else:
            yield f"{after.figure} (no common reference, other machine or device)"
    rates = new.throughput, old.throughput
    if rates[0] and rates[1] and (rates[0].sentences, rates[0].threads) != (rates[1].sentences, rates[1].threads):
        yield "throughput (other number of sentences or threads)"


def _timings(result: Result, report: Report) -> dict[tuple[str | int, ...], _Timing]:
    """Return start, latencies and throughput of a subject, by what makes two of them comparable."""
    base, timings = report.base, dict[tuple[str | int, ...], _Timing]()
    if start := result.start:
        noises = start_noise(start), start_noise(start, base.start if base else None)
        timings["start",] = _Timing(
            "start", "seconds", 1, start.total, noises[0], result.start_speedup(base), noises[1]
        )
    for latency in result.latency:
        noises = latency_noise(latency), latency_noise(latency, base.latency_of(latency.call) if base else None)
        timings[latency.call] = _Timing(
            call_text(latency), "seconds", latency.threads, latency.p50, noises[0], latency.speedup, noises[1]
        )
    if rate := result.throughput:
        noises = throughput_noise(rate), throughput_noise(rate, base.throughput if base else None)
        timings["throughput", rate.sentences, rate.threads] = _Timing(
            "throughput", "per second", rate.threads, rate.per_second, noises[0], rate.speedup, noises[1]
        )
    return timings


def _compare_accuracy(new: Result, old: Result, reports: _Reports) -> _Outcomes:
    earlier = {_test_key(accuracy): accuracy for accuracy in old.accuracy}
    for accuracy in new.accuracy:
        match = earlier.get(_test_key(accuracy))
        old_figures = match.all_figures if match else {}
        if old_figures and accuracy.kind == "agreement" and not reports.same_reference:
            yield f"{accuracy.test} (no common reference)"
            continue
        for name, after in accuracy.all_figures.items():
            if not (before := old_figures.get(name)):
                continue
            figure, drop, old_drop = f"{accuracy.test}, {name}", after.drop_interval, before.drop_interval
            if reports.same_reference and drop and old_drop:
                if intervals_differ(drop, old_drop):
                    yield _change(new, f"{figure}, lost", "points", drop[0], old_drop[0], less=True)
            elif intervals_differ((after.value, after.low, after.high), (before.value, before.low, before.high)):
                yield _change(new, figure, "points", after.value, before.value, less=False)


def _test_key(accuracy: Accuracy) -> tuple[str, str, str, int]:
    """Return what identifies a test; reports do not tell whether the rows are the same ones."""
    return accuracy.test, accuracy.kind, accuracy.metric, accuracy.rows


def _only_in_one(new: Report, old: Report) -> Iterator[str]:
    """Name what was measured in only one of the reports, for any subject."""
    for age, report, other in (("new", new, old), ("old", old, new)):
        present = _measured(other)
        yield from (f"{name}: only in the {age} report" for name in _measured(report) if name not in present)
        other_tests = _tests(other)
        for test, figures in _tests(report).items():
            alone = [name for name in figures if name not in other_tests.get(test, figures)]
            if alone:
                yield f"{test}: {', '.join(alone)}: only in the {age} report"


def _measured(report: Report) -> list[str]:
    """List the parts, the latency shapes and the tests of a report."""
    parts = [part for part in PARTS if any(getattr(result, part) for result in report.results)]
    shapes = [f"latency at {call_text(latency)}" for result in report.results for latency in result.latency]
    return list(dict.fromkeys([*parts, *shapes, *_tests(report)]))


def _tests(report: Report) -> dict[str, dict[str, Figure]]:
    """Return the figures of each test, over all subjects."""
    tests: dict[str, dict[str, Figure]] = {}
    for accuracy in (accuracy for result in report.results for accuracy in result.accuracy):
        title = f"accuracy on {accuracy.test} ({accuracy.metric}, {accuracy.rows} rows)"
        tests.setdefault(title, {}).update(accuracy.all_figures)
    return tests


def _circumstances(reports: _Reports) -> Iterator[str]:
    """Name the differences between the reports other than the models."""
    new, old = reports.new, reports.old
    libraries, old_libraries = new.machine.libraries, old.machine.libraries
    changed = [name for name in {**libraries, **old_libraries} if libraries.get(name) != old_libraries.get(name)]

    def facts(report: Report) -> dict[str, object]:
        machine, ceiling = report.machine, report.device.memory_ceiling
        return {
            "device": report.device.name,
            "memory ceiling": f"{in_megabytes(ceiling)} MB" if ceiling else "none",
            "slow-down": next((f"{result.browser.slow_down:g}" for result in report.results if result.browser), "none"),
            "bench": "quick" if report.quick else "full",
            "load of other programs": "high" if load_warnings(machine) else "low",
            "machine": f"{machine.cpu} with {threads_text(machine.threads)}",
            "reference": report.reference or "none",
            "libraries": ", ".join(f"{name} {machine.libraries.get(name, '(none)')}" for name in changed),
        }

    before = facts(old)
    yield from (f"{name}: {now}, was {before[name]}" for name, now in facts(new).items() if now != before[name])
    if new.reference and new.reference == old.reference and not reports.same_reference:
        yield f"reference: {new.reference} has other weights; ratios and drops are not compared"
