"""Runs that are killed and started again."""

import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.process import run, start
from tests.helpers.recipe import FROM_SCRATCH, losses, stages_of, write_recipe
from xcompress.files import read_json, sha256_of

FRESH = [sys.executable, "-m", "xcompress"]
"""The whole runs are made by an interpreter of their own, whose order of sets is another than that of killed runs."""
KILLS = ("1-assistant", "1-assistant", "1-assistant", "2-embedding", "2-embedding", "3-imitation", "3-imitation") + (
    "4-contrast",
) * 3
SETTINGS = {"steps": 120, "checkpoint_steps": 6}
"""A stage takes some seconds, of which a kill picks a moment in the first.

A logged loss is the mean of three steps, and checkpoints lie between such means.
"""
PATIENCE = 300


def command(folder: Path) -> list[str]:
    stages = [stage.split("-")[1] for stage in dict.fromkeys(KILLS)]
    changes = [f"stages.{stage}.{key}={value}" for stage in stages for key, value in SETTINGS.items()]
    return ["distill", str(write_recipe(folder / "recipe")), *changes, "--run"]


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
def test_a_run_killed_ten_times_ends_with_the_same_weights(tmp_path: Path) -> None:
    distill = command(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*FRESH, *distill, str(whole)], check=True, capture_output=True)
    for stage in KILLS:
        kill_in(stage, killed, distill)
        assert not (killed / "manifest.json").exists()
    run([*distill, str(killed)], tmp_path / "killed.log")
    assert sha256_of(killed / "student/model.safetensors") == sha256_of(whole / "student/model.safetensors")
    assert not list(killed.glob(".*.tmp")) and not list(killed.glob("work/*"))
    loss_logs = [{name: losses(folder, name) for name in dict.fromkeys(KILLS)} for folder in (whole, killed)]
    assert loss_logs[0] == loss_logs[1]


@pytest.mark.slow
def test_a_stage_with_moving_teacher_and_dropout_resumes_exactly_after_kills(tmp_path: Path) -> None:
    objectives = "{unified: 1, alignment: 2, similarity: 2, moving_teacher: 10}"
    stage = stages_of(
        dual=f"objectives: {objectives}, steps: 160, learning_rate: 3.0e-3, dropout: 0.1, moving_decay: 0.99"
    )
    recipe = str(write_recipe(tmp_path / "recipe"))
    command = ["distill", recipe, *FROM_SCRATCH, stage, "--run"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*FRESH, *command, str(whole)], check=True, capture_output=True)
    for name in ("corpus", "start"):  # a trained vocabulary is not the same in every process
        shutil.copytree(whole / name, killed / name)
    for least in (1, 3):
        _kill_after_checkpoints(command, killed, least)
    run([*command, str(killed)], tmp_path / "killed.log")
    assert losses(killed, "1-dual") == losses(whole, "1-dual")
    assert sha256_of(killed / "student/model.safetensors") == sha256_of(whole / "student/model.safetensors")
    times = [read_json(folder / "1-dual/step.json") for folder in (whole, killed)]
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
