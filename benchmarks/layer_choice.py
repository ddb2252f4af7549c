"""Choose the layers that a student takes from its assistant: score untrained students with different layers.

    python benchmarks/layer_choice.py RUN DATA [LAYERS ...] [--every 25] [--bottleneck 128]

RUN is a run folder, such as runs/release, that has finished the steps `corpus` and `start`. DATA is a folder with
stsb-multi-mt. LAYERS are numbers from 1, such as 1,2,3,4,5,10,11,12, or prelude/unit x R/coda, such as
1,2/3,4,5x2/11,12; by default, those in benchmarks/release.md are compared. Each student gets a linear head, fitted by
least squares to the teacher's vectors of 500 training pairs per language (both sides). Prints a table of Spearman x 100
on every 25th row of the dev set.
"""

import argparse
from pathlib import Path

import numpy as np

from xcompress.console import emit, markdown_table, run_script
from xcompress.corpus.build import TRAIN, corpus_file
from xcompress.corpus.graded import GradedSet, averages, read_folder, score
from xcompress.corpus.store import PairFile
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.initialization import initial_student, least_squares_head, with_head, without_head
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.modeling.student import Student
from xcompress.recipe import Recipe, StudentSection, load_recipe

CHOICES = (
    "1,2,3,4,5,6,7,8",
    "1,2,3,5,6,8,10,12",
    "1,2,3,4,5,6,11,12",
    "1,2,3,4,5,8,11,12",
    "1,2,3,4,5,10,11,12",
    "1,2,3,4,5,6",
    "2,4,6,8,10,12",
)
PAIRS = 500
SHOWN = {"monolingual": "one language", "en-xx": "en-xx"}


def main() -> None:
    """Score each choice of layers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("layers", nargs="*", default=CHOICES)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--bottleneck", type=int)
    options = parser.parse_args()
    recipe = load_recipe(options.run / "recipe.yaml")
    graded = read_folder(options.data / "stsb-multi-mt").within(["en", *recipe.languages]).every(options.every)
    rows = []
    for text in options.layers:
        prelude, unit, coda = text.split("/") if "/" in text else ("", text, "")
        unit, _, recurrences = unit.partition("x")
        layers = _numbers(unit)
        student = StudentSection(
            prelude=_numbers(prelude),
            layers=layers,
            unit_layers=len(layers),
            coda=_numbers(coda),
            recurrences=int(recurrences or 1),
            bottleneck=options.bottleneck,
        )
        scores = score_untrained(options.run, recipe, student, graded)
        rows.append([text, str(options.bottleneck or "none"), *(f"{scores[name]:.1f}" for name in SHOWN)])
    emit(markdown_table(["layers of the assistant", "B", *SHOWN.values()], rows))


def score_untrained(run: Path, recipe: Recipe, section: StudentSection, graded: GradedSet) -> dict[str, float]:
    """Return the average scores of an untrained student."""
    assistant, tokenizer = Student.load(run / "start")
    student = without_head(initial_student(assistant, section, np.load(run / "start" / TOKEN_COUNTS)))
    sources, targets = _draw_sentences(run, recipe)
    assert recipe.teacher is not None
    teacher_vectors = np.tile(open_encoder(recipe.teacher, "teacher")(sources), (2, 1))
    vectors = student_encoder("student before training", student, tokenizer)([*sources, *targets])
    return averages(
        score(
            student_encoder("student", with_head(student, least_squares_head(vectors, teacher_vectors)), tokenizer),
            graded,
        )
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def _draw_sentences(run: Path, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return both sides of training pairs of each language, drawn at random."""
    generator, sources, targets = np.random.default_rng(recipe.seed), list[str](), list[str]()
    for language in recipe.languages:
        file = PairFile(corpus_file(run / "corpus", TRAIN, language), language)
        pairs = [file[int(row)] for row in generator.choice(len(file), min(PAIRS, len(file)), replace=False)]
        sources += [pair.source for pair in pairs]
        targets += [pair.target for pair in pairs]
    return sources, targets


if __name__ == "__main__":
    run_script(main)
