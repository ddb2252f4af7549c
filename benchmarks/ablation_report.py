"""Turn the runs of benchmarks/ablation.py into benchmarks/ablation.md and benchmarks/ablation.png.

    python benchmarks/ablation_report.py [--runs runs/ablation]

Variants are compared seed by seed. A difference counts where it has the same sign for every seed that both have and is
more than a point on average; with one such seed, where it is larger than the range of the base over its seeds.
Otherwise it cannot be told from chance.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ablation import DEPTHS, DEV_EVERY, DRAWN, LANGUAGES, MAX_PAIRS, SEEDS, SINGLE_STAGE_STEPS, STEPS
from matplotlib.figure import Figure

from xcompress.console import markdown_table, say
from xcompress.files import read_json, write_text

HERE = Path(__file__).parent
CROSS = "sts en-xx"
BASE = "multi-stage"
LEAST = 1.0
"""Points by which variants must differ on average, where they have several seeds."""
SCORES = {
    CROSS: "STS, English-xx",
    "sts other monolingual": "STS, xx-xx",
    "spearman": "agreement with the teacher",
    "retrieval": "translations found",
}
LABELS = {
    "multi-stage": "four stages, \\|RU\\| 3, B 128",
    "single-stage": "single stage, random bottleneck",
    "pre-distilled": "single stage, after stage 2",
    "none": "stage 4 without MCL",
    "bool": "stage 4 with `bool`",
    "ce": "stage 4 with `ce`",
    "once": "without recurrence (3 layers, once)",
    "once-none": "without recurrence and MCL",
    "b256": "B 256",
    "bnone": "no bottleneck",
    "ru6": "\\|RU\\| 6",
    "ru12": "\\|RU\\| 12",
    "elastic": "elastic depth, weights 0.25, 0.25, 0.5, 1",
}
CLAIMS = (
    ("Four stages beat a single stage (table 6)", "multi-stage", "single-stage"),
    ("Four stages beat a single stage after pre-distillation (table 6)", "multi-stage", "pre-distilled"),
    ("MCL helps (tables 3 and 4)", "multi-stage", "none"),
    ("Soft labels beat hard ones, `bool` (table 5)", "multi-stage", "bool"),
    ("They beat cross-entropy, `ce` (table 5)", "multi-stage", "ce"),
    ("Recurrence helps (tables 3 and 4)", "multi-stage", "once"),
    ("A wider bottleneck helps: 256 over 128 (table 8)", "b256", "multi-stage"),
    ("No bottleneck is best (table 8)", "bnone", "b256"),
    ("More distinct layers help: 6 over 3 (table 8)", "ru6", "multi-stage"),
    ("More distinct layers help: 12 over 3 (table 8)", "ru12", "multi-stage"),
)
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
"""Told apart by the colour-blind (Okabe and Ito)."""


@dataclass(frozen=True)
class Measured:
    """A variant's final scores, seed by seed, its size, and its course where it was scored while it trained."""

    scores: Mapping[int, Mapping[str, float]]
    """By seed."""
    parameters: int
    course: tuple[tuple[int, float], ...]

    def of(self, score: str) -> list[float]:
        """Return one score for each seed."""
        return [own[score] for own in self.scores.values()]


def read(runs: Path) -> dict[str, Measured]:
    """Read every variant that has a finished run."""
    found = {}
    for name in LABELS:
        files = {seed: runs / f"{name}-s{seed}" / "manifest.json" for seed in SEEDS}
        manifests = {seed: read_json(file) for seed, file in files.items() if file.is_file()}
        if manifests:
            first = next(iter(manifests.values()))
            last = list(first["steps"].values())[-1]["facts"]
            scores = {seed: manifest["dev"] for seed, manifest in manifests.items()}
            found[name] = Measured(scores, sum(last["sizes"].values()), _course(first))
    return found


