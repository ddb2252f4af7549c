from functools import partial
from pathlib import Path

import pytest

from tests.helpers.student import SENTENCES, make_tokenizer
from xcompress.bench.latency import (
    SHAPES,
    Shape,
    Turn,
    calls_per_turn,
    parse_grid,
    real_batches,
    summarize_calls,
    take_turns,
)
from xcompress.errors import InputError


def fakes(log: list[str], seconds: dict[str, float], dies: str = "", after: int = 0) -> dict[str, Turn]:
    def time(name: str, calls: int, warm: bool) -> list[float]:
        log.append(f"{name}{calls}{'w' if warm else ''}")
        if name == dies and sum(entry.startswith(name) for entry in log) > after:
            return []
        return [seconds[name]] * calls

    return {name: partial(time, name) for name in seconds}


def test_subjects_take_turns() -> None:
    log: list[str] = []
    rounds = take_turns(fakes(log, {"a": 0.2, "b": 0.01}), 0, 3)
    assert log == ["a1", "b1", *["a1", "b5w"] * 3], "one warm-up each, then in turn; short calls warmed and repeated"
    assert rounds == {"a": [[0.2]] * 3, "b": [[0.01] * 5] * 3}


def test_rounds_are_added_until_the_time_is_over() -> None:
    log: list[str] = []
    steps: list[int] = []
    rounds = take_turns(fakes(log, {"a": 0.2}), 0.02, 2, lambda: steps.append(1))
    assert len(rounds["a"]) > 2
    assert len(steps) == 3, "the bar moves for the warm-up and the least number of rounds only"


@pytest.mark.parametrize("after", [0, 2])
def test_a_subject_that_dies_is_dropped(after: int) -> None:
    log: list[str] = []
    rounds = take_turns(fakes(log, {"a": 0.2, "b": 0.2}, dies="a", after=after), 0, 4)
    assert rounds == {"b": [[0.2]] * 4}
    assert sum(entry.startswith("a") for entry in log) == after + 1


def test_calls_per_turn() -> None:
    assert [calls_per_turn(seconds) for seconds in (0.0001, 0.02, 3.0)] == [10, 2, 1]


def test_summary_by_hand() -> None:
    own = [[1.0, 1.0, 4.0], [2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
    found = summarize_calls(Shape(1, 16), 1, own, [[4.0], [4.0], [4.0]], multiply_adds=80, peak=400.0)
    assert (found.calls, found.rounds, found.least, found.p50, found.most) == (9, 3, 1.0, 2.0, 4.0)
    assert found.speedup == 2.0, "the median of 4/1, 4/2 and 4/3"
    assert found.spread == pytest.approx(0.5)
    assert found.peak_share == 0.1, "80 in 2 s, of 400 in one"
    assert found.noisy
    quiet = summarize_calls(Shape(1, 16), 1, [[1.0, 1.01, 0.99, 1.0]], None)
    assert quiet.speedup is None
    assert not quiet.noisy


def test_batches_have_exact_shapes(tmp_path: Path) -> None:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    batches = real_batches(tmp_path / "tokenizer.json", SENTENCES * 20)
    for shape in SHAPES:
        assert len(batches[shape]) == shape.batch
        assert {len(row) for row in batches[shape]} == {shape.tokens}
        assert all(row[0] == 0 and row[-1] == 2 for row in batches[shape]), "special tokens at both ends"
    assert len({tuple(row) for row in batches[Shape(32, 32)]}) > 1


def test_too_few_sentences(tmp_path: Path) -> None:
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="3 of 16 tokens"):
        real_batches(tmp_path / "tokenizer.json", ["rain"])


def test_a_broken_tokenizer_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer\.json \("):
        real_batches(tmp_path / "tokenizer.json", SENTENCES)


def test_a_grid_is_parsed() -> None:
    assert parse_grid("1x16, 8x33,1x16") == (Shape(1, 16), Shape(8, 33))
    for text in ("16", "0x16", "1x2", "1x9999", "1x16,", "axb"):
        with pytest.raises(InputError, match="is not a shape; write batch x tokens"):
            parse_grid(text)
