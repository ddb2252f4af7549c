"""Runs that are killed and started again."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.process import code_of, run, start
from tests.helpers.recipe import FROM_SCRATCH, losses, stages_of, write_recipe
from xcompress.files import read_json, sha256_of

KILLS = ("1-assistant", "2-embedding", "3-imitation", "4-contrast", "4-contrast")
SETTINGS = {"assistant.steps": 20, "embedding.steps": 30, "imitation.steps": 20, "contrast.steps": 80} | {
    f"{stage}.checkpoint_steps": 3 for stage in ("assistant", "embedding", "imitation", "contrast")
}
"""A stage takes up to a second, of which a kill picks a moment.

In the stage that is killed twice, a logged loss is the mean of two steps, and half of the checkpoints lie between
the two.
"""
OBJECTIVES = "{unified: 1, alignment: 2, similarity: 2, moving_teacher: 10}"
DUAL = f"objectives: {OBJECTIVES}, steps: 40, learning_rate: 3.0e-3, dropout: 0.1, moving_decay: 0.99"
# most processors compute bfloat16, in which the second one trains, more slowly
CHANGES = {
    "four": ["precision=float32", *(f"stages.{key}={value}" for key, value in SETTINGS.items())],
    "dual": [*FROM_SCRATCH, stages_of(dual=DUAL)],
}
PATIENCE = 300


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe and its whole runs, one for each entry of `CHANGES`.

    An interpreter of its own makes them, whose order of sets is another than that of killed runs.
    """
    folder = tmp_path_factory.mktemp("whole")
    write_recipe(folder / "recipe")
    commands = [[*command(folder, name), str(folder / name)] for name in CHANGES]
    done = subprocess.run([sys.executable, "-c", code_of(commands)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["[0, 0]"], done.stderr[-2000:]
    return folder


def command(folder: Path, changes: str) -> list[str]:
    return ["distill", str(folder / "recipe/small.yaml"), *CHANGES[changes], "--run"]


def kill_in(stage: str, folder: Path, command: list[str]) -> None:
    """Start the run and kill it at some moment of a stage, or of the next if that one is done."""
    process = start([*command, str(folder)], folder.with_suffix(".log"))
    deadline = time.monotonic() + PATIENCE
    while not (list(folder.glob(f"work/{stage}-*")) or (folder / stage).exists()):
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.uniform(0, 1))
    process.kill()
    process.join()


@pytest.mark.slow
def test_a_run_killed_five_times_ends_with_the_same_weights(whole: Path, tmp_path: Path) -> None:
    distill, alone, killed = command(whole, "four"), whole / "four", tmp_path / "killed"
    for stage in KILLS:
        kill_in(stage, killed, distill)
        assert not (killed / "manifest.json").exists()
    run([*distill, str(killed)], tmp_path / "killed.log")
    assert sha256_of(killed / "student/model.safetensors") == sha256_of(alone / "student/model.safetensors")
    assert not list(killed.glob(".*.tmp")) and not list(killed.glob("work/*"))
    loss_logs = [{name: losses(folder, name) for name in dict.fromkeys(KILLS)} for folder in (alone, killed)]
    assert loss_logs[0] == loss_logs[1]


@pytest.mark.slow
def test_a_stage_with_moving_teacher_and_dropout_resumes_exactly_after_kills(whole: Path, tmp_path: Path) -> None:
    distill, alone, killed = command(whole, "dual"), whole / "dual", tmp_path / "killed"
    for name in ("corpus", "start"):  # a trained vocabulary is not the same in every process
        shutil.copytree(alone / name, killed / name)
    for least in (1, 3):
        _kill_after_checkpoints(distill, killed, least)
    run([*distill, str(killed)], tmp_path / "killed.log")
    assert losses(killed, "1-dual") == losses(alone, "1-dual")
    assert sha256_of(killed / "student/model.safetensors") == sha256_of(alone / "student/model.safetensors")
    times = [read_json(folder / "1-dual/step.json") for folder in (alone, killed)]
    assert times[0]["facts"]["seconds_before"] == 0
    assert times[1]["seconds"] > times[1]["facts"]["seconds_before"] > 0, "the time of the killed runs counts"


def _kill_after_checkpoints(command: list[str], folder: Path, least: int) -> None:
    process = start([*command, str(folder)], folder.with_suffix(".log"))
    deadline = time.monotonic() + PATIENCE
    while _last_checkpoint(folder) < 4 * least:
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not (folder / "manifest.json").exists()


def _last_checkpoint(folder: Path) -> int:
    marks = folder.glob("work/*/checkpoint-*/complete")
    return max((int(mark.parent.name.split("-")[1]) for mark in marks), default=0)
