"""Vectors of frozen models, computed once and kept by content: the same model and texts are never encoded twice."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.console import bar
from xcompress.distill.hardware import device, fast_inference
from xcompress.errors import InputError
from xcompress.files import hash_of, whole_file, write_json
from xcompress.student import Student, encode

VectorsOf = Callable[[Sequence[str]], NDArray[np.float32]]
"""Maps N texts to their vectors, (N, D)."""


class VectorCache:
    """A folder of .npy arrays, each beside a .json that says what it holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def vectors(
        self, model: str, fingerprint: str, texts: Sequence[str], open_model: Callable[[], VectorsOf]
    ) -> NDArray[np.float32]:
        """Return the vectors of `texts`, (len(texts), D), computing them only when they are not there yet.

        :param model: what to call the model in the .json file.
        :param fingerprint: a hash of the model's weights and of how it is used.
        :param open_model: opens the model; called only when there is something to compute.
        """
        path = self.folder / f"{hash_of([fingerprint, list(texts)])}.npy"
        if not path.exists():
            computed = open_model()(texts)
            write_json(path.with_suffix(".json"), {"model": model, "fingerprint": fingerprint, "texts": len(texts)})
            with whole_file(path) as temporary, temporary.open("wb") as stream:
                np.save(stream, computed)
        return np.load(path)  # type: ignore[no-any-return]


def teacher_encoder(folder: Path, batch_size: int = 256) -> VectorsOf:
    """Open a sentence-transformers model.

    :raises InputError: when the folder does not hold one.
    """
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(str(folder))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(f"teacher.source: {folder} is not a sentence-transformers model ({reason})") from error

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        width = model.encode([""]).shape[1]
        vectors = np.empty((len(texts), width), dtype=np.float32)
        with bar("teacher: vectors", len(texts)) as ticker, fast_inference():
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                vectors[rows] = model.encode([texts[row] for row in rows], batch_size=64, show_progress_bar=False)
                ticker.advance(len(rows))
        return vectors

    return encode_texts


def vectors_of(what: str, student: Student, tokenizer: Tokenizer) -> VectorsOf:
    """Wrap a student (or assistant) as a function from texts to vectors.

    :param what: what to call it on the progress bar.
    """

    def encode_texts(texts: Sequence[str]) -> NDArray[np.float32]:
        student.to(device())
        with bar(f"{what}: vectors", len(texts)) as ticker, fast_inference():
            return encode(student, tokenizer, texts, advance=ticker.advance)

    return encode_texts
