"""Two benches side by side: what changed beyond noise, and what cannot be compared."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from xcompress import console
from xcompress.bench.noise import (
    between_runs,
    differ,
    drop_of,
    intervals_differ,
    latency_noise,
    memory_differs,
    start_noise,
    throughput_noise,
)
from xcompress.bench.results import SCHEMA, Accuracy, Figure, Latency, Report, Result
from xcompress.errors import InputError

Unit = Literal["bytes", "seconds", "times", "per second", "points", "cosine"]
LEAST_PARITY = 0.001
"""Cosine with the native vectors: a change by less is the runtime's rounding."""


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
        """Return a row of a table: subject, figure, before, after, change, better or worse."""
        values = _text(self.before, self.unit), _text(self.after, self.unit)
        return self.subject, self.figure, *values, self._difference(), "better" if self.better else "worse"

    def _difference(self) -> str:
        difference = self.after - self.before
        if self.unit in ("points", "cosine"):
            return f"{difference:+.1f}" if self.unit == "points" else f"{difference:+.4f}"
        if not self.before or (self.unit == "bytes" and abs(difference) < 0.0005 * self.before):
            return f"{difference:+,.0f} {self.unit}"
        return f"{difference / self.before:+.1%}"


@dataclass(frozen=True)
class Both:
    """Two reports, and what of them can be compared."""

    after: Report
    before: Report

    @property
    def ratios(self) -> bool:
        """Whether both compare with one reference: of one name, with the same weights."""
        new, old = self.after.base, self.before.base
        return bool(new and old and new.name == old.name and new.size.sha256 == old.size.sha256)

    @property
    def absolutes(self) -> bool:
        """Whether the machines look alike, so that absolute times may be compared."""
        here, there = self.after.machine, self.before.machine
        alike = (here.cpu, here.threads) == (there.cpu, there.threads)
        return alike and self.after.device.name == self.before.device.name


def changes_of(name: str, both: Both) -> tuple[list[Change], list[str]]:
    """Compare one subject.

    Sizes: any change of bytes. Memory: more than 5 % and 1 MB. Start, latency and throughput: the ratio to the
    reference where both reports have it from one and the same reference, for a machine is slower or faster on another
    day as a whole; else absolute times, where machine and device are alike. Accuracy: the loss against the reference
    where both have it, else the score, on the same test with as many rows.

    :returns: the changes beyond noise (xcompress/bench/noise.py), and the figures that cannot be compared.
    """
    results = {one.name: one for one in both.after.results}, {one.name: one for one in both.before.results}
    pair = _Pair(both, results[0][name], results[1][name])
    return list(pair.changes()), list(dict.fromkeys(pair.skipped))


@dataclass(frozen=True)
class _Timing:
    """A time or a rate, absolute and as times as fast as the reference, with the noise of each within its run."""

    absolute: float
    noise: float
    ratio: float | None
    ratio_noise: float


