from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xcompress.distillation.trainer import COMPLETE, _MarkComplete, newest_checkpoint, remove_damaged_checkpoints
from xcompress.files import read_json


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with two complete checkpoints."""
    arguments: Any = SimpleNamespace(output_dir=tmp_path)
    for step in (4, 8):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "optimizer.pt").write_text(f"state {step}" * 100)
        state: Any = SimpleNamespace(is_world_process_zero=True, global_step=step)
        _MarkComplete(20.0).on_save(arguments, state, arguments)
    return tmp_path


def test_a_complete_checkpoint_says_how_long_it_took_and_what_it_holds(work: Path) -> None:
    marker = read_json(work / "checkpoint-8" / COMPLETE)
    assert marker["seconds"] == pytest.approx(20, abs=5)
    assert {name: entry["bytes"] for name, entry in marker["files"].items()} == {"optimizer.pt": 700}
    remove_damaged_checkpoints("contrast", work)
    assert newest_checkpoint(work) == str(work / "checkpoint-8")


def test_files_of_a_checkpoint_are_on_the_disk_before_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    marker = tmp_path / "checkpoint-4" / COMPLETE
    marker.parent.mkdir()
    monkeypatch.setattr("xcompress.distillation.trainer.sync", lambda folder: synced.append(marker.exists()))
    arguments: Any = SimpleNamespace(output_dir=tmp_path)
    state: Any = SimpleNamespace(is_world_process_zero=True, global_step=4)
    _MarkComplete(0.0).on_save(arguments, state, arguments)
    assert synced == [False] and marker.exists()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt is missing"),
        (lambda folder: (folder / "optimizer.pt").write_text("state"), "optimizer.pt is shorter than written"),
        (lambda folder: (folder / "optimizer.pt").write_text("x" * 701), "optimizer.pt is longer than written"),
        (lambda folder: (folder / COMPLETE).write_text(""), "complete is damaged"),
        (lambda folder: (folder / COMPLETE).write_text("{}"), "complete is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_said_and_the_one_before_is_taken(
    work: Path, damage: Callable[[Path], object], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(work / "checkpoint-8")
    remove_damaged_checkpoints("contrast", work)
    assert newest_checkpoint(work) == str(work / "checkpoint-4")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"contrast: checkpoint-8: {what}") and said.endswith("; training resumes before it")


def test_checkpoints_of_an_earlier_version_are_taken(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / COMPLETE).write_text("12.5")
    remove_damaged_checkpoints("contrast", tmp_path)
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
