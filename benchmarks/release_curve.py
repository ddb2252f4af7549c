"""Write what longer training brought the released models: dev scores against sentences seen, as table and picture.

    python benchmarks/release_curve.py runs/release [runs/release_small ...]

Reads what the runs noted while they trained (`dev.steps` in their recipes), and writes benchmarks/release.md and
benchmarks/release.png. Nothing is trained or scored here.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from xcompress.console import emit, markdown_table
from xcompress.distillation.dev import DevScores
from xcompress.files import read_json, write_text
from xcompress.recipe import load_recipe
from xcompress.recipe.lineage import student_before

HERE = Path(__file__).parent
PAGE, PICTURE = HERE / "release.md", HERE / "release.png"
BEGIN, END = "<!-- curve: begin, written by benchmarks/release_curve.py -->", "<!-- curve: end -->"
SCORES = {
    "sts monolingual": "STS, one language",
    "sts en-xx": "STS, en-xx",
    "retrieval": "translations found",
}
SIDES = 2


@dataclass(frozen=True)
class Point:
    """A student at some point of its training."""

    run: str
    seen: int
    """Sentences trained on so far, both sides of each pair."""
    scores: Mapping[str, float]


def main() -> None:
    """Read the runs, write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    points = [point for run in parser.parse_args().runs for point in course(run)]
    draw(points)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    write_text(PAGE, f"{before}{BEGIN}\n{table(points)}\n{END}{rest.split(END)[1]}")
    emit(f"{PAGE}\n{PICTURE}")


def course(run: Path) -> list[Point]:
    """Return the points at which a run's student was scored, the untrained one first.

    What the student that it came from had seen counts, too.
    """
    manifest = read_json(run / "manifest.json")
    points, seen = [], seen_before(run)
    for name, stage in manifest["recipe"]["stages"].items():
        facts = next(step["facts"] for key, step in manifest["steps"].items() if key.endswith(f"-{name}"))
        if "untrained" in facts:
            points.append(Point(manifest["name"], seen, DevScores(**facts["untrained"]).means()))
        for one in facts["dev_course"]:
            points.append(Point(manifest["name"], seen + one["step"] * a_step(stage), one["dev"]))
        seen += stage["steps"] * a_step(stage)
        points.append(Point(manifest["name"], seen, DevScores(**facts["dev"]).means()))
    return [
        point for point, after in zip(points, [*points[1:], None], strict=True) if not after or after.seen > point.seen
    ]


def seen_before(run: Path) -> int:
    """Return how many sentences the student had seen that a run's came from."""
    student = student_before(load_recipe(run / "recipe.yaml"))
    if student is None:
        return 0
    stages = list(read_json(student.parent / "manifest.json")["recipe"]["stages"].values())
    number = student.name.partition("-")[0]
    until = int(number) if number.isdecimal() else len(stages)
    return seen_before(student.parent) + sum(int(stage["steps"]) * a_step(stage) for stage in stages[:until])


def a_step(stage: Mapping[str, Any]) -> int:
    """Return how many sentences a step of a stage sees."""
    return SIDES * int(stage["batch_size"])


def table(points: Sequence[Point]) -> str:
    """Return the points as a Markdown table."""
    rows = [(one.run, f"{one.seen:,}", *(f"{one.scores[key]:.1f}" for key in SCORES)) for one in points]
    return markdown_table(["run", "sentences seen", *SCORES.values()], rows)


def draw(points: Sequence[Point]) -> None:
    """Draw the scores of each run against the sentences that it has seen."""
    figure = Figure(figsize=(9, 3.4), dpi=160)
    for axes, (key, title) in zip(figure.subplots(1, len(SCORES)), SCORES.items(), strict=True):
        for run in dict.fromkeys(one.run for one in points):
            own = [one for one in points if one.run == run]
            axes.plot(
                [one.seen / 1000 for one in own], [one.scores[key] for one in own], marker="o", markersize=3, label=run
            )
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("thousand sentences seen", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
