"""The sentences of pairs, and which of them are equal."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from xcompress.console import say
from xcompress.corpus.columns import Rows, growing_npy, in_row_order, part_bits, partition, write_npy
from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence, DistinctTexts, Selection
from xcompress.corpus.store import PairFile, text_hash
from xcompress.distillation import distributed
from xcompress.distillation.file_records import check_recorded, describe, record_files
from xcompress.errors import InputError
from xcompress.files import read_json, whole_folder, write_json

ROWS, FIRST, INFO = "rows.npy", "first.npy", "info.json"
"""Files of `distinct`: int64 (texts,), int64 (distinct texts,), and the digest and the records of both."""
BLOCK = 1 << 17
"""Texts whose hashes are read at a time."""

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class Sentences(Selection[str]):
    """One side of some pairs, read when it is indexed."""

    def __init__(self, pairs: Sequence[Pair], side: Side, rows: Rows | None = None) -> None:
        super().__init__(pairs, np.arange(len(pairs)) if rows is None else rows, attrgetter(side))
        self.pairs, self.side = pairs, side


def hash_blocks(texts: Sequence[str]) -> Iterator[NDArray[np.uint64]]:
    """Yield the hashes of texts in their order, block by block; pairs of a corpus have them on disk."""
    if isinstance(texts, ConcatSequence):
        for part in texts.parts:
            yield from hash_blocks(part)
        return
    for start in range(0, len(texts), BLOCK):
        hashes = _stored_hashes(texts, texts.rows[start : start + BLOCK]) if isinstance(texts, Sentences) else None
        if hashes is None:
            encoded = (text.encode("utf-8", "surrogatepass") for text in texts[start : start + BLOCK])
            hashes = np.frombuffer(b"".join(map(text_hash, encoded)), np.uint64)
        yield hashes


def _stored_hashes(sentences: Sentences, rows: Rows) -> NDArray[np.uint64] | None:
    """Return the hashes (n,) of the sentences of some pairs, where all pairs are in files that have them."""
    files = sentences.pairs if isinstance(sentences.pairs, ConcatSequence) else ConcatSequence([sentences.pairs])
    hashes = np.empty(len(rows), np.uint64)
    file_of_row = np.searchsorted(files.starts, rows, side="right") - 1
    for number in np.unique(file_of_row).tolist():
        file, in_file = files.parts[number], file_of_row == number
        if not isinstance(file, PairFile):
            return None
        hashes[in_file] = file.hashes(sentences.side, rows[in_file] - files.starts[number])
    return hashes


def distinct(texts: Sequence[str], folder: Path) -> tuple[DistinctTexts, Rows]:
    """Return the distinct texts, and for each input text its index among them. All workers must call it.

    Texts are not compared but their hashes of 64 bits; these are sorted in parts on disk, once. The results are
    memory-mapped.

    :param folder: where they are kept, in a folder of their own.
    :raises InputError: when they cannot be written.
    """
    key = hashlib.sha256()
    for block in hash_blocks(texts):
        key.update(block.tobytes())
    place = folder / f"rows-{key.hexdigest()[:16]}"
    if distributed.is_main() and not _is_whole(place):
        with whole_folder(place) as temporary:
            _write_distinct(texts, temporary)
    distributed.barrier()
    try:
        first, rows = (np.load(place / name, mmap_mode="r", allow_pickle=False) for name in (FIRST, ROWS))
        return DistinctTexts(texts, first, read_json(place / INFO)["digest"]), rows
    except FileNotFoundError as error:
        raise InputError(
            f"{place}: missing after the main worker wrote it; use one run folder for all workers"
        ) from error


def _is_whole(place: Path) -> bool:
    """Tell whether the rows in a folder are those that were written; say what is wrong."""
    if not place.exists():
        return False
    if damage := check_recorded(place / INFO):
        say(f"rows of vectors in {place}: {describe(damage)}; found again")
    return not damage


def _write_distinct(texts: Sequence[str], folder: Path) -> None:
    """Write the index of each text among the distinct ones, and the row of the first text of each of these."""
    digest = hashlib.sha256()

    def numbered(append_first: Callable[[Rows], None]) -> Iterator[tuple[Rows, NDArray[np.integer]]]:
        count = 0
        for hashes, rows in partition(lambda: hash_blocks(texts), part_bits(len(texts)), folder / "by_hash"):
            unique, of_part, numbers = np.unique(hashes, return_index=True, return_inverse=True)
            append_first(rows[of_part])
            digest.update(unique.tobytes())
            yield rows, count + numbers
            count += len(unique)

    with growing_npy(folder / FIRST, np.dtype(np.int64)) as append_first:
        in_order = in_row_order(numbered(append_first), len(texts), folder / "by_row")
        write_npy(folder / ROWS, np.dtype(np.int64), (len(texts),), in_order)
    files = record_files(folder, [folder / ROWS, folder / FIRST])
    write_json(folder / INFO, {"digest": digest.hexdigest(), "files": files})
