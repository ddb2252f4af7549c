"""Runs of a small recipe, and what they leave."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from xcompress.distillation.pipeline import distill
from xcompress.files import read_json
from xcompress.modeling.student import Student, encode
from xcompress.recipe import load_recipe

TRAINING = "steps: 4, batch_size: 8, learning_rate: 0.001"
CONTRAST = f"stages={{contrast: {{train: student, objectives: {{teacher: 1, contrast: 1}}, {TRAINING}}}}}"


def run(recipe_file: Path, folder: Path, *changes: str) -> tuple[Path, dict[str, Any]]:
    """Run a recipe with some changes; return the run folder and the facts of each step.

    A new run begins with the finished steps of one without changes: those that a change affects are done again.
    """
    if not (folder / "run").exists():
        shutil.copytree(_steps_before_stages(recipe_file), folder / "run")
    finished = distill(load_recipe(recipe_file, changes), folder / "run")
    return finished, {name: step["facts"] for name, step in read_json(finished / "manifest.json")["steps"].items()}


@cache
def _steps_before_stages(recipe_file: Path) -> Path:
    """Run the recipe with a short stage; return a folder with the steps before it, and the teacher's vectors."""
    finished = distill(load_recipe(recipe_file, [CONTRAST]), recipe_file.parent / "short-run")
    steps = recipe_file.parent / "steps-before-stages"
    for name in ("reference", "corpus", "start", "tokens_translations", "vectors"):
        shutil.copytree(finished / name, steps / name)
    return steps


def load_finite(run: Path) -> Student:
    """Load the student of a run, and check that its vectors are finite."""
    student, tokenizer = Student.load(run / "student")
    assert np.isfinite(encode(student, tokenizer, ["The boat is late.", ""])).all()
    return student
