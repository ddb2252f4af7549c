"""Test the claims of the multi-stage distillation paper at a small scale: train variants and score them on dev sets.

    python benchmarks/ablation.py DATA [--runs runs/ablation] [--only NAME ...] [--seeds N ...]

DATA holds parallel/<corpus>.en-<xx>.tsv.xz and stsb-multi-mt/stsb-<xx>-dev.csv.xz. All variants with a stage 1 share
it. Writes a run folder for each variant and seed (hours on two cores), starts.json and depths.json. Finished variants
are kept, and an interrupted one resumes. `benchmarks/ablation_report.py` makes a page and a figure of them.
"""

import argparse
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from xcompress.console import run_script
from xcompress.corpus.graded import GradedSet, averages, read_folder, score
from xcompress.distillation.collapse import CollapseError
from xcompress.distillation.pipeline import distill
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student, shallower
from xcompress.recipe import load_recipe

SCORES = "scores.json"
STARTS = "starts.json"
DEPTHS = "depths.json"
BASE = Path(__file__).parent.parent / "recipes" / "four_stages.yaml"
CORPORA = ("anki", "tatoeba-mtc", "tatoeba-opus", "wmt-news", "tico19", "desktop")
LANGUAGES = ("ar", "de", "es", "fr", "it", "nl", "tr")
MAX_PAIRS = 20_000
SEEDS = (11, 12, 13)
STEPS = {"assistant": 300, "embedding": 60, "imitation": 80, "contrast": 120}
STUDENT_STEPS = STEPS["imitation"] + STEPS["contrast"]
ALL_STEPS = STEPS["assistant"] + STUDENT_STEPS
"""Of a pass through twelve layers, as the assistant has and as a unit of 3 is applied; stage 2 is no such pass."""
BATCH_SIZE = 16
RATES = {"learning_rate": 4e-4, "embedding_learning_rate": 2e-3}
ASSISTANT_RATES = {"learning_rate": 1e-4, "embedding_learning_rate": 4e-4}
NOT_COPIED = ("student", "assistant", "work", SCORES, ".*")
"""Not copied from a run: its results, checkpoints, scores and lock."""
DEPTH_WEIGHTS = [0.25, 0.25, 0.5, 1.0]
DEV_STEPS = 40
DRAWN = ("multi-stage", "single-random", "none", "bool", "ce")
"""Variants in the figure. They are scored during training."""
DEV_EVERY = 4

Stages = dict[str, dict[str, Any]]
Objectives = Mapping[str, float]

WIDTH = 384
"""Of the vectors. As a weight it makes a mean over the width a squared distance, up to 4 for vectors of unit length."""
FULL: Objectives = {"teacher": WIDTH, "contrast": 10}
FINAL: Mapping[str, Objectives] = {
    "multi-stage": FULL,
    "none": {"teacher": WIDTH},
    "equal": {"teacher": 1, "contrast": 1},
    "bool": {"teacher": WIDTH, "contrast_bool": 10},
    "ce": {"teacher": WIDTH, "contrast_ce": WIDTH * 0.01 / BATCH_SIZE},
}
"""Objectives of stage 4. `equal` has the printed weights; `ce` those of the authors' code, 1 and 0.01 for means."""


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


