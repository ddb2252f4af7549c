import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.recipe import write_recipe
from xcompress.files import read_json, sha256_of

COMMAND = [sys.executable, "-m", "xcompress", "distill"]
KILLS = ("1-assistant", "1-assistant", "1-assistant", "2-embedding", "2-embedding", "3-imitation", "3-imitation") + (
    "4-contrast",
) * 3
SETTINGS = {"steps": 300, "checkpoint_steps": 7}
"""A stage takes some seconds, of which a kill picks a moment in the first."""
PATIENCE = 300


def command(folder: Path) -> list[str]:
    stages = [stage.split("-")[1] for stage in dict.fromkeys(KILLS)]
    changes = [f"stages.{stage}.{key}={value}" for stage in stages for key, value in SETTINGS.items()]
    return [*COMMAND, str(write_recipe(folder / "recipe")), *changes, "--run"]


def kill_in(stage: str, run: Path, command: list[str]) -> None:
    """Start the run and kill it at some moment of a stage, or of the next if that one is done."""
    process = subprocess.Popen([*command, str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    while not (list(run.glob(f"work/{stage}-*")) or (run / stage).exists()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(random.uniform(0, 1))
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_same_weights(tmp_path: Path) -> None:
    distill = command(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*distill, str(whole)], check=True, capture_output=True)
    for stage in KILLS:
        kill_in(stage, killed, distill)
        assert not (killed / "manifest.json").exists()
    subprocess.run([*distill, str(killed)], check=True, capture_output=True)
    assert sha256_of(killed / "student/model.safetensors") == sha256_of(whole / "student/model.safetensors")
    assert not list(killed.glob(".*.tmp")) and not list(killed.glob("work/*"))
    losses = [
        [step["facts"].get("loss") for step in read_json(run / "manifest.json")["steps"].values()]
        for run in (whole, killed)
    ]
    assert losses[0] == losses[1]
