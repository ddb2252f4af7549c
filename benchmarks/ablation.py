"""Test the claims of the multi-stage distillation paper at a small scale: train variants and score them on dev sets.

    python benchmarks/ablation.py DATA [--runs runs/ablation] [--only NAME ...] [--seeds N ...]

DATA holds parallel/<corpus>.en-<xx>.tsv.xz and stsb-multi-mt/stsb-<xx>-dev.csv.xz. All variants start from one
assistant. Writes a run folder for each variant and seed (hours on two cores), and depths.json. Finished variants are
kept, and an interrupted one resumes. `benchmarks/ablation_report.py` makes a page and a figure of the runs.
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from xcompress.corpus.graded import averages, read_folder, score
from xcompress.distillation.pipeline import distill
from xcompress.files import write_json
from xcompress.modeling.student import Student, encode, shallower
from xcompress.recipe import load_recipe

DEPTHS = "depths.json"
BASE = Path(__file__).parent.parent / "recipes" / "four_stages.yaml"
CORPORA = ("anki", "tatoeba-mtc", "tatoeba-opus", "wmt-news", "tico19", "desktop")
LANGUAGES = ("ar", "de", "es", "fr", "it", "nl", "tr")
MAX_PAIRS = 20_000
SEEDS = (11, 12, 13)
STEPS = {"assistant": 400, "embedding": 60, "imitation": 150, "contrast": 200}
SINGLE_STAGE_STEPS = STEPS["imitation"] + STEPS["contrast"]
RATES = {"learning_rate": 4e-4, "embedding_learning_rate": 2e-3}
ASSISTANT_RATES = {"learning_rate": 1e-4, "embedding_learning_rate": 4e-4}
NOT_SHARED = ("run.json", "student", "assistant", "work", ".*")
DEPTH_WEIGHTS = [0.25, 0.25, 0.5, 1.0]
DEV_STEPS = 50
DRAWN = ("multi-stage", "single-stage", "none", "bool", "ce")
"""Variants in the figure. They are scored during training."""
DEV_EVERY = 6
WIDTH = 384
"""Of the vectors. As a weight it makes a mean over the width a sum."""

Stages = dict[str, dict[str, Any]]


def stages(final: Mapping[str, float], seed: int, **changes: object) -> Stages:
    """Return the four stages of the paper; `final` holds the objectives of the last one."""
    return {
        "assistant": {
            "train": "assistant",
            "objectives": {"teacher": WIDTH, "contrast": 10},
            "steps": STEPS["assistant"],
            "batch_size": 32,
            "seed": 1,
            **ASSISTANT_RATES,
        },
        "embedding": {
            "train": "embeddings",
            "objectives": {"embedding": WIDTH},
            "steps": STEPS["embedding"],
            "batch_size": 64,
            "seed": 1,
            **RATES,
        },
        "imitation": _student_stage({"assistant": WIDTH}, STEPS["imitation"], seed, **changes),
        "contrast": _student_stage(final, STEPS["contrast"], seed, **changes),
    }


def _student_stage(objectives: Mapping[str, float], steps: int, seed: int, **changes: object) -> dict[str, Any]:
    return {
        "train": "student",
        "objectives": dict(objectives),
        "steps": steps,
        "batch_size": 32,
        "seed": seed,
        **RATES,
        **changes,
    }


FULL = {"teacher": WIDTH, "contrast": 1}
FINAL: Mapping[str, Mapping[str, float]] = {
    "contrast": FULL,
    "none": {"teacher": WIDTH},
    "bool": {"teacher": WIDTH, "contrast_bool": 1},
    "ce": {"teacher": WIDTH, "contrast_ce": 1 / 32},
}


@dataclass(frozen=True)
class Variant:
    """One run: its name, seed and stages, and further overrides of the base recipe."""

    name: str
    seed: int
    stages: Stages
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Name of the run folder."""
        return f"{self.name}-s{self.seed}"


