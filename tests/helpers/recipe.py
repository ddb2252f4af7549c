"""A recipe small enough for a test: a tiny random teacher and assistant, on the graded sentences as parallel text."""

import shutil
from pathlib import Path
from typing import Any

import torch
import yaml

from tests.helpers import GRADED
from tests.helpers.files import made_once
from tests.helpers.student import make_tokenizer
from xcompress.corpus.graded import read_folder
from xcompress.files import read_json
from xcompress.recipe import Recipe, load_recipe

SHAPE = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "initializer_range": 0.2,
}
LANGUAGES = ("de", "fr")
_TRAINING = "train: student, batch_size: 8, checkpoint_steps: 4"
FROM_SCRATCH = (
    "assistant=null",
    "teacher=null",
    "vocabulary={method: train, size: 400}",
    "student={unit_layers: 2, hidden: 32, heads: 4, intermediate: 64, bottleneck: null, normalize: false}",
)
"""Overrides of the small recipe: no teacher, no assistant, a new vocabulary and new weights."""
LABELS = ("entailment", "neutral", "contradiction")


def write_teacher(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer

    write_bert(folder / "bert", layers=2, seed=1)
    transformer = Transformer(str(folder / "bert"), max_seq_length=32)
    pooling = Pooling(SHAPE["hidden_size"], "mean")
    SentenceTransformer(modules=[transformer, pooling, Normalize()]).save(str(folder / "teacher"))


def write_bert(folder: Path, layers: int, seed: int) -> None:
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    BertModel(BertConfig(**SHAPE, num_hidden_layers=layers)).eval().save_pretrained(folder)
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
    PreTrainedTokenizerFast(tokenizer_object=make_tokenizer(), **special).save_pretrained(folder)


def write_corpus(folder: Path, sides: tuple[str, ...] = ("first",)) -> None:
    graded = read_folder(GRADED).language_pairs
    for language in LANGUAGES:
        both = graded["en-en"], graded[f"{language}-{language}"]
        english, other = ([text for side in sides for text in getattr(pairs, side)] for pairs in both)
        lines = [f"{left}\t{right}\n" for left, right in zip(english, other, strict=True)]
        (folder / f"en-{language}.tsv").write_text("".join(lines), encoding="utf-8")


def write_labelled(folder: Path) -> tuple[str, str]:
    """Write graded pairs, and entailment pairs made from their scores; returns the changes to the recipe."""
    rows = read_folder(GRADED).language_pairs["en-en"]
    folder.mkdir(parents=True, exist_ok=True)
    graded, relations = folder / "graded.tsv", folder / "relations.tsv"
    pairs = list(zip(rows.first, rows.second, rows.scores, strict=True))
    graded.write_text("".join(f"{first}\t{second}\t{score}\n" for first, second, score in pairs))
    lines = [f"{first}\t{second}\t{LABELS[min(2, int((5 - score) / 2))]}\n" for first, second, score in pairs]
    relations.write_text("".join(lines))
    return f"labelled.graded=[{graded}]", f"labelled.entailment=[{relations}]"


def write_monolingual(folder: Path) -> tuple[str, str]:
    """Write word lists and a file of German sentences; returns the changes to the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in ("en", *LANGUAGES):
        (folder / f"{language}.txt").write_text("".join(f"{language}{row}\n" for row in range(200)))
    (folder / "sentences.txt").write_text("Der Zug ist weg.\nEs regnet.\n\nEs regnet.\nWer klopft da?\nIch nicht.\n")
    text = f"[{{source: {folder / 'sentences.txt'}, language: de}}]"
    return (
        f"vocabulary={{method: keep, words: '{folder}/{{language}}.txt', words_per_language: 100}}",
        f"monolingual={{text: {text}, word_sequences: 60}}",
    )


def write_recipe(folder: Path, *stages: str) -> Path:
    """Write models, text and recipe into the folder; return the path of the recipe.

    :param stages: those that the recipe has; none: all of them.
    """
    shutil.copytree(made_once("recipe", _write_models_and_corpus), folder, dirs_exist_ok=True)
    training = {"steps": 12, "batch_size": 8, "learning_rate": 1e-3, "checkpoint_steps": 4}
    recipe: dict[str, Any] = {
        "name": "small",
        "languages": list(LANGUAGES),
        "teacher": {"source": str(folder / "teacher")},
        "assistant": {"source": str(folder / "assistant"), "prefix": "query: "},
        "corpus": {
            "tsv": [{"source": str(folder / f"en-{name}.tsv"), "language": name} for name in LANGUAGES],
            "holdout": 40,
        },
        "vocabulary": {"method": "keep"},
        "student": {"unit_layers": 2, "bottleneck": 16, "max_tokens": 40},
        "stages": {
            "assistant": {"train": "assistant", "objectives": {"teacher": 32, "contrast": 10}, **training},
            "embedding": {"train": "embeddings", "objectives": {"embedding": 32}, **training},
            "imitation": {"train": "student", "objectives": {"assistant": 32}, **training},
            "contrast": {"train": "student", "objectives": {"teacher": 32, "contrast": 1}, **training},
        },
    }
    if stages:
        recipe["stages"] = {name: recipe["stages"][name] for name in stages}
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return path


def _write_models_and_corpus(folder: Path) -> None:
    """Write the models and the text of all recipes."""
    write_teacher(folder)
    write_bert(folder / "assistant", layers=4, seed=2)
    write_corpus(folder)


def small_recipe(folder: Path, *overrides: str) -> Recipe:
    return load_recipe(write_recipe(folder), overrides)


def stages_of(**objectives: str) -> str:
    """Return the override that replaces all stages; each value is the rest of a stage in YAML."""
    named = [f"{name}: {{{_TRAINING}, {described}}}" for name, described in objectives.items()]
    return f"stages={{{', '.join(named)}}}"


def losses(run: Path, step: str) -> list[float]:
    """Return the loss log of a step."""
    return [point["loss"] for point in read_json(run / "manifest.json")["steps"][step]["facts"]["loss"]]
