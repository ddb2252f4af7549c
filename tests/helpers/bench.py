"""A bench that takes seconds: its figures are of the right kind and not precise."""

import pytest

from xcompress.bench import machine, peak, run
from xcompress.bench.latency import TimingConfig


def measure_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time a quick bench and the machine's peak with a few calls, and look at the load before for a moment only.

    Score it on a fifth of the rows.
    """
    monkeypatch.setattr("xcompress.bench.eval.QUICK_STEP", 60)
    monkeypatch.setattr(run, "QUICK", TimingConfig(0, 2, processes=1, passes=2, sentences=8))
    monkeypatch.setattr(peak, "CALLS", 2)
    monkeypatch.setattr(peak, "PASSES", 1)
    monkeypatch.setattr(machine, "LOAD_SECONDS", 0.05)
