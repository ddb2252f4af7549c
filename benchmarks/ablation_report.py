"""Write benchmarks/ablation.md and benchmarks/ablation.png from the runs of benchmarks/ablation.py.

    python benchmarks/ablation_report.py [--runs runs/ablation]

Every figure is a mean over seeds with its 95 % confidence interval (Student's t). Variants are compared seed by seed: a
claim holds if the interval of the mean difference is above 0. Variants that miss a seed are left out, and named; seeds
whose training collapsed are counted in the label.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ablation import (
    ALL_STEPS,
    BATCH_SIZE,
    DEPTHS,
    DEV_EVERY,
    DRAWN,
    LANGUAGES,
    MAX_PAIRS,
    SCORES,
    SEEDS,
    STARTS,
    STEPS,
    STUDENT_STEPS,
    WIDTH,
)
from matplotlib.figure import Figure
from scipy.stats import ttest_1samp

from xcompress.bench.report.pictures.style import COLOURS
from xcompress.console import markdown_table, run_script, say
from xcompress.corpus.graded import averages
from xcompress.files import read_json, write_text

HERE = Path(__file__).parent
BASE = "multi-stage"
CROSS_LINGUAL = "en-xx"
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)))
STS = {CROSS_LINGUAL: "STS, English-xx", "other monolingual": "STS, xx-xx", "en-en": "STS, English"}
HELD_OUT = {"spearman": "agreement with the teacher", "retrieval": "translations found"}
LABELS = {
    "multi-stage": "four stages, \\|RU\\| 3, B 128",
    "none": "stage 4 without MCL",
    "equal": "stage 4 with weights 1 and 1",
    "bool": "stage 4 with `bool`",
    "ce": "stage 4 with `ce`",
    "once": "without recurrence (3 layers, once)",
    "once-none": "without recurrence and MCL",
    "once-long": "without recurrence, four times the steps",
    "single-random": "single stage, random bottleneck",
    "single-svd": "single stage, bottleneck from the SVD",
    "single-long": "the same, with the steps of stages 1, 3 and 4",
    "pre-distilled": "single stage, after stages 1 and 2",
    "b256": "four stages, \\|RU\\| 3, B 256",
    "bnone": "three stages, \\|RU\\| 3, no bottleneck",
    "ru6": "four stages, \\|RU\\| 6, B 128",
    "ru12": "four stages, \\|RU\\| 12, B 128",
    "assistant": "whole encoder, steps of stage 1 (the assistant)",
    "xkd": "whole encoder, steps of stages 1, 3 and 4 (X-KD)",
    "elastic": "elastic depth, weights 0.25, 0.25, 0.5, 1",
}
STARTS_LABELS = {
    "teacher": "all-MiniLM-L6-v2, the teacher",
    "start": "multilingual-e5-small with a head fitted to the teacher, before training",
}
SIZES = ("multi-stage", "b256", "bnone", "ru6", "ru12", "assistant", "xkd")
"""Variants of tables 1, 2, 7 and 8, which the paper prints by language."""
CLAIMS = (
    ("MCL helps (tables 3 to 5)", BASE, "none"),
    ("MCL helps with weights 1 and 1 (tables 3 to 5)", "equal", "none"),
    ("Soft labels beat hard ones, `bool` (table 5)", BASE, "bool"),
    ("They beat cross-entropy, `ce` (table 5)", BASE, "ce"),
    ("Recurrence helps (tables 3 and 4)", BASE, "once"),
    ("Recurrence helps without MCL (tables 3 and 4)", "none", "once-none"),
    ("Recurrence helps at equal compute (not in the paper)", BASE, "once-long"),
    ("Four stages beat a single one from a random bottleneck (table 6)", BASE, "single-random"),
    ("Four stages beat a single one after pre-distillation (table 6)", BASE, "pre-distilled"),
    ("Four stages beat a single one from the SVD (not in the paper)", BASE, "single-svd"),
    ("Four stages beat a single one from the SVD at equal compute (not in the paper)", BASE, "single-long"),
    ("A wider bottleneck helps: 256 over 128 (tables 7 and 8)", "b256", BASE),
    ("No bottleneck is best (tables 7 and 8)", "bnone", "b256"),
    ("More distinct layers help: 6 over 3 (tables 7 and 8)", "ru6", BASE),
    ("More distinct layers help: 12 over 6 (tables 7 and 8)", "ru12", "ru6"),
    ("A unit of 3 without a bottleneck beats the whole encoder (tables 1 and 2)", "bnone", "xkd"),
)


@dataclass(frozen=True)
class VariantResult:
    """A variant's scores by seed, without seeds whose training collapsed, and what it costs."""

    sts: Mapping[str, Mapping[int, Mapping[str, float]]]
    """After each stage that was scored: averages and language pairs, by seed."""
    held_out: Mapping[int, Mapping[str, float]]
    """Agreement with the teacher and translations found, by seed."""
    parameters: int
    compute: float
    """Layers applied to all sentences, relative to four stages of the base variant."""
    history: Sequence[tuple[int, float]]
    """(steps, score) while the first seed trained; empty if it was not scored."""

    def final(self, name: str) -> dict[int, float]:
        """Return an average or a language pair after the last stage, by seed."""
        return {seed: scores[name] for seed, scores in list(self.sts.values())[-1].items()}


