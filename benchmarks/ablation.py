"""Measure the paper's claims at a small scale: train every variant from one assistant and compare dev scores.

    python benchmarks/ablation.py DATA [--runs runs/ablation] [--only NAME ...] [--seeds N ...]

DATA holds parallel/<corpus>.en-<xx>.tsv.xz and stsb-multi-mt/stsb-<xx>-dev.csv.xz. Finished variants are kept, an
interrupted one goes on where it stopped. `benchmarks/ablation_report.py` turns the runs into a table and a figure.
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
BASE = Path(__file__).parent.parent / "recipes" / "minilm_ru3.yaml"
CORPORA = ("anki", "tatoeba-mtc", "tatoeba-opus", "wmt-news", "tico19", "desktop")
LANGUAGES = ("ar", "de", "es", "fr", "it", "nl", "tr")
MAX_PAIRS = 20_000
SEEDS = (11, 12, 13)
STEPS = {"assistant": 400, "embedding": 60, "imitation": 150, "contrast": 200}
SINGLE_STAGE_STEPS = STEPS["imitation"] + STEPS["contrast"]
RATES = {"learning_rate": 4e-4, "embedding_learning_rate": 2e-3}
ASSISTANT_RATES = {"learning_rate": 1e-4, "embedding_learning_rate": 4e-4}
NOT_BORROWED = ("run.json", "student", "assistant", "work", ".*")
DEPTH_WEIGHTS = [0.25, 0.25, 0.5, 1.0]
DEV_STEPS = 50
DRAWN = ("multi-stage", "single-stage", "none", "bool", "ce")
"""Variants in the figure, which are scored while they train."""
DEV_EVERY = 6

Stages = dict[str, dict[str, Any]]


def stages(final: Mapping[str, float], seed: int, **changes: object) -> Stages:
    """Return the four stages of the paper; `final` are the objectives of the last one."""
    return {
        "assistant": {
            "train": "assistant",
            "objectives": {"teacher": 1, "contrast": 10},
            "steps": STEPS["assistant"],
            "batch_size": 32,
            "seed": 1,
            **ASSISTANT_RATES,
        },
        "embedding": {
            "train": "embeddings",
            "objectives": {"embedding": 1},
            "steps": STEPS["embedding"],
            "batch_size": 64,
            "seed": 1,
            **RATES,
        },
        "imitation": _student_stage({"assistant": 1}, STEPS["imitation"], seed, **changes),
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


FULL = {"teacher": 1, "contrast": 1}
FINAL: Mapping[str, Mapping[str, float]] = {
    "contrast": FULL,
    "none": {"teacher": 1},
    "bool": {"teacher": 1, "contrast_bool": 1},
    "ce": {"teacher": 1, "contrast_ce": 1 / 32},
}


@dataclass(frozen=True)
class Variant:
    """One run: a name, a seed, its stages, and what else differs from the base recipe."""

    name: str
    seed: int
    stages: Stages
    overrides: Mapping[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """Name of the run folder."""
        return f"{self.name}-s{self.seed}"


def variants() -> Iterator[Variant]:
    """Yield the runs, the first three claims first, one seed after the other."""
    for seed in SEEDS:
        yield Variant("multi-stage", seed, stages(FULL, seed))
        yield Variant("none", seed, stages(FINAL["none"], seed))
        yield Variant("pre-distilled", seed, _keep(stages(FULL, seed), "embedding") | _single(seed).stages)
        if seed == SEEDS[0]:
            yield from _measured_once(seed)
    yield from (Variant(name, seed, stages(FINAL[name], seed)) for seed in SEEDS[1:] for name in ("bool", "ce"))
    yield Variant("once-none", SEEDS[0], stages(FINAL["none"], SEEDS[0]), {"student.recurrences": 1})


def _measured_once(seed: int) -> Iterator[Variant]:
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


def _keep(described: Stages, *names: str) -> Stages:
    return {name: described[name] for name in names}


def overrides(variant: Variant, data: Path) -> list[str]:
    """Return the changes to the base recipe, as the command line takes them."""
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
    """Train a variant, starting from the finished steps and teacher vectors of the base with the same seed."""
    folder = runs / variant.folder
    for seed in (variant.seed, SEEDS[0]):
        base = runs / f"multi-stage-s{seed}"
        if base.exists() and not folder.exists():
            shutil.copytree(base, folder, copy_function=os.link, ignore=shutil.ignore_patterns(*NOT_BORROWED))
    distill(load_recipe(BASE, overrides(variant, data)), folder)


def score_depths(data: Path, runs: Path) -> None:
    """Score the student of elastic depth and the one of the base after each recurrence; write depths.json."""
    graded = read_folder(data / "stsb-multi-mt").within(["en", *LANGUAGES]).every(DEV_EVERY)
    scores: dict[str, list[dict[str, float]]] = {}
    for name in ("multi-stage", "elastic"):
        student, tokenizer = Student.load(runs / f"{name}-s{SEEDS[0]}" / "student")
        depths = [shallower(student, depth) for depth in range(1, student.config.recurrences + 1)]
        scores[name] = [averages(score(partial(encode, one, tokenizer), graded)) for one in depths]
    write_json(runs / DEPTHS, scores)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the variants that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--only", nargs="*", help="names of variants")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS)
    given = parser.parse_args(arguments)
    for variant in variants():
        if variant.seed in given.seeds and (not given.only or variant.name in given.only):
            run(variant, given.data, given.runs)
    if all((given.runs / f"{name}-s{SEEDS[0]}" / "manifest.json").exists() for name in ("multi-stage", "elastic")):
        score_depths(given.data, given.runs)


if __name__ == "__main__":
    main()