def variants(seed: int) -> Iterator[Variant]:
    """Yield the runs with one seed, the base of the others first."""
    # Tables 3, 4 and 5: what stage 4 learns, and recurrence.
    for name, final in FINAL.items():
        yield Variant(name, seed, stages(final, seed))
    once = {"student.recurrences": 1}
    yield Variant("once", seed, stages(FULL, seed), once)
    yield Variant("once-none", seed, stages(FINAL["none"], seed), once)
    yield Variant("once-long", seed, stages(FULL, seed, longer=4), once)

    # Table 6: one stage. Its bottleneck starts from random values, from the SVD, or from stage 2.
    random = {"student.embedding_init": "random"}
    yield Variant("single-random", seed, one_stage(FULL, STUDENT_STEPS, seed), random)
    yield Variant("single-svd", seed, one_stage(FULL, STUDENT_STEPS, seed))
    yield Variant("single-long", seed, one_stage(FULL, ALL_STEPS, seed))
    pre_distilled = {name: stages(FULL, seed)[name] for name in ("assistant", "embedding")}
    yield Variant("pre-distilled", seed, pre_distilled | one_stage(FULL, STUDENT_STEPS, seed))

    # Tables 7 and 8: sizes of the bottleneck and of the unit.
    yield Variant("b256", seed, stages(FULL, seed), {"student.bottleneck": 256})
    without = {name: stage for name, stage in stages(FULL, seed).items() if name != "embedding"}
    yield Variant("bnone", seed, without, {"student.bottleneck": None})
    for layers in (6, 12):
        yield Variant(f"ru{layers}", seed, stages(FULL, seed), {"student.unit_layers": layers})

    # Tables 1 and 2: the whole encoder as the student, as Reimers and Gurevych (2020) train it (X-KD); the assistant
    # is the same after fewer steps.
    whole = {"student.unit_layers": 12, "student.bottleneck": None}
    for name, steps in {"assistant": STEPS["assistant"], "xkd": ALL_STEPS}.items():
        yield Variant(name, seed, one_stage(FINAL["none"], steps, seed, **ASSISTANT_RATES), whole)

    # Not from the paper.
    yield Variant("elastic", seed, stages(FULL, seed, depth_weights=DEPTH_WEIGHTS))


def stages(final: Objectives, seed: int, longer: int = 1, **changes: object) -> Stages:
    """Return the four stages of the paper.

    :param final: objectives of the last stage.
    :param longer: multiplies the steps of stages 3 and 4.
    :param changes: further keys of stages 3 and 4.
    """
    return {
        "assistant": _stage("assistant", {"teacher": 1}, STEPS["assistant"], 1, **ASSISTANT_RATES),
        "embedding": _stage("embeddings", {"embedding": 1}, STEPS["embedding"], 1, batch_size=2 * BATCH_SIZE),
        "imitation": _stage("student", {"assistant": 1}, longer * STEPS["imitation"], seed, **changes),
        "contrast": _stage("student", final, longer * STEPS["contrast"], seed, **changes),
    }


def one_stage(objectives: Objectives, steps: int, seed: int, **changes: object) -> Stages:
    """Return a single stage that trains the student."""
    return {"contrast": _stage("student", objectives, steps, seed, **changes)}


def _stage(train: str, objectives: Objectives, steps: int, seed: int, **changes: object) -> dict[str, Any]:
    fixed = {"train": train, "objectives": dict(objectives), "steps": steps, "seed": seed}
    return {**fixed, "batch_size": BATCH_SIZE, **RATES, **changes}


def overrides(variant: Variant, data: Path) -> list[str]:
    """Return the overrides of the base recipe as KEY=VALUE, as the command line takes them."""
    drawn = variant.seed == SEEDS[0] and variant.name in DRAWN
    changes: dict[str, object] = {
        "name": variant.folder,
        "corpus.catalogues": [],
        "corpus.tsv": tsv_files(data, CORPORA, LANGUAGES),
        "corpus.max_pairs": MAX_PAIRS,
        "dev": {"sts": str(data / "stsb-multi-mt"), "every": DEV_EVERY, "steps": DEV_STEPS} if drawn else {},
        "stages": variant.stages,
        **variant.overrides,
    }
    return assignments(changes)


def tsv_files(data: Path, corpora: Sequence[str], languages: Sequence[str]) -> list[dict[str, str]]:
    """Return the files of parallel text that are there, as a recipe names them."""
    return [
        {"source": str(path), "language": language}
        for language in languages
        for path in (data / "parallel" / f"{corpus}.en-{language}.tsv.xz" for corpus in corpora)
        if path.exists()
    ]


def assignments(changes: Mapping[str, object]) -> list[str]:
    """Return changes of a recipe as KEY=VALUE, as the command line takes them."""
    return [
        f"{key}={yaml.safe_dump(value, default_flow_style=True, sort_keys=False)}" for key, value in changes.items()
    ]


