"""The groups step: similar English sentences, each with a translation, for the objective correlation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress import __version__
from xcompress.console import bar
from xcompress.corpus.columns import Rows
from xcompress.distillation import distributed
from xcompress.distillation.data.batches import draw
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.labels import TextName, VectorLabels, VectorTable
from xcompress.distillation.data.sentences import Sentences
from xcompress.distillation.hardware import device
from xcompress.distillation.run_folder import Run
from xcompress.distillation.teachers.ensemble import TeacherEnsemble
from xcompress.distillation.teachers.vectors import VectorStore
from xcompress.errors import InputError
from xcompress.metrics import nearest_rows
from xcompress.recipe import GROUP, Recipe

NEAREST = 40
"""A group is a sentence, and others drawn from this many that are nearest to it."""
NEAREST_FILE = "nearest.npy"
TEXT = "groups"
"""Name of the English sentences in their table of vectors."""


@dataclass(frozen=True)
class Groups:
    """P training pairs that groups are made of, with S different English sentences."""

    key: str
    """Key of the step."""
    rows: Rows
    """Rows of the training pairs, (P,)."""
    nearest: NDArray[np.int32]
    """For each sentence, the numbers of those that are nearest to it, (S, up to 40)."""
    table: Callable[[], VectorTable]
    """The teacher's vectors of the sentences, and the number of each pair's sentence; read at the first call."""

    def draw(self, count: int, seed: int) -> tuple[Rows, VectorLabels]:
        """Draw groups at random, until each sentence has been the first of one, and then again.

        :param count: number of pairs, a multiple of GROUP.
        :returns: rows of the training pairs (count,), group after group, and the teacher's vectors of their sentences.
        """
        table, generator = self.table(), np.random.default_rng(seed)
        sentence_of_pair = np.asarray(table.rows[TEXT])

        # Draw the sentences: the first of each group, and others among those nearest to it.
        groups, sentences = count // GROUP, len(self.nearest)
        rounds = -(-groups // sentences)
        first = np.concatenate([generator.permutation(sentences) for _ in range(rounds)])[:groups]
        others = generator.permuted(self.nearest[first], axis=1)[:, : GROUP - 1]
        chosen = np.column_stack([first, others]).ravel()

        # Draw a translation of each.
        by_sentence = np.argsort(sentence_of_pair, kind="stable")
        counts = np.bincount(sentence_of_pair, minlength=sentences)
        starts = np.cumsum(counts) - counts
        pairs = by_sentence[starts[chosen] + generator.integers(counts[chosen])]
        return self.rows[pairs], VectorLabels(table.vectors, chosen)


def pairs_of_groups(recipe: Recipe, corpus: Corpus) -> Rows | None:
    """Return the rows of the training pairs that groups are made of, (P,); None where no stage reads groups.

    :raises InputError: when the text has too few sentences for a group.
    """
    section, sentences = recipe.correlation, set[str]()
    if section is None or not any("correlation" in stage.objectives for stage in recipe.stages.values()):
        return None
    rows = np.unique(draw(corpus.rows_by_language(section.text, "correlation.text"), section.pairs, recipe.seed))
    for row in rows.tolist():
        sentences.add(corpus.train[row].source)
        if len(sentences) == GROUP:
            return rows
    raise InputError(
        f"correlation: the text has {len(sentences)} English sentences, and a group {GROUP}; give more text"
    )


def groups_step(
    recipe: Recipe, run: Run, corpus: Corpus, rows: Rows | None, teacher: TeacherEnsemble | None
) -> Groups | None:
    """Find the nearest of each English sentence of a recipe's groups, or reuse them. All workers must call it.

    :param rows: of the training pairs that groups are made of, (P,).
    :returns: None where no stage reads groups.
    """
    section = recipe.correlation
    if section is None or teacher is None or rows is None:
        return None
    texts: Mapping[TextName, Sequence[str]] = {TEXT: Sentences(corpus.train, "source", rows)}
    table = cache(partial(VectorTable.compute, texts, teacher.stored_vectors, VectorStore(run.vectors)))
    key = {
        "version": __version__,
        "corpus": corpus.step.key,
        "text": section.text,
        "pairs": section.pairs,
        "seed": recipe.seed,
        "teacher": teacher.fingerprint,
        "nearest": NEAREST,
    }
    step = run.step("groups", key, partial(_build, table))
    return Groups(step.key, rows, np.load(step.folder / NEAREST_FILE, mmap_mode="r", allow_pickle=False), table)


def _build(table: Callable[[], VectorTable], folder: Path) -> Mapping[str, object]:
    vectors = table().vectors
    if distributed.is_main():
        nearest = np.empty((len(vectors), min(NEAREST, len(vectors) - 1)), np.int32)
        with bar("groups: sentences", len(vectors)) as ticker:
            found = nearest_rows(vectors[np.arange(len(vectors))], NEAREST, device())
            for row, numbers in enumerate(found):
                nearest[row] = numbers
                ticker.advance()
        np.save(folder / NEAREST_FILE, nearest)
    return {"sentences": len(vectors)}
