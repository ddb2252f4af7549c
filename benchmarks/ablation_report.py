"""Write benchmarks/ablation.md and benchmarks/ablation.png from the runs of benchmarks/ablation.py.

    python benchmarks/ablation_report.py [--runs runs/ablation]

Variants are compared seed by seed. With several common seeds, a difference counts if it has the same sign for each of
them and exceeds one point on average. With one common seed, it counts if it exceeds the range of the base variant over
its seeds. Any other difference may be chance.
"""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ablation import DEPTHS, DEV_EVERY, DRAWN, LANGUAGES, MAX_PAIRS, SEEDS, SINGLE_STAGE_STEPS, STEPS
from matplotlib.figure import Figure

from xcompress.console import markdown_table, say
from xcompress.files import read_json, write_text

HERE = Path(__file__).parent
CROSS_LINGUAL = "sts en-xx"
BASE = "multi-stage"
MIN_DIFFERENCE = 1.0
"""Points by which variants with several common seeds must differ on average."""
SCORES = {
    CROSS_LINGUAL: "STS, English-xx",
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
"""Safe for colour-blind readers (Okabe and Ito)."""
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)))


@dataclass(frozen=True)
class VariantResult:
    """A variant's final scores by seed, its size, and its scores during training."""

    scores: Mapping[int, Mapping[str, float]]
    """By seed."""
    parameters: int
    history: tuple[tuple[int, float], ...]
    """(steps, score) while the first seed trained; empty if it was not scored."""

    def values(self, score: str) -> list[float]:
        """Return one score for each seed."""
        return [scores[score] for scores in self.scores.values()]


def read(runs: Path) -> dict[str, VariantResult]:
    """Read every variant that has a finished run."""
    results = {}
    for name in LABELS:
        files = {seed: runs / f"{name}-s{seed}" / "manifest.json" for seed in SEEDS}
        manifests = {seed: read_json(file) for seed, file in files.items() if file.is_file()}
        if manifests:
            first = next(iter(manifests.values()))
            last = list(first["steps"].values())[-1]["facts"]
            scores = {seed: manifest["dev"] for seed, manifest in manifests.items()}
            results[name] = VariantResult(scores, sum(last["sizes"].values()), _read_history(first))
    return results


def _read_history(manifest: Mapping[str, Any]) -> tuple[tuple[int, float], ...]:
    """Return (steps so far, score) of the stages that train the whole student."""
    points, before = [], 0
    for name, stage in manifest["recipe"]["stages"].items():
        if stage["train"] == "student":
            facts = next(step["facts"] for key, step in manifest["steps"].items() if key.endswith(f"-{name}"))
            points += [(before + point["step"], point["dev"][CROSS_LINGUAL]) for point in facts["dev_course"]]
            before += stage["steps"]
    return tuple(points)


def table(results: Mapping[str, VariantResult]) -> str:
    """Return the table of all variants: the mean of the seeds, and their range."""
    rows = []
    for name, result in results.items():
        row = [LABELS[name], str(len(result.scores)), f"{result.parameters / 1e6:.2f} M"]
        for score in SCORES:
            values = result.values(score)
            spread = f" ({min(values):.1f} to {max(values):.1f})" if len(values) > 1 else ""
            row.append(f"{fmean(values):.1f}{spread}")
        rows.append(row)
    return markdown_table(("variant", "seeds", "parameters", *SCORES.values()), rows)


def verdicts(results: Mapping[str, VariantResult]) -> Iterator[str]:
    """Yield a verdict on each claim, by STS between English and the other languages."""
    base = results[BASE].values(CROSS_LINGUAL)
    for claim, better, worse in CLAIMS:
        measured = better in results and worse in results
        verdict = _verdict(results[better], results[worse], max(base) - min(base)) if measured else "not measured"
        yield f"- **{claim}:** {verdict}"


def _verdict(better: VariantResult, worse: VariantResult, base_range: float) -> str:
    seeds = [seed for seed in better.scores if seed in worse.scores]
    if not seeds:
        return "not measured with a common seed"
    left, right = ([result.scores[seed][CROSS_LINGUAL] for seed in seeds] for result in (better, worse))
    differences = [first - second for first, second in zip(left, right, strict=True)]
    figures = ", ".join(f"{first:.1f} against {second:.1f}" for first, second in zip(left, right, strict=True))
    same_sign = len({difference > 0 for difference in differences}) == 1
    if not same_sign or abs(fmean(differences)) <= (MIN_DIFFERENCE if len(seeds) > 1 else base_range):
        return f"undecided here ({figures})"
    return f"{'holds' if differences[0] > 0 else 'does not hold; the opposite does'} here ({figures})"