@dataclass
class _Pair:
    """One subject in both reports."""

    both: Both
    after: Result
    before: Result
    skipped: list[str] = field(default_factory=list)

    def changes(self) -> Iterator[Change]:
        """Yield what changed beyond noise."""
        yield from self._sizes()
        yield from self._memory()
        if not self._is_yardstick:
            yield from self._start()
            yield from self._latency()
            yield from self._throughput()
        yield from self._accuracy()
        yield from self._browser()

    @property
    def _is_yardstick(self) -> bool:
        return self.both.ratios and self.both.after.reference == self.after.name

    def _change(self, figure: str, unit: Unit, after: float, before: float, *, less: bool) -> Change:
        better = after < before if less else after > before
        return Change(self.after.name, figure, unit, before, after, better)

    def _sizes(self) -> Iterator[Change]:
        for part in ("weights", "tokenizer"):
            after, before = getattr(self.after.size, part), getattr(self.before.size, part)
            if after != before:
                yield self._change(part, "bytes", after, before, less=True)

    def _memory(self) -> Iterator[Change]:
        after, before = self.after.memory, self.before.memory
        if not after or not before:
            return
        yield from self._bytes("memory, resident", after.resident, before.resident)
        yield from self._bytes("memory, peak", after.peak, before.peak)
        if _shapes(self.after, 1) == _shapes(self.before, 1):  # the peak depends on what was run
            yield from self._bytes("memory, busy peak", after.busy_peak, before.busy_peak)
        elif after.busy_peak is not None and before.busy_peak is not None:
            self.skipped.append("memory, busy peak (other shapes)")

    def _bytes(self, figure: str, after: int | None, before: int | None) -> Iterator[Change]:
        if after is not None and before is not None and memory_differs(after, before):
            yield self._change(figure, "bytes", after, before, less=True)

    def _start(self) -> Iterator[Change]:
        timings = [_start_of(*one) for one in ((self.after, self.both.after), (self.before, self.both.before))]
        yield from self._timed("start", "seconds", 1, *timings)

    def _latency(self) -> Iterator[Change]:
        earlier = {latency_key(one): one for one in self.before.latency}
        for one in self.after.latency:
            other = earlier.get(latency_key(one))
            if other:
                timings = _latency_of(one, self.both.after), _latency_of(other, self.both.before)
                yield from self._timed(shape_text(latency_key(one)), "seconds", one.threads, *timings)

    def _throughput(self) -> Iterator[Change]:
        after, before = self.after.throughput, self.before.throughput
        if not after or not before:
            return
        if (after.sentences, after.threads) != (before.sentences, before.threads):
            self.skipped.append("throughput (other number of sentences or threads)")
            return
        timings = _throughput_of(self.after, self.both.after), _throughput_of(self.before, self.both.before)
        yield from self._timed("throughput", "per second", after.threads, *timings)

    def _timed(
        self, figure: str, unit: Unit, threads: int, after: _Timing | None, before: _Timing | None
    ) -> Iterator[Change]:
        if not after or not before:
            return
        if self.both.ratios and after.ratio is not None and before.ratio is not None:
            noise = after.ratio_noise + before.ratio_noise + between_runs(threads, ratio=True)
            if differ(after.ratio, before.ratio, noise):
                yield self._change(f"{figure}, speedup", "times", after.ratio, before.ratio, less=False)
        elif self.both.absolutes and _slow_down(self.after) == _slow_down(self.before):
            noise = after.noise + before.noise + between_runs(threads, ratio=False)
            if differ(after.absolute, before.absolute, noise):
                yield self._change(figure, unit, after.absolute, before.absolute, less=unit == "seconds")
        else:
            self.skipped.append(f"{figure} (no common reference, other machine or device)")

    def _accuracy(self) -> Iterator[Change]:
        earlier = {exam_key(one): one for one in self.before.accuracy}
        for one in self.after.accuracy:
            other = earlier.get(exam_key(one))
            old = named_figures(other) if other else {}
            for name, figure in named_figures(one).items():
                if name in old:
                    yield from self._figure(f"{one.test}, {name}", figure, old[name])

    def _figure(self, what: str, after: Figure, before: Figure) -> Iterator[Change]:
        drops = drop_of(after), drop_of(before)
        if self.both.ratios and drops[0] and drops[1]:
            if intervals_differ(drops[0], drops[1]):
                yield self._change(f"{what}, lost", "points", drops[0][0], drops[1][0], less=True)
        elif intervals_differ((after.value, after.low, after.high), (before.value, before.low, before.high)):
            yield self._change(what, "points", after.value, before.value, less=False)

    def _browser(self) -> Iterator[Change]:
        after, before = self.after.browser, self.before.browser
        if not after or not before:
            return
        yield from self._bytes("JavaScript heap", after.js_heap, before.js_heap)
        yield from self._bytes("wasm memory", after.wasm_memory, before.wasm_memory)
        if abs(after.parity - before.parity) > LEAST_PARITY:
            yield self._change("parity", "cosine", after.parity, before.parity, less=False)


def shape_text(key: tuple[int, int, int]) -> str:
    """Name batch, tokens and threads."""
    batch, tokens, threads = key
    return f"{batch}x{tokens} with {threads} thread{'s' * (threads > 1)}"


def exam_key(accuracy: Accuracy) -> tuple[str, str, str, int]:
    """Return what makes two accuracies the same test; the reports do not tell whether its rows are the same ones."""
    return accuracy.test, accuracy.kind, accuracy.metric, accuracy.rows


def named_figures(accuracy: Accuracy) -> dict[str, Figure]:
    """Return figures and averages by name."""
    return accuracy.figures | accuracy.averages


def start_ratio(own: Result, base: Result | None) -> float | None:
    """Return how many times as fast as the reference a subject starts."""
    return base.start.total / own.start.total if base and base.start and own.start and own.start.total else None