def copy_steps(run: Path, folder: Path) -> None:
    """Start a run with the finished steps and the vectors of another one, whose files are linked."""
    shutil.copytree(run, folder, copy_function=os.link, ignore=shutil.ignore_patterns(*NOT_COPIED))


def run(variant: Variant, data: Path, runs: Path) -> None:
    """Train a variant, reusing the finished steps and teacher vectors of the base variant, and score it.

    scores.json holds STS by language pair after the last stage, for the base variant after each one that trains the
    student, and the dev scores on held-out pairs; or the message of a training that collapsed.
    """
    folder = runs / variant.folder
    if (folder / SCORES).exists():
        return
    for seed in (variant.seed, SEEDS[0]):
        base = runs / f"multi-stage-s{seed}"
        if base.exists() and not folder.exists():
            copy_steps(base, folder)
    try:
        distill(load_recipe(BASE, overrides(variant, data)), folder)
    except CollapseError as error:
        write_json(folder / SCORES, {"collapsed": str(error)})
        return
    numbered = enumerate(variant.stages.items(), 1)
    after = {name: folder / f"{number}-{name}" for number, (name, stage) in numbered if stage["train"] != "assistant"}
    scored = list(after) if variant.name == "multi-stage" else list(after)[-1:]
    by_stage = {name: score(student_encoder(name, *Student.load(after[name])), dev_sts(data)) for name in scored}
    write_json(folder / SCORES, {"sts": by_stage, "held_out": read_json(folder / "manifest.json")["dev"]})


def check_data(data: Path, folders: Iterable[str]) -> None:
    """Look for folders of DATA before anything is trained.

    :raises InputError: when one is missing.
    """
    if missing := [data / name for name in folders if not (data / name).is_dir()]:
        raise InputError(f"{missing[0]}: no such folder; the usage (--help) says what DATA holds")


def dev_sts(data: Path) -> GradedSet:
    """Return the STS rows that every model is scored on."""
    return read_folder(data / "stsb-multi-mt").within(["en", *LANGUAGES]).every(DEV_EVERY)


def score_starts(data: Path, runs: Path) -> None:
    """Score the teacher, and the encoder that assistant and students start from; write starts.json."""
    recipe = load_recipe(BASE)
    assert recipe.teacher
    starts = {
        "teacher": open_encoder(recipe.teacher, "teacher"),
        "start": student_encoder("start", *Student.load(runs / f"multi-stage-s{SEEDS[0]}" / "start")),
    }
    write_json(runs / STARTS, {name: score(vectors, dev_sts(data)) for name, vectors in starts.items()})


def score_depths(data: Path, runs: Path) -> None:
    """Score the elastic-depth student and the base student after each recurrence; write depths.json."""
    scores: dict[str, list[list[dict[str, float]]]] = {"multi-stage": [], "elastic": []}
    graded = dev_sts(data)
    for name, seed in product(scores, SEEDS):
        student, tokenizer = Student.load(runs / f"{name}-s{seed}" / "student")
        depths = (shallower(student, depth) for depth in range(1, student.config.recurrences + 1))
        vectors = (student_encoder(name, shallow, tokenizer) for shallow in depths)
        scores[name].append([averages(score(encode, graded)) for encode in vectors])
    write_json(runs / DEPTHS, scores)


def main() -> None:
    """Run the chosen variants, then score what needs no training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/ablation"))
    names = [variant.name for variant in variants(SEEDS[0])]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    options = parser.parse_args()
    check_data(options.data, ("parallel", "stsb-multi-mt"))
    for with_each_seed in zip(*map(variants, options.seeds), strict=True):
        for variant in with_each_seed:
            if not options.only or variant.name in options.only:
                run(variant, options.data, options.runs)
    finished = {name for name in ("multi-stage", "elastic") if _is_finished(name, options.runs)}
    if "multi-stage" in finished:
        score_starts(options.data, options.runs)
    if len(finished) == 2:
        score_depths(options.data, options.runs)


def _is_finished(name: str, runs: Path) -> bool:
    return all((runs / f"{name}-s{seed}" / SCORES).exists() for seed in SEEDS)


if __name__ == "__main__":
    run_script(main)
