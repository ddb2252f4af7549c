"""Budgets of a recipe, held against what a bench measured."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

from xcompress.bench.noise import drop_of, latency_noise, start_noise, tolerance
from xcompress.bench.report.compare import named_figures, same_latency, start_ratio
from xcompress.bench.results import Accuracy, Figure, Latency, Report, Result
from xcompress.errors import GateError, InputError
from xcompress.recipe import Budgets, load_recipe

GRAPHS = (".onnx", ".ort")
UNKNOWN = "-"
"""Precision of a bundle that could not be opened."""


@dataclass(frozen=True)
class Broken:
    """A budget that a subject does not keep."""

    subject: str
    budget: str
    """Its key below `budgets` in the recipe."""
    allowed: float
    measured: float | None
    """None when it was not measured, which counts as broken."""
    line: str


def load_budgets(recipe: Path | str) -> Budgets:
    """Return the budgets of a recipe, a file or the name of a shipped one.

    :raises InputError: when the recipe is wrong or has none.
    """
    budgets = load_recipe(recipe).budgets
    if budgets is None:
        raise InputError(
            f"{recipe}: has no budgets; add them, such as `budgets: {{size_mb: 20}}`, or leave --budgets out"
        )
    return budgets


def require(report: Report, budgets: Budgets) -> None:
    """Refuse a report that breaks budgets.

    :raises GateError: in one line that names every broken budget.
    :raises InputError: when a budget names what the report does not have.
    """
    found = broken(report, budgets)
    if found:
        lines = "; ".join(one.line for one in found)
        raise GateError(
            f"budgets: {len(found)} broken: {lines}; make the model keep them, or change the recipe's budgets"
        )


def broken(report: Report, budgets: Budgets) -> list[Broken]:
    """Return the budgets that subjects do not keep.

    Sizes, memory and accuracy are judged by the value measured; of an accuracy's loss the line says whether its 95 %
    interval reaches into what is allowed. Latency and start may miss by the noise within their run
    (xcompress/bench/noise.py), by 15 % at most. What was not measured counts as broken.

    :raises InputError: when a budget names a subject, test or language pair that the report does not have.
    """
    _check_tests(report, budgets)
    return [one for result in held(report, budgets) for one in _broken_by(result, report, budgets)]


def held(report: Report, budgets: Budgets) -> list[Result]:
    """Return the subjects that are held to the budgets: those they name, else the smaller graph of each bundle.

    :raises InputError: when there is none; the line lists what there is.
    """
    graphs = [one for one in report.results if one.kind == "onnx" and one.name != report.reference]
    if budgets.subject:
        wanted, there = f"subject: {budgets.subject!r}", [one.name for one in report.results]
        chosen = [one for one in report.results if one.name == budgets.subject]
    elif budgets.precision:
        wanted, there = f"precision: {budgets.precision!r}", [one.precision for one in graphs]
        chosen = [one for one in graphs if one.precision in (budgets.precision, UNKNOWN)]
    else:
        wanted, there = "an exported graph", [one.name for one in report.results]
        chosen = [min(some, key=lambda one: one.size.weights) for some in _by_bundle(graphs).values()]
    if not chosen:
        known = ", ".join(dict.fromkeys(there)) or "none"
        raise InputError(f"budgets: {wanted} is not in the report, which has {known}; correct it, or name a bundle")
    return chosen


def _by_bundle(graphs: list[Result]) -> dict[PurePath, list[Result]]:
    bundles: dict[PurePath, list[Result]] = {}
    for one in graphs:
        bundles.setdefault(_bundle(PurePath(one.path)), []).append(one)
    return bundles


def _bundle(path: PurePath) -> PurePath:
    """Return the bundle's folder from that of a graph in it, or from its own."""
    return path.parent.parent if path.suffix in GRAPHS else path


def _check_tests(report: Report, budgets: Budgets) -> None:
    """Refuse names that no subject has; a quick bench, or one without any accuracy, cannot tell."""
    tests = [accuracy for one in report.results for accuracy in one.accuracy]
    if report.quick or not tests:
        return
    for test, limits in budgets.accuracy_drop.items():
        _refuse_unknown(f"accuracy_drop.{test}", test, {one.test for one in tests})
        known = {name for one in tests if one.test == test for name in named_figures(one)}
        for name in limits:
            _refuse_unknown(f"accuracy_drop.{test}.{name}", name, known)


def _refuse_unknown(key: str, name: str, known: set[str]) -> None:
    if name not in known:
        there = ", ".join(sorted(known))
        raise InputError(f"budgets.{key}: no {name!r} in the report, which has {there}; correct it, or give --data")