def same_latency(base: Result | None, own: Latency) -> Latency | None:
    """Return what the reference took for the shape and threads of another subject's latency."""
    return next((one for one in base.latency if latency_key(one) == latency_key(own)), None) if base else None


def latency_key(latency: Latency) -> tuple[int, int, int]:
    """Return batch, tokens and threads."""
    return latency.batch, latency.tokens, latency.threads


def _shapes(result: Result, threads: int) -> set[tuple[int, int, int]]:
    return {latency_key(one) for one in result.latency if one.threads == threads}


def _start_of(own: Result, report: Report) -> _Timing | None:
    if not own.start:
        return None
    ratio = start_ratio(own, report.base)
    noise = start_noise(own.start, report.base.start if report.base else None)
    return _Timing(own.start.total, start_noise(own.start), ratio, noise)


def _latency_of(own: Latency, report: Report) -> _Timing:
    noise = latency_noise(own, same_latency(report.base, own))
    return _Timing(own.p50, latency_noise(own), own.speedup, noise)


def _throughput_of(own: Result, report: Report) -> _Timing | None:
    if not own.throughput:
        return None
    noise = throughput_noise(own.throughput, report.base.throughput if report.base else None)
    return _Timing(own.throughput.per_second, throughput_noise(own.throughput), own.throughput.speedup, noise)


def _slow_down(result: Result) -> float | None:
    return result.browser.slow_down if result.browser else None


def _text(value: float, unit: Unit) -> str:
    texts = {
        "bytes": f"{value / 1e6:.1f} MB",
        "seconds": f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s",
        "times": f"{value:.2f}x",
        "per second": f"{value:.0f}/s",
        "points": f"{value:.1f}",
        "cosine": f"{value:.4f}",
    }
    return texts[unit]


HEAD = ("subject", "figure", "before", "after", "change", "")
PARTS = ("start", "memory", "latency", "throughput", "accuracy", "browser")


@dataclass(frozen=True)
class Comparison:
    """What changed from an old report to a new one."""

    before: str
    """Date of the old report."""
    after: str
    changes: tuple[Change, ...]
    """What changed beyond noise."""
    notes: tuple[str, ...]
    """What only one report has, and what is not compared."""
    warnings: tuple[str, ...]
    """Why the two may differ in more than the models, and subjects that fail now."""

    @property
    def verdict(self) -> str:
        """One line that sums up."""
        if not self.changes:
            return f"nothing {'that can be compared ' if self.notes or self.warnings else ''}changed beyond noise"
        better = sum(change.better for change in self.changes)
        count = f"{len(self.changes)} figure{'s' * (len(self.changes) > 1)}"
        return f"{count} changed beyond noise: {len(self.changes) - better} worse, {better} better"

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's rows, whose columns HEAD names."""
        return [change.cells() for change in self.changes]

    def show(self) -> None:
        """Print the table, the verdict, notes and warnings."""
        if self.changes:
            console.table(f"against the report of {self.before}", HEAD, self.rows())
        console.emit(self.verdict)
        for note in self.notes:
            console.say(note)
        for warning in self.warnings:
            console.warn(warning)

    def markdown(self) -> str:
        """Return the comparison as a section of Markdown."""
        parts = [f"## Against the report of {self.before}", f"{self.verdict[0].upper()}{self.verdict[1:]}."]
        if self.changes:
            parts.append(console.markdown_table(HEAD, self.rows()))
        lines = [f"* {line}" for line in (*self.warnings, *self.notes)]
        return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])]) + "\n"

    def to_json(self) -> str:
        """Return the comparison as indented JSON."""
        return json.dumps(asdict(self) | {"verdict": self.verdict}, indent=2, ensure_ascii=False) + "\n"


