"""Write what longer training gained for the released models: dev scores by sentences seen, as table and picture.

    python benchmarks/release/curve.py runs/release [runs/release_small ...]

Reads the scores that the runs recorded during training (`dev.steps` in their recipes), and writes
benchmarks/release.md and benchmarks/release.png. Trains and scores nothing.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from xcompress.console import emit, markdown_table, run_script
from xcompress.distillation.dev import DevScores
from xcompress.files import read_json, write_between_markers
from xcompress.recipe import load_recipe
from xcompress.recipe.lineage import student_before

BENCHMARKS = Path(__file__).parents[1]
PAGE, PICTURE = BENCHMARKS / "release.md", BENCHMARKS / "release.png"
SCORES = {"sts monolingual": "STS, one language", "sts en-xx": "STS, en-xx", "retrieval": "translations found"}
SIDES = 2
"""Sentences per pair."""


@dataclass(frozen=True)
class Point:
    """A student at one moment of its training."""

    run: str
    seen: int
    """Sentences trained on so far, both sides of each pair."""
    scores: Mapping[str, float]


def main() -> None:
    """Read the runs, write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    points = [point for run in parser.parse_args().runs for point in read_points(run)]
    draw(points)
    write_between_markers(PAGE, "curve", "benchmarks/release/curve.py", table(points))
    emit(f"{PAGE}\n{PICTURE}")


def read_points(run: Path) -> list[Point]:
    """Return each moment at which a run's student was scored, the untrained student first.

    The sentences that an earlier run's student had seen count, too, if this student started from it.
    """
    manifest = read_json(run / "manifest.json")
    points, seen = [], sentences_seen_before(run)
    for name, stage in manifest["recipe"]["stages"].items():
        facts = next(step["facts"] for key, step in manifest["steps"].items() if key.endswith(f"-{name}"))
        if "untrained" in facts:
            points.append(Point(manifest["name"], seen, DevScores(**facts["untrained"]).means()))
        for entry in facts.get("dev_course", []):  # the mean of several trainings has none
            points.append(Point(manifest["name"], seen + entry["step"] * sentences_per_step(stage), entry["dev"]))
        seen += stage["steps"] * sentences_per_step(stage)
        points.append(Point(manifest["name"], seen, DevScores(**facts["dev"]).means()))
    # of several points at the same place, the last one counts
    return [
        point for point, after in zip(points, [*points[1:], None], strict=True) if not after or after.seen > point.seen
    ]


def sentences_seen_before(run: Path) -> int:
    """Count the sentences that the earlier student had seen from which a run's student started."""
    student = student_before(load_recipe(run / "recipe.yaml"))
    if student is None:
        return 0
    stages = list(read_json(student.parent / "manifest.json")["recipe"]["stages"].values())
    number = student.name.partition("-")[0]
    finished = stages[: int(number)] if number.isdecimal() else stages
    seen = sum(int(stage["steps"]) * sentences_per_step(stage) for stage in finished)
    return sentences_seen_before(student.parent) + seen


def sentences_per_step(stage: Mapping[str, Any]) -> int:
    """Count the sentences in a step of a stage, in all its trainings."""
    return SIDES * int(stage["batch_size"]) * int(stage.get("soup", 1))


def table(points: Sequence[Point]) -> str:
    """Return the points as a Markdown table."""
    rows = [(point.run, f"{point.seen:,}", *(f"{point.scores[key]:.1f}" for key in SCORES)) for point in points]
    return markdown_table(["run", "sentences seen", *SCORES.values()], rows)


def draw(points: Sequence[Point]) -> None:
    """Draw the scores of each run by the sentences seen."""
    figure = Figure(figsize=(9, 3.4), dpi=160)
    for axes, (key, title) in zip(figure.subplots(1, len(SCORES)), SCORES.items(), strict=True):
        for run in dict.fromkeys(point.run for point in points):
            line = [point for point in points if point.run == run]
            seen, scores = [point.seen / 1000 for point in line], [point.scores[key] for point in line]
            axes.plot(seen, scores, marker="o", markersize=3, label=run)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("thousand sentences seen", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    run_script(main)
