"""Vectors of frozen models, computed once by all workers and cached by content, as float16 in files of equal length."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.console import LineTicker, bar, say
from xcompress.distillation.distributed import workers
from xcompress.distillation.file_records import (
    FileRecord,
    FileRecords,
    check_files,
    describe,
    from_json,
    record_files,
    to_json,
)
from xcompress.distillation.hardware import device, fast_inference
from xcompress.errors import InputError, first_line
from xcompress.files import drop_pages, read_json, remove_leftovers, whole_file, write_json
from xcompress.modeling.student import Student, encode

INFO = "info.json"
"""Describes the vectors of a folder, and has the records of its files once all are there."""
CHUNK = 16_384
"""Texts in a file. An interruption loses at most one file per worker, some minutes of computing on a CPU."""
BATCH = 256
"""Texts that a model gets at a time."""
LARGEST = float(np.finfo(np.float16).max)

VectorsOf = Callable[[Sequence[str]], NDArray[np.float32]]
"""Maps N texts to their vectors, (N, D)."""


@runtime_checkable
class Lookup(Protocol):
    """An encoder that looks up precomputed vectors, and has those of some texts only."""

    def require(self, texts: Sequence[str]) -> None:
        """Check that it has the vectors of all texts, before any is read.

        :raises InputError: when vectors are missing.
        """


@dataclass(frozen=True)
class Mapped:
    """An encoder whose vectors (N, D) are changed by a function."""

    encoder: VectorsOf
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]]

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the changed vectors of the texts."""
        return self.change(self.encoder(texts))

    def require(self, texts: Sequence[str]) -> None:
        """Check the texts, where the encoder inside is a `Lookup`."""
        if isinstance(self.encoder, Lookup):
            self.encoder.require(texts)


