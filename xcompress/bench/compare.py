"""Two benches side by side: what changed beyond noise, and what cannot be compared."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from xcompress import console
from xcompress.bench.changes import Both, Change, changes_of, exam_key, latency_key, named_figures, shape_text
from xcompress.bench.results import SCHEMA, Figure, Report, Result
from xcompress.errors import InputError

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
    """Compare subjects of one name; changes_of (xcompress/bench/changes.py) says by which rules.

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
