"""Test claims of the two papers on aligning languages at a small scale: train variants and score them on dev sets.

    python benchmarks/papers.py DATA [--part moving dual together] [--runs runs/papers] [--only NAME ...]

DATA holds parallel/<corpus>.en-<xx>.tsv.xz, nli/xnli.en.{dev,test}.tsv.xz, stsb-multi-mt/, tatoeba/ and
classification/sib200/. Writes a run folder with scores.json for each variant (hours on two cores). Finished variants
are kept, and an interrupted one resumes. `benchmarks/papers_report.py` writes the results into benchmarks/papers.md.
"""

import argparse
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import yaml
from numpy.typing import NDArray

from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.readers import read_labelled, read_tatoeba
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Similarity
from xcompress.bench.eval.task import EvalTask
from xcompress.corpus.graded import read_folder
from xcompress.distillation.pipeline import distill
from xcompress.files import write_json
from xcompress.modeling.student import Student, encode
from xcompress.recipe import Recipe, load_recipe

RECIPES = Path(__file__).parent.parent / "recipes"
SCORES = "scores.json"
LANGUAGES = ("ar", "de", "es", "fr", "it", "nl", "tr")
CORPORA = ("anki", "tatoeba-mtc", "tatoeba-opus", "wmt-news", "tico19", "desktop")
NOT_SHARED = ("run.json", "student", "assistant", "work", SCORES, ".*")
STS_EVERY = 3
PROBE_SEEDS = range(5)
"""Seeds of the linear probe in classification."""

ALIGN_STEPS = 200
DECAYS = {"small": 0.95, "right": 0.995, "large": 0.9995, "frozen": 1.0}
"""tau at the first step. The paper's 0.99999 over 105,000 steps is 1 - 1.05 / steps; also ten times that distance
from 1, and a tenth of it."""
DUAL_STEPS = 600
DUAL_BATCH = 48
DUAL_EMBEDDING_RATE = 5.0e-3
"""Learning rate of the token embeddings. With the recipe's 1e-3 and so few steps, the masked-word task alone learned
only word frequencies."""
DUAL_VOCABULARY = 8_000
DUAL_WORDS = 14
DUAL_PAIRS = ("de", "fr")
FULL = {"unified": 1, "alignment": 2, "similarity": 2}
TASKS: Mapping[str, tuple[Mapping[str, float], int]] = {
    "full": (FULL, 2),
    "layers1": (FULL, 1),
    "layers4": (FULL, 4),
    "masked": ({"masked_word": 1}, 2),
    "reconstruction": ({"reconstruction": 1}, 2),
    "unified": ({"unified": 1}, 2),
    "unified-align": ({"unified": 1, "alignment": 2}, 2),
}
"""Objectives and layers of each variant of the dual transformer: tables 5, 6 and 7 of its paper."""

Overrides = dict[str, object]


@dataclass(frozen=True)
class Variant:
    """One run: its name, the recipe in recipes/ and the overrides, and the variant whose finished steps it reuses."""

    name: str
    recipe: str
    overrides: Overrides
    languages: Sequence[str] = LANGUAGES
    base: str | None = None
    tests: Sequence[str] = ("sts", "tatoeba")
    before: tuple[str, str] | None = None
    """A name and a step: the model after that step is scored under that name."""


def moving(data: Path) -> Iterator[Variant]:
    """Yield the variants of table 4 of calibrated similarity: the decay of the moving teacher."""
    nli = [str(data / "nli" / f"xnli.en.{part}.tsv.xz") for part in ("dev", "test")]
    for name, decay in DECAYS.items():
        yield Variant(
            f"moving-{name}",
            "calibrated_similarity_from_labels.yaml",
            {
                **_text(data, LANGUAGES, 20_000),
                "labelled.entailment": nli,
                "labelled.graded": [str(data / "stsb-multi-mt" / "stsb-en-train.csv.xz")],
                "stages.align.steps": ALIGN_STEPS,
                "stages.align.ema_decay": decay,
            },
            base="moving-small",
            before=("moving-before", "2-grade") if name == "small" else None,
        )


def dual(data: Path) -> Iterator[Variant]:
    """Yield the variants of tables 5, 6 and 7 of the lightweight dual transformer, for each pair of languages."""
    for language in DUAL_PAIRS:
        for name, (objectives, layers) in TASKS.items():
            yield Variant(
                f"dual-{language}-{name}",
                "lightweight_dual.yaml",
                {
                    **_text(data, (language,), 150_000),
                    "corpus.max_words": DUAL_WORDS,
                    "vocabulary.size": DUAL_VOCABULARY,
                    "student.unit_layers": layers,
                    "stages.dual.objectives": dict(objectives),
                    "stages.dual.steps": DUAL_STEPS,
                    "stages.dual.batch_size": DUAL_BATCH,
                    "stages.dual.embedding_learning_rate": DUAL_EMBEDDING_RATE,
                },
                languages=(language,),
                base=f"dual-{language}-full",
                tests=("tatoeba", "sib200"),
            )