def read(runs: Path) -> dict[str, VariantResult]:
    """Read every variant that has finished with all seeds, and did not collapse with each of them."""
    results = {}
    for name in LABELS:
        folders = {seed: runs / f"{name}-s{seed}" for seed in SEEDS}
        if not all((folder / SCORES).is_file() for folder in folders.values()):
            say(f"{name}: not finished with every seed, left out")
            continue
        every = {seed: read_json(folder / SCORES) for seed, folder in folders.items()}
        scores = {seed: found for seed, found in every.items() if "collapsed" not in found}
        if not scores:
            say(f"{name}: collapsed with every seed, left out")
            continue
        by_stage = {
            stage: {seed: found["sts"][stage] | averages(found["sts"][stage]) for seed, found in scores.items()}
            for stage in next(iter(scores.values()))["sts"]
        }
        manifests = {seed: read_json(folders[seed] / "manifest.json") for seed in scores}
        manifest = next(iter(manifests.values()))
        parameters = sum(list(manifest["steps"].values())[-1]["facts"]["sizes"].values())
        held_out = {seed: found["held_out"] for seed, found in scores.items()}
        history = max((_history(manifest) for manifest in manifests.values()), key=len)
        results[name] = VariantResult(by_stage, held_out, parameters, _compute(manifest), history)
    return results