def variants() -> Iterator[Variant]:
    """Yield the runs, seed by seed, those for the first three claims first."""
    for seed in SEEDS:
        yield Variant("multi-stage", seed, stages(FULL, seed))
        yield Variant("none", seed, stages(FINAL["none"], seed))
        yield Variant("pre-distilled", seed, _keep(stages(FULL, seed), "embedding") | _single(seed).stages)
        if seed == SEEDS[0]:
            yield from _variants_of_one_seed(seed)
    yield from (Variant(name, seed, stages(FINAL[name], seed)) for seed in SEEDS[1:] for name in ("bool", "ce"))
    yield Variant("once-none", SEEDS[0], stages(FINAL["none"], SEEDS[0]), {"student.recurrences": 1})


def _variants_of_one_seed(seed: int) -> Iterator[Variant]:
    """Yield the variants that are measured with one seed only."""
    yield Variant("once", seed, stages(FULL, seed), {"student.recurrences": 1})
    yield from (Variant(name, seed, stages(FINAL[name], seed)) for name in ("bool", "ce"))
    yield from (Variant(f"ru{layers}", seed, stages(FULL, seed), {"student.unit_layers": layers}) for layers in (6, 12))
    yield from (
        Variant(f"b{width or 'none'}", seed, _without_bottleneck(seed, width), {"student.bottleneck": width})
        for width in (256, None)
    )
    yield Variant("elastic", seed, stages(FULL, seed, depth_weights=DEPTH_WEIGHTS))
    yield _single(seed)


def _single(seed: int) -> Variant:
    stage = {"contrast": _student_stage(FULL, SINGLE_STAGE_STEPS, seed)}
    return Variant("single-stage", seed, stage, {"student.embedding_init": "random"})


def _without_bottleneck(seed: int, width: int | None) -> Stages:
    all_stages = stages(FULL, seed)
    return all_stages if width else _keep(all_stages, "assistant", "imitation", "contrast")


def _keep(all_stages: Stages, *names: str) -> Stages:
    return {name: all_stages[name] for name in names}


def overrides(variant: Variant, data: Path) -> list[str]:
    """Return the overrides of the base recipe as KEY=VALUE, as the command line takes them."""
    tsv = [
        {"source": str(path), "language": language}
        for language in LANGUAGES
        for path in (data / "parallel" / f"{corpus}.en-{language}.tsv.xz" for corpus in CORPORA)
        if path.exists()
    ]
    changes: dict[str, object] = {
        "name": variant.folder,
        "corpus.catalogues": [],
        "corpus.tsv": tsv,
        "corpus.max_pairs": MAX_PAIRS,
        "dev": {
            "sts": str(data / "stsb-multi-mt"),
            "every": DEV_EVERY,
            "steps": DEV_STEPS if variant.seed == SEEDS[0] and variant.name in DRAWN else None,
        },
        "stages": variant.stages,
        **variant.overrides,
    }
    return [
        f"{key}={yaml.safe_dump(value, default_flow_style=True, sort_keys=False)}" for key, value in changes.items()
    ]


def run(variant: Variant, data: Path, runs: Path) -> None:
    """Train a variant, reusing the finished steps and teacher vectors of the base variant with the same seed."""
    folder = runs / variant.folder
    for seed in (variant.seed, SEEDS[0]):
        base = runs / f"multi-stage-s{seed}"
        if base.exists() and not folder.exists():
            shutil.copytree(base, folder, copy_function=os.link, ignore=shutil.ignore_patterns(*NOT_SHARED))
    distill(load_recipe(BASE, overrides(variant, data)), folder)


def score_depths(data: Path, runs: Path) -> None:
    """Score the elastic-depth student and the base student after each recurrence; write depths.json."""
    graded = read_folder(data / "stsb-multi-mt").within(["en", *LANGUAGES]).every(DEV_EVERY)
    scores: dict[str, list[dict[str, float]]] = {}
    for name in ("multi-stage", "elastic"):
        student, tokenizer = Student.load(runs / f"{name}-s{SEEDS[0]}" / "student")
        depths = [shallower(student, depth) for depth in range(1, student.config.recurrences + 1)]
        scores[name] = [averages(score(partial(encode, shallow, tokenizer), graded)) for shallow in depths]
    write_json(runs / DEPTHS, scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    for variant in variants():
        if variant.seed in options.seeds and (not options.only or variant.name in options.only):
            run(variant, options.data, options.runs)
    if all((options.runs / f"{name}-s{SEEDS[0]}" / "manifest.json").exists() for name in ("multi-stage", "elastic")):
        score_depths(options.data, options.runs)


if __name__ == "__main__":
    main()
