"""Count the texts that the teacher encodes, and check that its vectors fit the disk."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from xcompress.distillation.run_folder import VECTORS
from xcompress.errors import InputError
from xcompress.files import free_bytes, size_of
from xcompress.recipe import Stage

BYTES_STORED = 2
"""Of a component of a vector, as float16."""


@dataclass(frozen=True)
class TextCounts:
    """How many texts the teacher encodes for the stages of a recipe."""

    live: int
    """Each time that a stage reads one."""
    most_stored: int
    """Distinct ones, if no two pairs share a sentence."""
    least_stored: int
    """Distinct ones, if each English sentence has a translation in every language, and stages share what they read."""


def count_texts(
    stages: Mapping[str, Stage], pairs: int, rows_of: Callable[[Stage], Sequence[int]] = lambda _: ()
) -> TextCounts:
    """Count the texts that the teacher encodes.

    :param pairs: training pairs of all languages, or 0 where they are not known.
    :param rows_of: returns how many pairs a stage may read in each language, none where they are not known.
    """
    live = 0
    fewest = {"source": 0, "target": 0}
    read = {"source": 0, "target": 0, "monolingual": 0}
    for stage in stages.values():
        steps, in_step = stage.steps_on(pairs), stage.pairs_in_step
        sides: dict[str, int] = dict.fromkeys(stage.teacher_sides, steps * stage.batch_size)
        sides["monolingual"] = 2 * steps * in_step.get("monolingual", 0)
        for side, texts in sides.items():
            read[side] += texts
            live += texts * stage.soup
        # Languages are drawn equally often; a small one is drawn again.
        rows = rows_of(stage)
        distinct = [min(steps * stage.batch_size // len(rows), of_language) for of_language in rows]
        for side in stage.teacher_sides if distinct else ():
            fewest[side] = max(fewest[side], max(distinct) if side == "source" else sum(distinct))
    sources, targets = (min(read[side], pairs) if pairs else read[side] for side in ("source", "target"))
    most = sources + targets + read["monolingual"]
    return TextCounts(live, most, sum(fewest.values()))


def check_disk(folder: Path, texts: TextCounts, width: int | None, *, can_be_live: bool) -> None:
    """Check that the teacher's vectors fit the disk.

    :param folder: the run folder.
    :param width: of the teacher's vectors; None where it is not known.
    :param can_be_live: whether the teacher can compute them in each training step instead.
    :raises InputError: when the disk has not even the space for the fewest vectors that there can be.
    """
    needed, free = texts.least_stored * (width or 0) * BYTES_STORED - size_of(folder / VECTORS), free_bytes(folder)
    if needed > free:
        live = "set teacher.targets to live, " if can_be_live else ""
        raise InputError(
            f"{folder}: the teacher's vectors need {needed / 1e9:.1f} GB or more, and the disk has "
            f"{free / 1e9:.1f} GB free; {live}choose another --run, or train on fewer pairs"
        )
