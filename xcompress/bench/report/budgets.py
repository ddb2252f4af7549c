"""Check a report against budgets."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path, PurePath

from xcompress.bench.noise import latency_noise, start_noise
from xcompress.bench.report.format import shape_text
from xcompress.bench.results import NOISY, UNKNOWN, Figure, Report, Result
from xcompress.bundle.manifest import GRAPH_SUFFIXES
from xcompress.errors import GateError, InputError
from xcompress.recipe import Budgets, read_budgets


def load_budgets(path: Path | str) -> Budgets:
    """Return the budgets of a file, or of the shipped recipe of this name.

    :raises InputError: when the file is invalid or has no budgets.
    """
    budgets = read_budgets(path)
    if budgets is None:
        raise InputError(
            f"{path}: has no budgets; add them, such as `budgets: {{size_mb: 20}}`, or leave --budgets out"
        )
    return budgets


def require(report: Report, budgets: Budgets) -> None:
    """Refuse a report that breaks budgets.

    :raises GateError: in one line that names every broken budget.
    :raises InputError: when a budget names something that the report does not have.
    """
    broken = broken_budgets(report, budgets)
    if broken:
        lines = "; ".join(broken)
        raise GateError(f"budgets: {len(broken)} broken: {lines}; improve the model, or change the budgets")


def broken_budgets(report: Report, budgets: Budgets) -> list[str]:
    """Return a line for each budget that a subject does not keep.

    Sizes, memory and accuracy are judged by the measured value; for accuracy, the line says whether the 95 % interval
    of the drop reaches the limit. Latency and start may miss their budget by the noise within the run
    (xcompress/bench/noise.py), at most by 15 %. What was not measured counts as broken.

    :raises InputError: when a budget names a subject, test or language pair that the report does not have.
    """
    _check_names(report, budgets)
    return [broken for result in budgeted_subjects(report, budgets) for broken in _broken_of(result, report, budgets)]


def budgeted_subjects(report: Report, budgets: Budgets) -> list[Result]:
    """Return the subjects that the budgets apply to: those they name, else the smaller graph of each bundle.

    :raises InputError: when there is none; the line lists the available ones.
    """
    graphs = [result for result in report.results if result.kind == "onnx" and result.name != report.reference]
    if budgets.subject:
        wanted, available = f"subject: {budgets.subject!r}", [result.name for result in report.results]
        chosen = [result for result in report.results if result.name == budgets.subject]
    elif budgets.precision:
        wanted, available = f"precision: {budgets.precision!r}", [result.precision for result in graphs]
        chosen = [result for result in graphs if result.precision in (budgets.precision, UNKNOWN)]
    else:
        wanted, available = "an exported graph", [result.name for result in report.results]
        bundles: dict[PurePath, list[Result]] = {}
        for result in graphs:
            path = PurePath(result.path)
            bundle = path.parent.parent if path.suffix in GRAPH_SUFFIXES else path
            bundles.setdefault(bundle, []).append(result)
        chosen = [min(results, key=lambda result: result.size.weights) for results in bundles.values()]
    if not chosen:
        known = ", ".join(dict.fromkeys(available)) or "none"
        raise InputError(f"budgets: {wanted} is not in the report, which has {known}; correct it, or name a bundle")
    return chosen


def _check_names(report: Report, budgets: Budgets) -> None:
    """Refuse tests and figures that no subject has; a quick bench, or one without any accuracy, cannot tell."""

    def refuse_unknown(key: str, name: str, known: set[str]) -> None:
        if name not in known:
            available = ", ".join(sorted(known))
            raise InputError(
                f"budgets.{key}: no {name!r} in the report, which has {available}; correct it, or give --data"
            )

    measured = [accuracy for result in report.results for accuracy in result.accuracy]
    if report.quick or not measured:
        return
    tests = {accuracy.test for accuracy in measured}
    for test, limits in budgets.accuracy_drop.items():
        refuse_unknown(f"accuracy_drop.{test}", test, tests)
        figures = {name for accuracy in measured if accuracy.test == test for name in accuracy.all_figures}
        for name in limits:
            refuse_unknown(f"accuracy_drop.{test}.{name}", name, figures)


@dataclass(frozen=True)
class _Verdict:
    """A budget held against what was measured."""

    budget: str
    """Its key below `budgets` in the recipe."""
    kept: bool
    measured: str
    """In words; empty when it was not measured."""
    limit: str


def _broken_of(result: Result, report: Report, budgets: Budgets) -> Iterator[str]:
    """Yield a line for each budget that one subject breaks."""
    verdicts = _judge_bytes(result, budgets), _judge_speed(result, report, budgets), _judge_accuracy(result, budgets)
    for verdict in chain(*verdicts):
        if not verdict.kept:
            measured = verdict.measured or f"not measured ({_why_missing(verdict.budget, result, report)})"
            yield " ".join(f"{result.name}: {verdict.budget}: {measured}, {verdict.limit}".split())


def _judge_bytes(result: Result, budgets: Budgets) -> Iterator[_Verdict]:
    """Judge size on disk and memory."""
    memory = asdict(result.memory) if result.memory else {}
    limits = {f"memory_mb.{part}": (limit, memory.get(part)) for part, limit in budgets.memory_mb.model_dump().items()}
    size = result.size.total if result.size.weights else None
    for budget, (allowed, measured) in {"size_mb": (budgets.size_mb, size), **limits}.items():
        if allowed is not None:
            kept = measured is not None and measured / 1e6 <= allowed
            text = "" if measured is None else f"{measured / 1e6:.2f} MB"
            yield _Verdict(budget, kept, text, f"at most {allowed:g} MB")


def _judge_speed(result: Result, report: Report, budgets: Budgets) -> Iterator[_Verdict]:
    """Judge start and latency, as speedups over the reference, which may miss by their noise."""
    base = report.base

    def judge(budget: str, allowed: float, speedup: float | None, noise: float) -> _Verdict:
        kept = speedup is not None and speedup >= allowed * (1 - min(noise, NOISY))
        text = "" if speedup is None else f"{speedup:.2f} times as fast as the reference (noise {noise:.0%})"
        return _Verdict(budget, kept, text, f"at least {allowed:g} times")

    if budgets.start_speedup is not None:
        speedup = result.start_speedup(base) if result is not base else None
        noise = start_noise(result.start, base.start if base else None) if result.start else 0.0
        yield judge("start_speedup", budgets.start_speedup, speedup, noise)
    timed = {shape_text(latency): latency for latency in result.latency if latency.threads == budgets.threads}
    for shape, allowed in budgets.speedup.items():
        latency = timed.get(shape)
        noise = latency_noise(latency, base.latency_of(latency.call) if base else None) if latency else 0.0
        yield judge(f"speedup.{shape}", allowed, latency.speedup if latency else None, noise)


def _judge_accuracy(result: Result, budgets: Budgets) -> Iterator[_Verdict]:
    """Judge the points lost against the reference, by the value."""
    for test, limits in budgets.accuracy_drop.items():
        accuracy = result.accuracy_on(test)
        for name, allowed in limits.items():
            figure = accuracy.all_figures.get(name) if accuracy else None
            drop = figure.drop if figure else None
            kept = drop is not None and drop <= allowed  # not a drop that is NaN
            text = f"{drop:.2f} points lost{_interval_text(figure, allowed)}" if figure and drop is not None else ""
            yield _Verdict(f"accuracy_drop.{test}.{name}", kept, text, f"at most {allowed:g}")


def _why_missing(budget: str, result: Result, report: Report) -> str:
    if result.failed:
        return f"failed: {result.failed}"
    if "_mb" not in budget and report.reference in (None, result.name):
        return "it is the reference itself" if report.reference else "no reference; give --reference"
    if report.quick and budget.startswith("accuracy_drop"):
        return "--quick leaves it out"
    return "not in this bench; see --grid, --threads and --data"


def _interval_text(figure: Figure, allowed: float) -> str:
    if figure.drop_interval is None:
        return ""
    _, low, high = figure.drop_interval
    verdict = "which reaches the limit" if low <= allowed else "all above the limit"
    return f" (95 % interval {low:.2f} to {high:.2f}, {verdict})"
