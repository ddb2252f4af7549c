"""Which layers of an assistant a student should take: score untrained students, each with a head of its own.

    python benchmarks/layer_choice.py runs/release DATA [--every 25] [--bottleneck 128] [1,2,3,4,5,10,11,12 ...]

RUN has its steps `corpus` and `start` behind it; DATA holds stsb-<language>-dev.csv.xz. The head is fitted by least
squares to the teacher's vectors of 500 training pairs a language, both sides. Prints a table; without layers, of those
in benchmarks/release.md.
"""

import argparse
from pathlib import Path

import numpy as np

from xcompress.console import emit, markdown_table
from xcompress.corpus.build import TRAIN, corpus_file
from xcompress.corpus.graded import GradedSet, averages, read_folder, score
from xcompress.corpus.store import PairFile
from xcompress.distillation.assistant import TOKEN_COUNTS
from xcompress.distillation.initialization import initial_student, least_squares_head, with_head, without_head
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.distillation.teachers.vectors import vectors_of
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
SHOWN = ("monolingual", "en-xx")


def main() -> None:
    """Score each choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("layers", nargs="*", default=CHOICES)
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument("--bottleneck", type=int)
    asked = parser.parse_args()
    recipe = load_recipe(asked.run / "recipe.yaml")
    graded = read_folder(asked.data).within(["en", *recipe.languages]).every(asked.every)
    rows = []
    for text in asked.layers:
        layers = tuple(map(int, text.split(",")))
        part = StudentSection(unit_layers=len(layers), layers=layers, recurrences=1, bottleneck=asked.bottleneck)
        found = scored(asked.run, recipe, part, graded)
        rows.append([text, str(asked.bottleneck), *(f"{found[name]:.1f}" for name in SHOWN)])
    emit(markdown_table(["layers of the assistant", "B", *SHOWN], rows))


def scored(run: Path, recipe: Recipe, part: StudentSection, graded: GradedSet) -> dict[str, float]:
    """Return the averages of an untrained student."""
    assistant, tokenizer = Student.load(run / "start")
    bare = without_head(initial_student(assistant, part, np.load(run / "start" / TOKEN_COUNTS)))
    sources, targets = _sides(run, recipe)
    assert recipe.teacher is not None
    goals = np.tile(open_encoder(recipe.teacher, "teacher")(sources), (2, 1))
    vectors = vectors_of("student before training", bare, tokenizer)([*sources, *targets])
    return averages(
        score(vectors_of("student", with_head(bare, least_squares_head(vectors, goals)), tokenizer), graded)
    )


def _sides(run: Path, recipe: Recipe) -> tuple[list[str], list[str]]:
    """Return both sides of some training pairs of each language."""
    generator, sources, targets = np.random.default_rng(recipe.seed), list[str](), list[str]()
    for language in recipe.languages:
        file = PairFile(corpus_file(run / "corpus", TRAIN, language), language)
        pairs = [file[int(row)] for row in generator.choice(len(file), PAIRS, replace=False)]
        sources += [pair.source for pair in pairs]
        targets += [pair.target for pair in pairs]
    return sources, targets


if __name__ == "__main__":
    main()