def read_report(path: Path) -> Report:
    """Read a report that `xcompress bench` wrote.

    :raises InputError: when the file cannot be read, is no report, or is of another schema.
    """
    advice = "give the bench.json of this version of xcompress"
    try:
        text = path.read_text(encoding="utf-8")
        described = json.loads(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {advice}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); {advice}") from error
    if not isinstance(described, dict) or not {"schema", "results", "machine"} <= set(described):
        raise InputError(f"{path}: not a report of `xcompress bench`; {advice}")
    if described["schema"] != SCHEMA:
        raise InputError(
            f"{path}: schema {described['schema']}, this xcompress reads {SCHEMA}; run `xcompress bench` again to "
            "have a report to compare with"
        )
    try:
        return Report.from_json(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def compare(new: Report, old: Report) -> Comparison:
    """Compare subjects of one name; changes_of (xcompress/bench/report/compare.py) says by which rules.

    :param new: the report of now.
    :param old: the report to compare it with.
    """
    both = Both(new, old)
    names = [one.name for one in new.results if one.name in {other.name for other in old.results}]
    found = {name: changes_of(name, both) for name in names}
    skipped = [f"{name}: not compared: {', '.join(figures)}" for name, (_, figures) in found.items() if figures]
    return Comparison(
        before=old.date,
        after=new.date,
        changes=tuple(change for changes, _ in found.values() for change in changes),
        notes=(*_came_and_went(both), *_recovered(both), *_in_one_report(both), *skipped),
        warnings=(*_failing(both), *_circumstances(both)),
    )


def _came_and_went(both: Both) -> Iterator[str]:
    new, old = _named(both.after), _named(both.before)
    yield from (f"{name}: new" for name in new if name not in old)
    yield from (f"{name}: no longer there" for name in old if name not in new)


def _recovered(both: Both) -> Iterator[str]:
    new, old = _named(both.after), _named(both.before)
    for name in new:
        if name in old and old[name].failed and not new[name].failed:
            yield f"{name}: measured now; it failed before: {old[name].failed}"


def _failing(both: Both) -> Iterator[str]:
    new, old = _named(both.after), _named(both.before)
    for name in new:
        if name in old and new[name].failed and not old[name].failed:
            yield f"{name}: fails now, where it was measured before: {new[name].failed}"


def _in_one_report(both: Both) -> Iterator[str]:
    """Name what was measured in one of the reports alone, of whatever subjects."""
    reports = {"new": both.after, "old": both.before}
    measured = {age: _measured(report) for age, report in reports.items()}
    tests = {age: _tests(report) for age, report in reports.items()}
    for age, other in (("new", "old"), ("old", "new")):
        yield from (f"{what}: only in the {age} report" for what in measured[age] if what not in measured[other])
        for test, names in tests[age].items():
            alone = [name for name in names if name not in tests[other].get(test, names)]
            if alone:
                yield f"{test}: {', '.join(alone)}: only in the {age} report"


def _measured(report: Report) -> list[str]:
    results = report.results
    parts = [part for part in PARTS if any(getattr(one, part) for one in results)]
    shapes = [f"latency at {shape_text(latency_key(time))}" for one in results for time in one.latency]
    return list(dict.fromkeys([*parts, *shapes, *_tests(report)]))


def _tests(report: Report) -> dict[str, dict[str, Figure]]:
    tests: dict[str, dict[str, Figure]] = {}
    for accuracy in (accuracy for one in report.results for accuracy in one.accuracy):
        test, _, metric, rows = exam_key(accuracy)
        tests.setdefault(f"accuracy on {test} ({metric}, {rows} rows)", {}).update(named_figures(accuracy))
    return tests


def _circumstances(both: Both) -> Iterator[str]:
    """Say what differs between the reports beside the models."""
    new, old = both.after, both.before
    pairs = {
        "schema": (new.schema, old.schema),
        "device": (new.device.name, old.device.name),
        "memory ceiling": (_megabytes(new.device.memory_ceiling), _megabytes(old.device.memory_ceiling)),
        "bench": tuple("quick" if one.quick else "full" for one in (new, old)),
        "machine": tuple(f"{one.machine.cpu} with {one.machine.threads} threads" for one in (new, old)),
        "reference": (new.reference or "none", old.reference or "none"),
        "libraries": _libraries(both),
    }
    yield from (f"{what}: {now}, was {then}" for what, (now, then) in pairs.items() if now != then)
    if new.reference and new.reference == old.reference and not both.ratios:
        yield f"reference: {new.reference} has other weights; ratios and losses are not compared"


def _libraries(both: Both) -> tuple[str, str]:
    new, old = both.after.machine.libraries, both.before.machine.libraries
    changed = [name for name in {**new, **old} if new.get(name) != old.get(name)]
    texts = [", ".join(f"{name} {some.get(name, '(none)')}" for name in changed) for some in (new, old)]
    return texts[0], texts[1]


def _megabytes(size: int | None) -> str:
    return f"{size / 1e6:.0f} MB" if size else "none"


def _named(report: Report) -> dict[str, Result]:
    return {one.name: one for one in report.results}
