"""Vectors of frozen models, computed once by all workers and cached by content, as float16."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.batches import group_by_length
from xcompress.console import LineTicker, bar, say
from xcompress.corpus.sequences import DistinctTexts
from xcompress.distillation import distributed
from xcompress.distillation.file_records import describe
from xcompress.distillation.hardware import device, fast_inference
from xcompress.distillation.teachers.precomputed import PrecomputedVectors
from xcompress.distillation.teachers.vector_file import VectorFile
from xcompress.errors import InputError
from xcompress.files import drop_pages, remove_leftovers
from xcompress.metrics import Encode
from xcompress.modeling.student import Student, encode

CHUNK = 16_384
"""Texts in a block. An interruption loses at most one block per worker, some minutes of computing on a CPU."""
BATCH = 256
"""Texts that a model gets at a time."""
SMALLEST, LARGEST = float(np.finfo(np.float16).smallest_normal), float(np.finfo(np.float16).max)


class StoredVectors:
    """Vectors of one or several models for the same N texts, (N, D1 + D2 + ...), in memory-mapped files.

    Unit vectors u_i with weights w_i are concatenated as u_i sqrt(w_i / sum of w). The result has unit length, and the
    cosine of two rows is the weighted mean of the models' cosines, sum of w_i cos_i / sum of w.
    """

    def __init__(self, *tables: NDArray[np.float16], scales: Sequence[float] = (1.0,)) -> None:
        """Take the tables of the models, (N, D1), (N, D2), ..., and the factor of each."""
        self.tables, self.scales = tables, scales

    def __len__(self) -> int:
        return len(self.tables[0])

    @property
    def dimension(self) -> int:
        """The sum of the widths."""
        return sum(int(table.shape[1]) for table in self.tables)

    def __getitem__(self, rows: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the vectors of n texts, (n, D1 + D2 + ...).

        :raises IndexError: when a row is not in 0 ... N - 1.
        """
        chosen = np.asarray(rows, dtype=np.int64)
        if len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self):
            raise IndexError(f"row {chosen.min()} or {chosen.max()} is not one of {len(self)} rows")
        return concatenate([np.asarray(table[chosen], dtype=np.float32) for table in self.tables], self.scales)

    def release(self) -> None:
        """Release the memory of the vectors that were read."""
        for table in self.tables:
            drop_pages(table)


def concatenate(vectors: Sequence[NDArray[np.float32]], scales: Sequence[float]) -> NDArray[np.float32]:
    """Concatenate vectors of the same N texts, (N, D1), (N, D2), ..., each multiplied by its scale."""
    return np.hstack([np.float32(scale) * table for scale, table in zip(scales, vectors, strict=True)])


class VectorStore:
    """A folder with, for each model and list of texts, a folder with a table of their vectors; see `VectorFile`.

    A block of the table has the vectors of `chunk` consecutive texts; block b is computed by worker b % workers. A
    model sees only the texts of one block at a time, so that its batches, on which its vectors depend in the last
    digits, are the same after an interruption and with any number of workers.
    """

    def __init__(self, folder: Path, chunk: int = CHUNK) -> None:
        self.folder = folder
        self.chunk = chunk
        self._kept: dict[str, Encode] | None = None
        """In `keep_model`, the model that was opened last, by its fingerprint."""

    @contextmanager
    def keep_model(self) -> Iterator[None]:
        """Keep the last model that the block opens until its end, for further texts."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def vectors(
        self, model: str, fingerprint: str, texts: DistinctTexts, open_model: Callable[[], Encode]
    ) -> StoredVectors:
        """Return the vectors of texts, computing those that are missing. All workers must call it.

        :param model: name of the model in messages and in the table's record.
        :param fingerprint: a hash of the model's weights and settings.
        :param open_model: loads the model; called only by workers that have something to compute.
        :raises InputError: when vectors are missing from a table, do not fit float16, or cannot be written.
        """
        folder = self.folder / sha256(f"{fingerprint} {self.chunk} {texts.digest}".encode()).hexdigest()[:16]
        file = VectorFile(folder, len(texts), self.chunk)
        if distributed.is_main():
            remove_leftovers(folder)
            if damage := file.settle(model, fingerprint, check=True):
                say(f"{model}: vectors in {folder}: {describe(damage)}; computed again")
        distributed.barrier()

        # Compute the missing blocks of this worker.
        rank, count = distributed.rank(), distributed.world_size()
        blocks = [number for number in file.missing() if number % count == rank]
        if blocks:
            kept = {} if self._kept is None else self._kept
            if fingerprint not in kept:
                kept.clear()  # makes room for another model
                kept[fingerprint] = open_model()
            encoder = kept[fingerprint]
            if isinstance(encoder, PrecomputedVectors):
                encoder.require(texts)
            rows = [file.rows(number) for number in blocks]
            ticker = LineTicker(f"{model}: vectors of", sum(map(len, rows)))
            scratch = folder / f"texts.{rank}"
            with distributed.own_work(), closing(texts.blocks(rows, scratch)) as texts_of_blocks:
                for number, of_block in zip(blocks, texts_of_blocks, strict=True):
                    file.write(number, _as_float16(model, encoder(of_block)), rank)
                    ticker.advance(len(of_block), "texts")
        distributed.barrier()
        if distributed.is_main():
            file.settle(model, fingerprint)
        distributed.barrier()
        return StoredVectors(file.open())


def check_finite(model: str, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vectors (N, D) of a model.

    :raises InputError: when some are not finite.
    """
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{model}: the vectors of {np.count_nonzero(~finite):,} of {len(vectors):,} texts hold NaN or infinity; "
            "fetch the model again, as its weights may be damaged"
        )
    return vectors


def _as_float16(model: str, vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    largest = float(np.abs(check_finite(model, vectors)).max(initial=0))
    if largest > LARGEST or 0 < largest < SMALLEST:
        raise InputError(
            f"{model}: its vectors reach {largest:g}, and float16, in which they are cached, is for {SMALLEST:g} to "
            f"{LARGEST:g}; scale them to unit length (normalize: true)"
        )
    return vectors.astype(np.float16)


def in_batches(what: str, encoder: Encode, texts: Sequence[str]) -> NDArray[np.float32]:
    """Call an encoder with batches of texts of similar length, and show a progress bar.

    :param what: name of the model on the progress bar.
    :returns: vectors in the order of `texts`, (len(texts), D).
    :raises InputError: when their width changes, as it may in a user's function.
    """
    vectors = np.empty((0, 0), dtype=np.float32)
    with bar(f"{what}: vectors", len(texts)) as ticker:
        for rows in group_by_length([len(text) for text in texts], lambda _: BATCH):
            batch = encoder([texts[row] for row in rows])
            if not vectors.size:
                vectors = np.empty((len(texts), batch.shape[1]), dtype=np.float32)
            if batch.shape[1] != vectors.shape[1]:
                raise InputError(
                    f"{what}: returned vectors of width {vectors.shape[1]} for one batch and {batch.shape[1]} for "
                    "another; the width must not change"
                )
            vectors[rows] = batch
            ticker.advance(len(rows))
    return vectors


def student_encoder(what: str, student: Student, tokenizer: Tokenizer) -> Encode:
    """Wrap a student (or assistant) as a function from texts to vectors.

    :param what: name of the model on the progress bar.
    """

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        student.to(device())
        with bar(f"{what}: vectors", len(texts)) as ticker, fast_inference():
            return encode(student, tokenizer, texts, advance=ticker.advance)

    return encode_texts
