"""Runs of a small recipe, and what they leave."""

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
    finished = distill(load_recipe(recipe_file, changes), folder / "run")
    return finished, {name: step["facts"] for name, step in read_json(finished / "manifest.json")["steps"].items()}


def load_finite(run: Path) -> Student:
    """Load the student of a run, and check that its vectors are finite."""
    student, tokenizer = Student.load(run / "student")
    assert np.isfinite(encode(student, tokenizer, ["The boat is late.", ""])).all()
    return student
