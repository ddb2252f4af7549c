"""The teacher's vectors: computed in the training step, and what they would take on disk and in time."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.console import without_bars
from xcompress.distillation.teachers.vectors import VectorsOf
from xcompress.errors import InputError
from xcompress.recipe import ON_SENTENCES, Recipe, Stage

BYTES_STORED = 2
"""Of a component of a vector, as float16."""


@dataclass(frozen=True)
class LiveTargets:
    """A target vector for each of N sentences, computed whenever it is read, on the device of the training."""

    texts: Sequence[str]
    encode: VectorsOf
    transform: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    """Applied to the vectors (n, D)."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.texts)

    def take(self, pairs: Sequence[int]) -> NDArray[np.float32]:
        """Return the targets (n, D') of n pairs, by index."""
        with without_bars():
            return self.transform(self.encode([self.texts[pair] for pair in pairs]))

    def release(self) -> None:
        """Do nothing: no vector is kept."""


@dataclass(frozen=True)
class TextCounts:
    """How many texts the teacher encodes for the stages of a recipe."""

    live: int
    """Each time that a stage reads one."""
    most_stored: int
    """Distinct ones, if no two pairs share a sentence."""
    least_stored: int
    """Distinct ones, if each English sentence has a translation in every language."""


def count_texts(recipe: Recipe, stages: Mapping[str, Stage], pairs: int) -> TextCounts:
    """Count the texts that the teacher encodes.

    :param pairs: training pairs of all languages, or 0 where they are not known.
    """
    live = 0
    read = {"source": 0, "target": 0, "monolingual": 0}
    for stage in stages.values():
        of_stage = stage.steps_on(pairs) * stage.batch_size
        sides: dict[str, int] = dict.fromkeys(stage.teacher_sides, of_stage)
        if set(ON_SENTENCES) & set(stage.objectives):
            sides["monolingual"] = 2 * of_stage * stage.monolingual_pairs
        for side, texts in sides.items():
            read[side] += texts
            live += texts * stage.soup
    sources, targets = (min(read[side], pairs) if pairs else read[side] for side in ("source", "target"))
    most = sources + targets + read["monolingual"]
    return TextCounts(live, most, sources // len(recipe.languages) + targets)


def check_disk(folder: Path, texts: TextCounts, width: int | None) -> None:
    """Check that the teacher's vectors fit the disk.

    :param folder: the run folder.
    :param width: of the teacher's vectors; None where it is not known.
    :raises InputError: when the disk has not even the space for the fewest vectors that there can be.
    """
    needed = texts.least_stored * (width or 0) * BYTES_STORED
    stored = sum(file.stat().st_size for file in (folder / "vectors").rglob("*") if file.is_file())
    place = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if needed - stored > free:
        raise InputError(
            f"{folder}: the teacher's vectors need {(needed - stored) / 1e9:.1f} GB or more, and the disk has "
            f"{free / 1e9:.1f} GB free; set teacher.targets to live, choose another --run, or train on fewer pairs"
        )