STEPS = {"assistant": 250, "embedding": 60, "imitation": 120, "contrast": 150}
LAST = {
    "mcl": {"teacher": 384, "contrast": 1},
    "teacher-alone": {"teacher": 384},
    "moving-beside": {"teacher": 384, "moving_teacher": 384},
    "moving-alone": {"moving_teacher": 384},
}
"""Objectives of stage 4. A weight of 384, the width of the vectors, makes a mean over the components a sum."""


def together(data: Path) -> Iterator[Variant]:
    """Yield combinations that no paper has: the moving teacher in place of MCL, the generative task in stage 3."""
    steps: Overrides = {f"stages.{name}.steps": count for name, count in STEPS.items()}
    common = {**_text(data, LANGUAGES, 20_000), **steps}
    for name, objectives in LAST.items():
        changes = {**common, "stages.contrast.objectives": objectives, "stages.contrast.ema_decay": 0.995}
        yield Variant(f"together-{name}", "four_stages.yaml", changes, base="together-mcl")
    for name, more in {"vocabulary": {}, "vocabulary-words": {"unified": 0.05}}.items():
        changes = {
            **common,
            "vocabulary.method": "train",
            "vocabulary.size": 30_000,
            "stages.imitation.objectives": {"assistant": 384, **more},
        }
        yield Variant(f"together-{name}", "four_stages.yaml", changes, base="together-vocabulary")


PARTS = {"moving": moving, "dual": dual, "together": together}


def _text(data: Path, languages: Sequence[str], max_pairs: int) -> Overrides:
    """Return the overrides for the languages and the corpora."""
    tsv = [
        {"source": str(path), "language": language}
        for language in languages
        for path in (data / "parallel" / f"{corpus}.en-{language}.tsv.xz" for corpus in CORPORA)
        if path.exists()
    ]
    return {"languages": list(languages), "corpus.catalogues": [], "corpus.tsv": tsv, "corpus.max_pairs": max_pairs}


def run(variant: Variant, data: Path, runs: Path) -> None:
    """Train a variant, reusing the finished steps of its base, and score it."""
    folder, base = runs / variant.name, runs / (variant.base or variant.name)
    if (folder / SCORES).exists():
        return
    if base.exists() and not folder.exists():
        shutil.copytree(base, folder, copy_function=os.link, ignore=shutil.ignore_patterns(*NOT_SHARED))
    distill(recipe_of(variant), folder)
    if variant.before:
        name, step = variant.before
        (runs / name).mkdir(exist_ok=True)
        write_json(runs / name / SCORES, scores(folder / step, variant, data))
    write_json(folder / SCORES, scores(folder / "student", variant, data))


def recipe_of(variant: Variant) -> Recipe:
    """Return the recipe of a variant."""
    changes = {"name": variant.name, **variant.overrides}
    assignments = [
        f"{key}={yaml.safe_dump(value, default_flow_style=True, sort_keys=False)}" for key, value in changes.items()
    ]
    return load_recipe(RECIPES / variant.recipe, assignments)


def scores(folder: Path, variant: Variant, data: Path) -> dict[str, dict[str, float]]:
    """Score a student on each task: the figures and averages, and their range over the seeds of a classifier."""
    student, tokenizer = Student.load(folder)
    results = {}
    for name in variant.tests:
        task = _read_task(name, data).within(frozenset(["en", *variant.languages]))
        texts = sorted(set(task.sentences()))
        vectors = dict(zip(texts, encode(student, tokenizer, texts), strict=True))
        seeded = [replace(task, seed=seed) for seed in PROBE_SEEDS] if isinstance(task, Classification) else [task]
        runs = [_evaluate(task, vectors) for task in seeded]
        results[name] = {key: fmean(run[key] for run in runs) for key in runs[0]}
        if len(runs) > 1:
            ranges = {key: max(run[key] for run in runs) - min(run[key] for run in runs) for key in runs[0]}
            results[f"{name}, spread"] = ranges
    return results


def _evaluate(task: EvalTask, vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    accuracy = task.evaluate(lambda texts: np.stack([vectors[text] for text in texts]), None)
    assert accuracy  # there is a result wherever there are vectors
    return {key: figure.value for key, figure in (accuracy.figures | accuracy.averages).items()}


@cache
def _read_task(name: str, data: Path) -> EvalTask:
    if name == "sts":
        return Similarity(read_folder(data / "stsb-multi-mt").every(STS_EVERY))
    if name == "tatoeba":
        return Retrieval(name, next(iter(read_tatoeba(data / "tatoeba").values())))
    folder = data / "classification" / "sib200"
    return Classification(name, read_labelled(folder, "train"), read_labelled(folder, "test"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"))
    parser.add_argument("--only", nargs="*", help="names of variants")
    options = parser.parse_args(arguments)
    for part in options.part:
        for variant in PARTS[part](options.data):
            if not options.only or variant.name in options.only:
                run(variant, options.data, options.runs)


if __name__ == "__main__":
    main()