def depths(runs: Path) -> str:
    """Return the table of scores after each recurrence."""
    scores = read_json(runs / DEPTHS) if (runs / DEPTHS).is_file() else {}
    if not scores:
        return "Not measured."
    head = ("student", *(f"{depth} of {len(scores['elastic'])}" for depth in range(1, len(scores["elastic"]) + 1)))
    rows = (
        (LABELS[name], *(f"{depth['en-xx']:.1f} / {depth['other monolingual']:.1f}" for depth in by_depth))
        for name, by_depth in scores.items()
    )
    return markdown_table(head, rows)


def draw(results: Mapping[str, VariantResult], file: Path) -> None:
    """Draw dev accuracy against training steps of the student; figure 3 of the paper has epochs instead."""
    figure = Figure(figsize=(7.5, 4.2), dpi=160)
    axes = figure.subplots()
    for name, colour, dash in zip(DRAWN, COLOURS, DASHES, strict=True):
        if name in results and results[name].history:
            steps, scores = zip(*results[name].history, strict=True)
            label = LABELS[name].replace("`", "").replace("\\", "")
            axes.plot(steps, scores, color=colour, linestyle=dash, marker="o", markersize=3, label=label)
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


def page(results: Mapping[str, VariantResult], depth_table: str) -> str:
    """Return the page."""
    return f"""# The multi-stage paper's claims, at a small scale

    python benchmarks/ablation.py DATA && python benchmarks/ablation_report.py

The second command writes this page. Every variant is recipes/four_stages.yaml with the overrides in
benchmarks/ablation.py. The teacher is all-MiniLM-L6-v2, the assistant multilingual-e5-small. The text is English with
{len(LANGUAGES)} languages, at most {MAX_PAIRS:,} pairs each, of everyday sentences, news and software messages. All
variants share one assistant (stage 1, {STEPS["assistant"]} steps), and variants of the same shape share stage 2
({STEPS["embedding"]} steps). Stage 3 has {STEPS["imitation"]} steps and stage 4 {STEPS["contrast"]}, of 32 pairs each.
A single stage has {SINGLE_STAGE_STEPS} steps, as many as both. The seed sets the order of the text and the initial
values of stages 3 and 4. This takes some minutes on a CPU core; the paper trained for days. An effect that is absent
after {SINGLE_STAGE_STEPS} steps may appear after 100,000.

The runs shown are older than three changes: targets in float16, the current grouping of sentences by length, and the
head, which is now fitted anew for a recurrent student. Commands and settings are the same. In all runs `contrast` has
1/384 of the weight that it has in the paper, where it stands beside means over the width.

Scores are on dev sets only. STS is every {DEV_EVERY}th row of the dev set of stsb-multi-mt (machine-translated; de, es,
fr, it, nl and tr, without Arabic). Agreement and translation retrieval are on held-out pairs of all languages.

{table(results)}

In parentheses: worst and best seed.

## Which claims hold here

The comparison is by STS between English and another language, seed by seed. With several seeds, a difference counts if
it has the same sign for each seed and exceeds {MIN_DIFFERENCE:g} on average. With one seed, it counts if it exceeds the
range of the first row over its seeds.

{chr(10).join(verdicts(results))}

## Accuracy at each depth

STS English-xx / xx-xx after each number of recurrences. The first student was trained at full depth only, the second
with `depth_weights` in stages 3 and 4 (not from the paper).

{depth_table}

## Dev accuracy against steps

![Dev accuracy of the variants against training steps of the student](ablation.png)

Figure 3 of the paper shows this against epochs. The single stage trains with the objective of stage 4 from its first
step.
"""


def main() -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    runs = parser.parse_args().runs
    results = read(runs)
    write_text(HERE / "ablation.md", page(results, depths(runs)))
    draw(results, HERE / "ablation.png")
    say(f"{HERE / 'ablation.md'}: {len(results)} variants")


if __name__ == "__main__":
    main()