def _broken_by(own: Result, report: Report, budgets: Budgets) -> Iterator[Broken]:
    judge = _Judge(own, report)
    yield from judge.at_most("size_mb", budgets.size_mb, _size(own))
    memory = asdict(own.memory) if own.memory else {}
    for part, allowed in budgets.memory_mb.model_dump().items():
        yield from judge.at_most(f"memory_mb.{part}", allowed, _megabytes(memory.get(part)))
    yield from judge.fast_enough("start_speedup", budgets.start_speedup, *_start(own, report))
    for shape, allowed in budgets.speedup.items():
        timed = _latency(own, shape, budgets.threads)
        yield from judge.fast_enough(f"speedup.{shape}", allowed, *_speedup(timed, report))
    for test, limits in budgets.accuracy_drop.items():
        accuracy = next((one for one in own.accuracy if one.test == test), None)
        for name, allowed in limits.items():
            yield from judge.kept(f"accuracy_drop.{test}.{name}", allowed, _figure(accuracy, name))


@dataclass(frozen=True)
class _Judge:
    """Words what one subject breaks."""

    own: Result
    report: Report

    def at_most(self, budget: str, allowed: float | None, measured: float | None) -> Iterator[Broken]:
        """Judge megabytes."""
        if allowed is None:
            return
        limit = f"at most {allowed:g} MB"
        if measured is None:
            yield self._not_measured(budget, allowed, limit)
        elif not measured <= allowed:
            yield self._broken(budget, allowed, measured, f"{measured:.2f} MB, {limit}")

    def fast_enough(self, budget: str, allowed: float | None, measured: float | None, noise: float) -> Iterator[Broken]:
        """Judge a ratio to the reference, which may miss by its noise."""
        if allowed is None:
            return
        limit = f"at least {allowed:g} times"
        if measured is None:
            yield self._not_measured(budget, allowed, limit)
        elif not measured >= allowed * (1 - tolerance(noise)):
            text = f"{measured:.2f} times as fast as the reference (noise {noise:.0%}), {limit}"
            yield self._broken(budget, allowed, measured, text)

    def kept(self, budget: str, allowed: float, figure: Figure | None) -> Iterator[Broken]:
        """Judge points lost, by the value."""
        limit = f"at most {allowed:g}"
        if figure is None or figure.drop is None:
            yield self._not_measured(budget, allowed, limit)
        elif not figure.drop <= allowed:
            text = f"{figure.drop:.2f} points lost{_interval(figure, allowed)}, {limit}"
            yield self._broken(budget, allowed, figure.drop, text)

    def _broken(self, budget: str, allowed: float, measured: float | None, text: str) -> Broken:
        line = " ".join(f"{self.own.name}: {budget}: {text}".split())
        return Broken(self.own.name, budget, allowed, measured, line)

    def _not_measured(self, budget: str, allowed: float, limit: str) -> Broken:
        return self._broken(budget, allowed, None, f"not measured ({self._why(budget)}), {limit}")

    def _why(self, budget: str) -> str:
        if self.own.failed:
            return f"failed: {self.own.failed}"
        if "_mb" not in budget and self.report.reference in (None, self.own.name):
            return "it is the reference itself" if self.report.reference else "no reference; give --reference"
        if self.report.quick:
            return "--quick leaves it out"
        return "not in this bench; see --grid, --threads and --data"


def _size(own: Result) -> float | None:
    return _megabytes(own.size.weights + own.size.tokenizer) if own.size.weights else None


def _megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def _start(own: Result, report: Report) -> tuple[float | None, float]:
    if not own.start or own.name == report.reference:
        return None, 0.0
    return start_ratio(own, report.base), start_noise(own.start, report.base.start if report.base else None)


def _latency(own: Result, shape: str, threads: int) -> Latency | None:
    return next((one for one in own.latency if (f"{one.batch}x{one.tokens}", one.threads) == (shape, threads)), None)


def _speedup(timed: Latency | None, report: Report) -> tuple[float | None, float]:
    if timed is None:
        return None, 0.0
    return timed.speedup, latency_noise(timed, same_latency(report.base, timed))


def _figure(accuracy: Accuracy | None, name: str) -> Figure | None:
    return named_figures(accuracy).get(name) if accuracy else None


def _interval(figure: Figure, allowed: float) -> str:
    drop = drop_of(figure)
    if drop is None:
        return ""
    within = "which reaches into what is allowed" if drop[1] <= allowed else "all of it too much"
    return f" (95 % interval {drop[1]:.2f} to {drop[2]:.2f}, {within})"