class Vectors:
    """Vectors (N, D) in memory-mapped files; rows are read when they are indexed."""

    def __init__(self, chunks: Sequence[NDArray[np.float16]]) -> None:
        self._chunks = chunks
        self._ends = np.cumsum([len(chunk) for chunk in chunks], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._chunks else 0

    @property
    def shape(self) -> tuple[int, int]:
        """N and D."""
        return len(self), self._chunks[0].shape[1] if self._chunks else 0

    def release(self) -> None:
        """Release the memory of the rows that were read."""
        for chunk in self._chunks:
            drop_pages(chunk)

    def rows(self, indices: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
        """Return the vectors of n texts by index, (n, D).

        :raises IndexError: when an index is not in 0 ... N - 1.
        """
        rows = np.asarray(indices, dtype=np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise IndexError(f"row {rows.min()} or {rows.max()} is not one of {len(self)} rows")
        vectors = np.empty((len(rows), self.shape[1]), dtype=np.float32)
        chunk_of_row = np.searchsorted(self._ends, rows, side="right")
        for number in np.unique(chunk_of_row):
            chunk, in_chunk = self._chunks[number], chunk_of_row == number
            vectors[in_chunk] = chunk[rows[in_chunk] - (self._ends[number] - len(chunk))]
        return vectors


class VectorStore:
    """A folder with, for each model and list of texts, a folder of .npy files and an info.json that describes them.

    A file holds the vectors of `chunk` consecutive texts, and is written whole or not at all; file c is computed by
    worker c % workers. A model sees only the texts of one file at a time, so that its batches, on which its vectors
    depend in the last digits, are the same after an interruption and with any number of workers.
    """

    def __init__(self, folder: Path, chunk: int = CHUNK) -> None:
        self.folder = folder
        self.chunk = chunk

    def vectors(
        self, model: str, fingerprint: str, texts: Sequence[str], open_model: Callable[[], VectorsOf]
    ) -> Vectors:
        """Return the vectors of texts, computing those that are missing. All workers must call it.

        :param model: name of the model in messages and in info.json.
        :param fingerprint: a hash of the model's weights and settings.
        :param open_model: loads the model; called only by workers that have something to compute.
        :raises InputError: when vectors are missing from a table, do not fit float16, or cannot be written.
        """
        folder = self.folder / _content_hash(fingerprint, texts, self.chunk)
        parts = [range(len(texts))[start : start + self.chunk] for start in range(0, len(texts), self.chunk)]
        files = {folder / f"{number:05}.npy": rows for number, rows in enumerate(parts)}
        group = workers()
        if group.is_main_process:
            info = {"model": model, "fingerprint": fingerprint, "texts": len(texts), "texts_per_file": self.chunk}
            remove_leftovers(folder)
            recorded = _read_records(folder)
            records = _remove_damaged(model, folder, files, recorded)
            if not recorded:
                write_json(folder / INFO, info)
        group.wait_for_everyone()

        # Compute the missing files of this worker.
        of_worker = list(files.items())[group.process_index :: group.num_processes]
        missing = {file: rows for file, rows in of_worker if not file.exists()}
        if missing:
            encoder = open_model()
            if isinstance(encoder, Lookup):
                encoder.require(texts)
            ticker = LineTicker(f"{model}: vectors of", sum(map(len, missing.values())))
            for file, rows in missing.items():
                vectors = _as_float16(model, encoder([texts[row] for row in rows]))
                with whole_file(file) as temporary, temporary.open("wb") as stream:
                    np.save(stream, vectors)
                ticker.advance(len(rows), "texts")
        group.wait_for_everyone()
        chunks = [_open_chunk(file) for file in files]
        if group.is_main_process:
            records |= record_files(folder, (file for file in files if file.name not in records))
            if records != recorded:
                write_json(folder / INFO, info | {"files": to_json(records)})
        return Vectors(chunks)


def _read_records(folder: Path) -> FileRecords:
    """Return the records of a folder's files; those of an interrupted call, or of an earlier version, have none."""
    try:
        return from_json(read_json(folder / INFO)["files"])
    except (InputError, KeyError, TypeError, AttributeError):
        return {}


def _remove_damaged(
    model: str, folder: Path, files: Mapping[Path, range], recorded: Mapping[str, FileRecord]
) -> FileRecords:
    """Remove the files that are not what was written or have not the vectors of all their texts, and say why.

    :param files: the texts of each file.
    :returns: the records of the others, where they have one.
    """
    damage, records = check_files(folder, recorded)
    for file, texts in files.items():
        if file.exists() and file.name not in damage:
            try:
                rows = len(np.load(file, mmap_mode="r", allow_pickle=False))
                problem = "" if rows == len(texts) else f"holds {rows} vectors of {len(texts)}"
            except (OSError, ValueError, EOFError, TypeError) as error:
                problem = f"is damaged ({first_line(error)})"
            damage |= {file.name: problem} if problem else {}
    if damage:
        say(f"{model}: vectors in {folder}: {describe(damage)}; computed again")
    for name in damage:
        (folder / name).unlink(missing_ok=True)
        records.pop(name, None)
    return records


def _content_hash(fingerprint: str, texts: Sequence[str], chunk: int) -> str:
    """Hash what the files depend on. Each text is hashed with its length, so that no two lists give the same bytes."""
    digest = hashlib.sha256(f"{fingerprint} {chunk} ".encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()[:16]


def _as_float16(model: str, vectors: NDArray[np.float32]) -> NDArray[np.float16]:
    largest = float(np.abs(vectors).max(initial=0))
    if not largest <= LARGEST:  # written so that NaN is refused, too
        raise InputError(
            f"{model}: its vectors reach {largest:g}, and float16, in which they are cached, ends at {LARGEST:g}; "
            "scale them to unit length (normalize: true)"
        )
    return vectors.astype(np.float16)


def _open_chunk(file: Path) -> NDArray[np.float16]:
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except FileNotFoundError as error:
        raise InputError(f"{file}: missing after all workers finished; use one run folder for all workers") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{file}: damaged ({error}); delete it and run again") from error


def in_batches(what: str, encoder: VectorsOf, texts: Sequence[str]) -> NDArray[np.float32]:
    """Call an encoder with batches of texts of similar length, and show a progress bar.

    :param what: name of the model on the progress bar.
    :returns: vectors in the order of `texts`, (len(texts), D).
    """
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    vectors = np.empty((0, 0), dtype=np.float32)
    with bar(f"{what}: vectors", len(texts)) as ticker:
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = encoder([texts[row] for row in rows])
            if start == 0:
                vectors = np.empty((len(texts), batch.shape[1]), dtype=np.float32)
            vectors[rows] = batch
            ticker.advance(len(rows))
    return vectors


def vectors_of(what: str, student: Student, tokenizer: Tokenizer) -> VectorsOf:
    """Wrap a student (or assistant) as a function from texts to vectors.

    :param what: name of the model on the progress bar.
    """

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        student.to(device())
        with bar(f"{what}: vectors", len(texts)) as ticker, fast_inference():
            return encode(student, tokenizer, texts, advance=ticker.advance)

    return encode_texts