def _compute(manifest: Mapping[str, Any]) -> float:
    """Return the layers that training applies, relative to twelve of them in every step of stages 1, 3 and 4."""
    shape = manifest["recipe"]["student"]
    layers = shape["unit_layers"] * (shape["recurrences"] or 12 // shape["unit_layers"])
    applied = {"assistant": 12, "student": layers, "embeddings": 0}
    stages = manifest["recipe"]["stages"].values()
    passes: int = sum(stage["steps"] * applied[stage["train"]] for stage in stages)
    return passes / (12 * ALL_STEPS)


def _history(manifest: Mapping[str, Any]) -> list[tuple[int, float]]:
    """Return (steps so far, score) of the stages that train the whole student."""
    points, before = [], 0
    for name, stage in manifest["recipe"]["stages"].items():
        if stage["train"] == "student":
            facts = next(step["facts"] for key, step in manifest["steps"].items() if key.endswith(f"-{name}"))
            course = facts.get("dev_course", [])
            points += [(before + point["step"], point["dev"][f"sts {CROSS_LINGUAL}"]) for point in course]
            before += stage["steps"]
    return points


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % confidence interval."""
    if np.ptp(values) == 0:
        return float(values[0]), 0.0
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    return float(high + low) / 2, float(high - low) / 2


def cell(values: Sequence[float]) -> str:
    """Return the mean and its interval as text."""
    mean, half = interval(values)
    return f"{mean:.1f} ± {half:.1f}" if half else f"{mean:.1f}"


def table(results: Mapping[str, VariantResult], starts: Mapping[str, Mapping[str, float]]) -> str:
    """Return the table of all variants, and of the encoders that they start from."""
    rows = []
    for name, scores in starts.items():
        rows.append([STARTS_LABELS[name], "", "", *(f"{averages(scores)[average]:.1f}" for average in STS), "", ""])
    for name, result in results.items():
        collapsed = len(SEEDS) - len(result.held_out)
        label = LABELS[name] + (f"; {collapsed} of {len(SEEDS)} seeds collapsed" if collapsed else "")
        row = [label, f"{result.parameters / 1e6:.2f} M", f"{result.compute:.2f}"]
        row += [cell(list(result.final(average).values())) for average in STS]
        row += [cell([scores[figure] for scores in result.held_out.values()]) for figure in HELD_OUT]
        rows.append(row)
    return markdown_table(("variant", "parameters", "compute", *STS.values(), *HELD_OUT.values()), rows)


def by_language(results: Mapping[str, VariantResult], starts: Mapping[str, Mapping[str, float]]) -> str:
    """Return the counterpart of tables 1, 2, 7 and 8: means over seeds for each language pair."""
    pairs = [pair for pair in starts["start"] if pair != "en-en"]
    rows = [[STARTS_LABELS["start"], *(f"{starts['start'][pair]:.1f}" for pair in pairs)]]
    for name in SIZES:
        if name in results:
            rows.append([LABELS[name], *(f"{np.mean(list(results[name].final(pair).values())):.1f}" for pair in pairs)])
    return markdown_table(("student", *pairs), rows)


def by_stage(result: VariantResult) -> str:
    """Return the counterpart of table 6: scores of the base variant after each stage."""
    names = list(STEPS)
    rows = [
        [f"stages 1 to {names.index(stage) + 1}", *(cell([row[average] for row in scores.values()]) for average in STS)]
        for stage, scores in result.sts.items()
    ]
    return markdown_table(("after", *STS.values()), rows)


def verdicts(results: Mapping[str, VariantResult]) -> Iterator[str]:
    """Yield a verdict on each claim, by STS between English and the other languages."""
    for claim, better, worse in CLAIMS:
        if better in results and worse in results:
            left, right = results[better].final(CROSS_LINGUAL), results[worse].final(CROSS_LINGUAL)
            yield f"- **{claim}:** {verdict(left, right)}"
        else:
            yield f"- **{claim}:** not measured"


def verdict(better: Mapping[int, float], worse: Mapping[int, float]) -> str:
    """Say whether figures are higher than others, by the mean difference of seeds and its interval.

    :param better: by seed, the figures that a claim says are higher.
    :param worse: by seed, those that it says are lower.
    """
    differences = [figure - worse[seed] for seed, figure in better.items() if seed in worse]
    if not differences:
        return "not measured"
    if len(differences) == 1:
        return f"one seed, no verdict: {differences[0]:+.1f}"
    mean, half = interval(differences)
    holds = "holds here" if mean > half else "does not hold here" if mean < -half else "undecided here"
    return f"{holds}, {mean:+.1f} ± {half:.1f}"


def depths(runs: Path) -> str:
    """Return the table of scores after each recurrence."""
    if not (runs / DEPTHS).is_file():
        return "Not measured."
    scores: dict[str, list[list[dict[str, float]]]] = read_json(runs / DEPTHS)
    last = len(scores["elastic"][0])
    rows = []
    for name, seeds in scores.items():
        cells = []
        for depth in range(last):
            means = (
                np.mean([seed[depth][average] for seed in seeds]) for average in (CROSS_LINGUAL, "other monolingual")
            )
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        rows.append([LABELS[name], *cells])
    return markdown_table(("student", *(f"{depth} of {last}" for depth in range(1, last + 1))), rows)


def draw(results: Mapping[str, VariantResult], file: Path) -> None:
    """Draw dev accuracy against training steps of the student; figure 3 of the paper has epochs instead."""
    figure = Figure(figsize=(7.5, 4.2), dpi=160)
    axes = figure.subplots()
    for name, colour, dash in zip(DRAWN, COLOURS, DASHES, strict=False):
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
    axes.set_xlabel(f"training steps of the student ({BATCH_SIZE} pairs each)")
    axes.set_ylabel("STS English-xx on dev, Spearman x 100")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(file)


def page(results: Mapping[str, VariantResult], starts: Mapping[str, Mapping[str, float]], depth_table: str) -> str:
    """Return the page."""
    return f"""# The multi-stage paper's claims, at a small scale

    python benchmarks/ablation.py DATA && python benchmarks/ablation_report.py

The second command writes this page. Every variant is recipes/four_stages.yaml with the overrides in
benchmarks/ablation.py. The teacher is all-MiniLM-L6-v2, the assistant multilingual-e5-small. The text is English with
{len(LANGUAGES)} languages, at most {MAX_PAIRS:,} pairs each, of everyday sentences, news and software messages.

All variants with a stage 1 share it ({STEPS["assistant"]} steps), and variants of the same shape share stage 2
({STEPS["embedding"]} steps). Stage 3 has {STEPS["imitation"]} steps and stage 4 {STEPS["contrast"]}, of {BATCH_SIZE}
pairs each. A single stage has {STUDENT_STEPS} steps, as many as both, and the objective of stage 4. There `contrast`
(MCL) has the weight 10 and `teacher` {WIDTH}, as in recipes/minilm_ru3.yaml. One row has 1 and 1, as in print: with
vectors of unit length, as here, `contrast` then outweighs a mean over the width, which is at most 4 / {WIDTH}.

This takes some minutes on a CPU for each variant; the paper trained for days. An effect that is absent after
{STUDENT_STEPS} steps may appear after 100,000.

Figures are means over {len(SEEDS)} seeds, ± half the width of the 95 % confidence interval. A seed sets the order of
the text and the initial values of stages 3 and 4, or of the single stage; intervals do not cover the choice of the text
and of the test rows. *Compute* counts the layers that training applies, relative to the first variant.

Before any stage, every variant trims the vocabulary of multilingual-e5-small and fits a linear head by least squares to
the teacher's vectors. The row "before training" is this encoder. The head costs accuracy: without it,
[papers.md](papers.md#calibrated-similarity) has 76.3 and 83.0 on the same rows.

Scores are on dev sets only. STS is every {DEV_EVERY}th row of the dev set of stsb-multi-mt (machine-translated; de, es,
fr, it, nl and tr, without Arabic). Agreement and translation retrieval are on held-out pairs of all languages.

{table(results, starts)}

## Which claims hold here

The difference in STS between English and another language, seed by seed. A claim holds if the interval is above 0, and
does not hold if it is below.

{chr(10).join(verdicts(results))}

## By language

The counterpart of tables 1, 2, 7 and 8: STS between English and each language, and within each language.

{by_language(results, starts)}

## After each stage

The counterpart of table 6: the first variant after stages 2, 3 and 4.

{by_stage(results[BASE])}

## Accuracy at each depth

STS English-xx / xx-xx after each number of recurrences. The first student was trained at full depth only, the second
with `depth_weights` in stages 3 and 4 (not from the paper).

{depth_table}

## Dev accuracy against steps

![Dev accuracy of the variants against training steps of the student](ablation.png)

Figure 3 of the paper shows this against epochs. The single stage trains with the objective of stage 4 from its first
step. One seed.
"""


def main() -> None:
    """Write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    runs = parser.parse_args().runs
    results = read(runs)
    write_text(HERE / "ablation.md", page(results, read_json(runs / STARTS), depths(runs)))
    draw(results, HERE / "ablation.png")
    say(f"{HERE / 'ablation.md'}: {len(results)} variants")


if __name__ == "__main__":
    run_script(main)
