from pathlib import Path

import pytest

from xcompress.bench import machine
from xcompress.bench.machine import describe, measure_load


def test_the_load_is_the_busy_share_of_all_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 10 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n", encoding="ascii")

    def pass_time(seconds: float) -> None:
        stat.write_text("cpu  160 5 60 900 70 1 2 2 30 0\n", encoding="ascii")

    monkeypatch.setattr(machine, "STAT", stat)
    monkeypatch.setattr(machine, "sleep", pass_time)
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 4)
    assert measure_load() == 1.6, "80 of 200 ticks were neither idle nor waiting, of 4 processors"


def test_a_clock_that_stands_still_is_no_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n", encoding="ascii")
    monkeypatch.setattr(machine, "STAT", stat)
    monkeypatch.setattr(machine, "sleep", lambda _: None)
    assert measure_load() == 0


@pytest.mark.skipif(not machine.STAT.exists(), reason="only Linux has /proc/stat")
def test_the_load_is_that_of_psutil() -> None:
    psutil = pytest.importorskip("psutil")
    psutil.cpu_percent(percpu=True)
    load = measure_load()
    assert load == pytest.approx(sum(psutil.cpu_percent(percpu=True)) / 100, abs=0.5)


def test_this_machine_is_described() -> None:
    here = describe()
    assert here.cpu
    assert here.threads >= 1
    assert here.libraries["numpy"]
