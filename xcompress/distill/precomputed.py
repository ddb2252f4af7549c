"""Vectors computed earlier, by an embedding API for instance, as an encoder: a .npy with a text file beside it."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.normalise import normalise
from xcompress.errors import InputError
from xcompress.files import write_text
from xcompress.recipe import Encoder
from xcompress.sources import resolve

ABSENT = -1
NUMBERS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"))


class Table:
    """The vectors of N sentences, by sentence; a `Lookup`."""

    def __init__(self, vectors: NDArray[np.floating], sentences: Iterable[str], where: str, missing: Path) -> None:
        """Index the sentences as they are and normalised.

        :param vectors: one row a sentence, (N, D).
        :param where: what to put in front of error texts.
        :param missing: where sentences are written that are asked for and not here.
        """
        self._vectors, self._where, self._missing = vectors, where, missing
        self._row_of: dict[str, int] = {}
        for row, sentence in enumerate(sentences):
            self._row_of[normalise(sentence)] = self._row_of[sentence] = row

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (len(texts), D).

        :raises InputError: when some are missing, or are not finite numbers.
        """
        self.require(texts)
        vectors = self._vectors[[self._row(text) for text in texts]].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        if not finite.all():
            number = int(finite.argmin())
            raise InputError(
                f"{self._where}: row {self._row(texts[number])}, of {texts[number]!r}, holds NaN or infinity; "
                "compute it again"
            )
        return vectors

    def require(self, texts: Sequence[str]) -> None:
        """Find out whether all texts have vectors; write those that have none to a file, one a line.

        :raises InputError: when some have none.
        """
        distinct = dict.fromkeys(texts)
        absent = [" ".join(text.split()) for text in distinct if self._row(text) == ABSENT]
        if absent:
            write_text(self._missing, "".join(f"{text}\n" for text in absent))
            raise InputError(
                f"{self._where}: has no vectors of {len(absent)} of {len(distinct)} sentences, the first of which is "
                f"{absent[0]!r}; they are in {self._missing}: add their vectors to the .npy, and them to its sentences"
            )

    def _row(self, text: str) -> int:
        row = self._row_of.get(text, ABSENT)
        return self._row_of.get(normalise(text), ABSENT) if row == ABSENT else row


def open_table(part: Encoder, key: str, path: Path, missing: Path | None = None) -> Table:
    """Open an .npy of (N, D) numbers, which stays on disk, and its text file of N sentences.

    :param path: where the .npy is.
    :param missing: where sentences are written that are asked for and not there; beside the text file by default.
    :raises InputError: when a file cannot be used, or they do not go together.
    """
    where = f"{key}.source: {part.source}"
    vectors = _open_array(path, where)
    reference = str(part.sentences_source)
    file = resolve(reference)
    sentences = _read_lines(file, f"{key}.sentences: {reference}")
    if len(vectors) != len(sentences):
        raise InputError(
            f"{where}: has {len(vectors)} rows, but {reference} has {len(sentences)} lines; "
            "there must be a line for every row, in the same order"
        )
    return Table(vectors, sentences, where, missing or file.with_suffix(".missing.txt"))


def _open_array(path: Path, where: str) -> NDArray[np.floating]:
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{where}: not a readable .npy of plain numbers ({error}); save it with numpy.save") from error
    if vectors.ndim != 2 or vectors.dtype.newbyteorder("=") not in NUMBERS:
        raise InputError(
            f"{where}: holds {vectors.dtype} of shape {vectors.shape}; it must be float16, float32 or float64 of (N, D)"
        )
    return vectors  # type: ignore[no-any-return]


def _read_lines(path: Path, where: str) -> list[str]:
    """Read lines, blank ones, too; only line ends separate them, and no other characters that look like some."""
    try:
        with path.open(encoding="utf-8") as stream:
            return [line.removesuffix("\n") for line in stream]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: cannot be read as UTF-8 text ({error}); save it as such") from error
