"""What a report says in words: notes, warnings, failures."""

from collections.abc import Sequence

from xcompress.bench.eval.collect import QUICK_STEP
from xcompress.bench.machine import Machine
from xcompress.bench.results import NOISY, Latency, Result

BUSY = 0.2
"""Share of the processors' time above which the machine was not idle."""


def failures(results: Sequence[Result]) -> list[str]:
    """Write a line for every subject that failed."""
    return [f"{result.name}: failed: {result.failed}" for result in results if result.failed]


def load_warnings(machine: Machine) -> list[str]:
    """Write a line when other programs were at work: what slows every call alike does not show as spread."""
    if machine.load <= BUSY * machine.threads:
        return []
    return [
        f"machine.load: {machine.load} before the bench on {threads_text(machine.threads)}; all times are too long, "
        "above all with several threads; close other programs and run again"
    ]


def noise_warnings(results: Sequence[Result]) -> list[str]:
    """Write a line for every subject whose calls spread too far in some shape."""
    return [
        f"{result.name}: calls spread by more than {NOISY:.0%} (interquartile range over median) at "
        f"{', '.join(shapes)}; close other programs and run again"
        for result in results
        if (shapes := [f"{shape_text(one)} with {threads_text(one.threads)}" for one in result.latency if one.noisy])
    ]


def notes_of(results: Sequence[Result], reference: str | None, quick: bool) -> list[str]:
    """Say what a reader has to know about the figures."""
    notes = []
    if reference is None:
        notes.append("no reference: name a model with --reference to see what was won and lost")
    if quick:
        notes.append(
            f"quick: every {QUICK_STEP}rd row of the graded sets, few rounds, no models between reference and bundle; "
            "leave it out for final figures"
        )
    calls = [latency.calls for result in results for latency in result.latency]
    return [*notes, f"{min(calls)} to {max(calls)} calls per latency figure"] if calls else notes


def shape_text(latency: Latency) -> str:
    """Write a shape, such as `1x16`."""
    return f"{latency.batch}x{latency.tokens}"


def threads_text(count: int) -> str:
    """Write a number of threads."""
    return "1 thread" if count == 1 else f"{count} threads"
