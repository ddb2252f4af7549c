"""Notes and warnings of a report."""

from collections.abc import Sequence

from xcompress.bench.eval import QUICK_STEP
from xcompress.bench.machine import Machine
from xcompress.bench.report.format import call_text, threads_text
from xcompress.bench.results import NOISY, Result

BUSY = 0.2
"""Load per processor above which the machine was not idle."""


def failures(results: Sequence[Result]) -> list[str]:
    """Return a line for every subject that failed."""
    return [f"{result.name}: failed: {result.failed}" for result in results if result.failed]


def load_warnings(machine: Machine) -> list[str]:
    """Warn when other programs kept the machine busy: if they slow every call alike, the spread does not show it."""
    if machine.load <= BUSY * machine.threads:
        return []
    return [
        f"machine.load: {machine.load} before the bench on {threads_text(machine.threads)}; all times are too long, "
        "most of all with several threads; close other programs and run again"
    ]


def noise_warnings(results: Sequence[Result]) -> list[str]:
    """Return a line for every subject with noisy latencies."""
    return [
        f"{result.name}: calls spread by more than {NOISY:.0%} (interquartile range over median) at "
        f"{', '.join(noisy)}; close other programs and run again"
        for result in results
        if (noisy := [call_text(latency) for latency in result.latency if latency.noisy])
    ]


def notes_of(results: Sequence[Result], reference: str | None, quick: bool) -> list[str]:
    """Return what a reader has to know about the figures."""
    notes = []
    if reference is None:
        notes.append("no reference: name a model with --reference to compare with it")
    if quick:
        notes.append(
            f"quick: every {QUICK_STEP}th row of the graded sets, few rounds, no models between reference and bundle; "
            "run without --quick for final figures"
        )
    calls = [latency.calls for result in results for latency in result.latency]
    if calls:
        least, most = min(calls), max(calls)
        notes.append(f"calls per latency figure: {least if least == most else f'{least} to {most}'}")
    return notes
