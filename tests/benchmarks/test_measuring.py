"""What the scripts share: fresh processes, turns and ratios."""

import argparse
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.measuring import add_rounds, in_fresh_process, in_turns, median_ratio
from xcompress.errors import XCompressError

SCRIPT = """
import os
import beside

def process(place, number):
    print("a library prints this")
    return {"id": os.getpid(), "place": place, "number": number + beside.ONE, "found": os.environ.get("XC_MEASURED")}

def failing():
    raise ValueError("no such graph")
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    (tmp_path / "measured.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return import_module("measured")


def test_a_function_runs_in_processes_of_its_own_which_find_the_files_beside_it(script: ModuleType) -> None:
    first = in_fresh_process(script.process, Path("graphs"), 2, environment={"XC_MEASURED": "yes"})
    second = in_fresh_process(script.process, "graphs", 2)
    assert {**first, "id": 0} == {"id": 0, "place": "graphs", "number": 3, "found": "yes"}
    assert second["found"] is None
    assert len({first["id"], second["id"], script.os.getpid()}) == 3


def test_a_process_that_fails_is_named_with_its_error(script: ModuleType) -> None:
    with pytest.raises(XCompressError, match=r"measured\.failing: exit code 1, ValueError: no such graph"):
        in_fresh_process(script.failing)


def test_each_takes_its_turn_in_every_round() -> None:
    order: list[str] = []
    replies = in_turns({name: lambda name=name: order.append(name) or len(order) for name in "ab"}, 2)
    assert order == ["a", "b", "a", "b"]
    assert replies == {"a": [1, 3], "b": [2, 4]}


def test_ratios_are_those_within_a_round() -> None:
    assert median_ratio([2, 9, 8], [1, 3, 2]) == 3


@pytest.mark.parametrize("text", ["0", "-1", "few"])
def test_there_is_at_least_one_round(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_rounds(parser, 3)
    assert parser.parse_args([]).rounds == 3
    with pytest.raises(SystemExit):
        parser.parse_args(["--rounds", text])
    assert "--rounds: at least 1" in capsys.readouterr().err
