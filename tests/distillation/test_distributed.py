import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.recipe import FROM_SCRATCH, stages_of, write_recipe
from xcompress.files import read_json

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
DISTILL = ["-m", "xcompress", "distill"]
NAMES = ("assistant", "embedding", "imitation", "contrast")
STEPS = 40
CHANGES = [
    "precision=float32",  # in bfloat16 the order of additions shows, and a small random model magnifies it
    *(f"stages.{name}.steps={STEPS}" for name in NAMES),
    "stages.assistant.objectives={teacher: 100, contrast: 1000}",  # losses are logged with four decimals
    "stages.contrast.objectives={teacher: 100, contrast: 1000}",
    "stages.imitation.objectives={assistant: 100}",
]


def distill(launcher: list[str], recipe: Path, folder: Path) -> dict[str, Any]:
    """Run the recipe; return the manifest."""
    command = [*launcher, *DISTILL, str(recipe), *CHANGES, "--json", "--run-folder", str(folder)]
    environment = os.environ | {"ACCELERATE_MIXED_PRECISION": "bf16"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def losses(manifest: dict[str, Any]) -> dict[str, list[float]]:
    """Return the loss log of each stage."""
    facts = {name: step["facts"] for name, step in manifest["steps"].items()}
    return {name: [point["loss"] for point in fact["loss"]] for name, fact in facts.items() if "loss" in fact}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone") / "run"
    distill([sys.executable], recipe, folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("again", "compared"), [("1-assistant", ("1-assistant", "2-embedding")), ("3-imitation", ("3-imitation",))]
)
def test_two_workers_have_the_loss_of_one_at_the_same_batch(
    again: str, compared: tuple[str, ...], recipe: Path, alone: Path, tmp_path: Path
) -> None:
    """Both start a stage from the same files; in earlier steps, rounding to float16 would magnify the last digit."""
    folder = Path(shutil.copytree(alone, tmp_path / "together"))
    shutil.rmtree(folder / again)
    expected, actual = losses(read_json(alone / "manifest.json")), losses(distill(TORCHRUN, recipe, folder))
    for stage in compared:
        assert len(actual[stage]) >= STEPS / 4
        assert actual[stage] == pytest.approx(expected[stage], rel=1e-3), stage
    assert read_json(folder / "manifest.json")["machine"]["workers"] == 2


@pytest.mark.slow
def test_two_workers_have_the_loss_of_one_without_teacher_and_assistant(tmp_path: Path) -> None:
    objectives = "{unified: 1, alignment: 2, similarity: 2, moving_teacher: 10}"
    stage = stages_of(dual=f"objectives: {objectives}, steps: 40, learning_rate: 3.0e-3, moving_decay: 0.9")
    recipe = str(write_recipe(tmp_path / "recipe"))
    alone, together = tmp_path / "alone", tmp_path / "together"
    command = [*DISTILL, recipe, *FROM_SCRATCH, stage, "precision=float32", "--run-folder"]
    subprocess.run([sys.executable, *command, str(alone)], check=True, capture_output=True)
    for name in ("corpus", "start"):
        shutil.copytree(alone / name, together / name)
    subprocess.run([*TORCHRUN, *command, str(together)], check=True, capture_output=True)
    assert read_json(together / "manifest.json")["machine"]["workers"] == 2
    expected, actual = (losses(read_json(run / "manifest.json"))["1-dual"] for run in (alone, together))
    assert actual == pytest.approx(expected, rel=1e-3)


def test_a_batch_that_cannot_be_shared_is_refused(recipe: Path, tmp_path: Path) -> None:
    command = [*TORCHRUN, *DISTILL, str(recipe), "stages.contrast.batch_size=7", "--run-folder", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode != 0
    assert "stages.contrast.batch_size: 7 cannot be shared equally by 2 workers" in done.stderr
