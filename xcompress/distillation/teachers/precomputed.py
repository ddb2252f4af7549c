"""Precomputed vectors as an encoder: an .npy of N vectors and a text file of their N sentences."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.bundle.stored_vectors import FLOATS, open_npy
from xcompress.corpus.lines import text_lines
from xcompress.corpus.normalise import normalise
from xcompress.errors import InputError
from xcompress.files import write_text
from xcompress.metrics import unit_length
from xcompress.recipe import EncoderSection
from xcompress.sources import resolve

_ABSENT = -1


class PrecomputedVectors:
    """The vectors of N sentences, looked up by sentence."""

    def __init__(
        self, vectors: NDArray[np.floating], sentences: Sequence[str], where: str, missing: Path, normalize: bool
    ) -> None:
        """Index the sentences, as they are and normalised.

        :param vectors: one row for each sentence, (N, D).
        :param where: beginning of error messages.
        :param missing: file for requested sentences without a vector.
        :param normalize: whether vectors are scaled to unit length.
        """
        self._vectors, self._where, self._missing, self._normalize = vectors, where, missing, normalize
        self._row_of = {normalise(sentence): row for row, sentence in enumerate(sentences)}
        # A sentence that is there as it is has its own vector, not that of another one which is normalised to it.
        self._row_of.update((sentence, row) for row, sentence in enumerate(sentences))

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts, (len(texts), D).

        :raises InputError: when a text has no vector, or one that is not finite.
        """
        self.require(texts)
        vectors = self._vectors[[self._find_row(text) for text in texts]].astype(np.float32)
        finite = np.isfinite(vectors).all(1)
        if not finite.all():
            text = texts[int(finite.argmin())]
            raise InputError(
                f"{self._where}: row {self._find_row(text)}, of {text!r}, holds NaN or infinity; compute it again"
            )
        return unit_length(vectors) if self._normalize else vectors

    def require(self, texts: Sequence[str]) -> None:
        """Check that all texts have vectors; write those without to a file, one per line.

        :raises InputError: when a text has no vector.
        """
        distinct = dict.fromkeys(texts)
        absent = [" ".join(text.split()) for text in distinct if self._find_row(text) == _ABSENT]
        if absent:
            write_text(self._missing, "".join(f"{text}\n" for text in absent))
            raise InputError(
                f"{self._where}: has no vectors for {len(absent)} of {len(distinct)} sentences, such as {absent[0]!r}; "
                f"{self._missing} lists them: append their vectors to the .npy, and the sentences to its text file"
            )

    def _find_row(self, text: str) -> int:
        row = self._row_of.get(text, _ABSENT)
        return self._row_of.get(normalise(text), _ABSENT) if row == _ABSENT else row


def open_precomputed(section: EncoderSection, key: str, path: Path, *, normalize: bool) -> PrecomputedVectors:
    """Open an .npy of (N, D) numbers, which stays on disk, and its text file of N sentences.

    :param section: the recipe's section, with the source of the sentences.
    :param key: the section's key in the recipe, for error messages.
    :param path: path of the .npy.
    :param normalize: whether its vectors are scaled to unit length.
    :raises InputError: when a file cannot be used, or the two do not belong together.
    """
    where = f"{key}.source: {section.source}"
    vectors = open_npy(path, FLOATS, where, "save it with numpy.save")
    reference = str(section.sentences_source)
    file = resolve(reference)
    try:
        sentences = [line.rstrip("\r\n") for line in text_lines(file)]  # blank lines count
    except InputError as error:
        raise InputError(f"{key}.sentences: {error}") from error
    if len(vectors) != len(sentences):
        raise InputError(
            f"{where}: has {len(vectors)} rows, but {reference} has {len(sentences)} lines; "
            "there must be a line for every row, in the same order"
        )
    return PrecomputedVectors(vectors, sentences, where, file.with_suffix(".missing.txt"), normalize)