def _course(manifest: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return (student steps so far, score) of the stages that train the whole student, one after the other."""
    points, before = [], 0
    for name, stage in manifest["recipe"]["stages"].items():
        if stage["train"] == "student":
            facts = next(step["facts"] for key, step in manifest["steps"].items() if key.endswith(f"-{name}"))
            points += [(before + point["step"], point["dev"][CROSS]) for point in facts["dev_course"]]
            before += stage["steps"]
    return tuple(points)


def table(found: Mapping[str, Measured]) -> str:
    """Return the table of all variants: means, and from the worst to the best seed."""
    head = ("variant", "seeds", "parameters", *SCORES.values())
    return markdown_table(head, (_row(name, one) for name, one in found.items()))


def _row(name: str, one: Measured) -> tuple[str, ...]:
    return (
        LABELS[name],
        str(len(one.scores)),
        f"{one.parameters / 1e6:.2f} M",
        *(_with_spread(one.of(score)) for score in SCORES),
    )


def _with_spread(values: Sequence[float]) -> str:
    return f"{fmean(values):.1f}" + (f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else "")


def verdicts(found: Mapping[str, Measured]) -> Iterator[str]:
    """Yield what became of each claim, on STS between English and the other languages."""
    base = found[BASE].of(CROSS)
    for claim, better, worse in CLAIMS:
        known = better in found and worse in found
        verdict = _verdict(found[better], found[worse], max(base) - min(base)) if known else "not measured"
        yield f"- **{claim}:** {verdict}"


def _verdict(better: Measured, worse: Measured, spread: float) -> str:
    seeds = [seed for seed in better.scores if seed in worse.scores]
    if not seeds:
        return "not measured with one seed"
    left, right = ([one.scores[seed][CROSS] for seed in seeds] for one in (better, worse))
    differences = [mine - its for mine, its in zip(left, right, strict=True)]
    figures = ", ".join(f"{mine:.1f} against {its:.1f}" for mine, its in zip(left, right, strict=True))
    same_sign = len({difference > 0 for difference in differences}) == 1
    apart = same_sign and abs(fmean(differences)) > (LEAST if len(seeds) > 1 else spread)
    if not apart:
        return f"cannot be told here ({figures})"
    return f"{'holds' if differences[0] > 0 else 'does not hold; the opposite does'} here ({figures})"


def depths(runs: Path) -> str:
    """Return the table of scores after each recurrence."""
    scores = read_json(runs / DEPTHS) if (runs / DEPTHS).is_file() else {}
    if not scores:
        return "Not measured."
    head = ("student", *(f"{depth} of {len(scores['elastic'])}" for depth in range(1, len(scores["elastic"]) + 1)))
    rows = (
        (LABELS[name], *(f"{one['en-xx']:.1f} / {one['other monolingual']:.1f}" for one in own))
        for name, own in scores.items()
    )
    return markdown_table(head, rows)


def _plain(label: str) -> str:
    return label.replace("`", "").replace("\\", "")


def draw(found: Mapping[str, Measured], file: Path) -> None:
    """Draw dev accuracy against training steps of the student, as figure 3 of the paper does against epochs."""
    figure = Figure(figsize=(7.5, 4.2), dpi=160)
    axes = figure.subplots()
    for (name, colour), dash in zip(
        zip(DRAWN, COLOURS, strict=True), ("-", "--", "-.", ":", (0, (5, 1, 1, 1))), strict=True
    ):
        if name in found and found[name].course:
            steps, scores = zip(*found[name].course, strict=True)
            axes.plot(
                steps,
                scores,
                color=colour,
                linestyle=dash,
                marker="o",
                markersize=3,
                label=_plain(LABELS[name]),
            )
    axes.axvline(STEPS["imitation"], color="0.6", linewidth=0.8)
    axes.annotate(
        "stage 4 begins",
        (STEPS["imitation"], axes.get_ylim()[0]),
        xytext=(4, 4),
        textcoords="offset points",
        color="0.4",
        fontsize=8,
    )
    axes.set_xlabel("training steps of the student (32 pairs each)")
    axes.set_ylabel("STS English-xx on dev, Spearman x 100")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def text(found: Mapping[str, Measured], by_depth: str) -> str:
    """Return the page."""
    steps = STEPS
    return f"""# The multi-stage paper's claims, at a small scale

    python benchmarks/ablation.py DATA && python benchmarks/ablation_report.py

Written by the second command. Every variant is recipes/minilm_ru3.yaml with the changes in benchmarks/ablation.py:
teacher all-MiniLM-L6-v2, assistant multilingual-e5-small, {len(LANGUAGES)} languages with English, at most
{MAX_PAIRS:,} pairs each of everyday sentences, news and software messages. One assistant (stage 1,
{steps["assistant"]} steps) serves all variants, and one stage 2 ({steps["embedding"]} steps) those of the same shape;
stage 3 has {steps["imitation"]} steps, stage 4 {steps["contrast"]}, of 32 pairs; a single stage has
{SINGLE_STAGE_STEPS}, as many as both. A seed sets the order of the text and the initial values of stages 3 and 4.
That is some minutes on a CPU core where the paper trained for days: what does not show after
{SINGLE_STAGE_STEPS} steps may show after 100,000.

The runs shown were made before targets were kept as float16 and before sentences of like length were grouped our own
way; commands and settings are the same.

Scores are on dev sets alone: STS on every {DEV_EVERY}th row of stsb-multi-mt's dev part (machine-translated; de, es,
fr, it, nl and tr; Arabic is not in it), agreement and translation retrieval on held-out pairs of all languages.

{table(found)}

In brackets: worst and best seed.

## Which claims hold here

On STS between English and another language, seed by seed. A difference counts where it has the same sign for every
seed and is more than {LEAST:g} on average; with one seed, where it is larger than the range of the first row over its
seeds.

{chr(10).join(verdicts(found))}

## Accuracy at each depth

STS English-xx / xx-xx after so many recurrences, of the student trained at its full depth alone and of one trained with
`depth_weights` in stages 3 and 4 (not from the paper).

{by_depth}

## Dev accuracy against steps

![Dev accuracy of the variants against training steps of the student](ablation.png)

The paper's figure 3 shows this against epochs. A single stage is trained with the objective of stage 4 from its
first step.
"""


def main() -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    runs = parser.parse_args().runs
    found = read(runs)
    write_text(HERE / "ablation.md", text(found, depths(runs)))
    draw(found, HERE / "ablation.png")
    say(f"{HERE / 'ablation.md'}: {len(found)} variants")


if __name__ == "__main__":
    main()
