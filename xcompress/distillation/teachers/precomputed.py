"""Precomputed vectors as an encoder: an .npy of N vectors and a text file of their N sentences."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.lines import LONGEST
from xcompress.corpus.normalise import normalise
from xcompress.errors import InputError, on_one_line
from xcompress.files import write_text
from xcompress.recipe import EncoderSection
from xcompress.sources import resolve

_ABSENT = -1
_LONGEST_HEADER = 10_000
"""Bytes of an .npy's header, as in NumPy, which reads all of it before it checks."""
_DTYPES = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"))


class PrecomputedVectors:
    """The vectors of N sentences, looked up by sentence; a `Lookup`."""

    def __init__(self, vectors: NDArray[np.floating], sentences: Iterable[str], where: str, missing: Path) -> None:
        """Index the sentences, as they are and normalised.

        :param vectors: one row for each sentence, (N, D).
        :param where: beginning of error messages.
        :param missing: file for requested sentences without a vector.
        """
        self._vectors, self._where, self._missing = vectors, where, missing
        self._row_of: dict[str, int] = {}
        for row, sentence in enumerate(sentences):
            self._row_of[normalise(sentence)] = self._row_of[sentence] = row

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
        return vectors

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


def open_precomputed(section: EncoderSection, key: str, path: Path, missing: Path | None = None) -> PrecomputedVectors:
    """Open an .npy of (N, D) numbers, which stays on disk, and its text file of N sentences.

    :param section: the recipe's section, with the source of the sentences.
    :param key: the section's key in the recipe, for error messages.
    :param path: path of the .npy.
    :param missing: file for requested sentences without a vector; default: beside the text file.
    :raises InputError: when a file cannot be used, or the two do not belong together.
    """
    where = f"{key}.source: {section.source}"
    try:
        _check_header(path)
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError, OverflowError, TypeError, SyntaxError) as error:
        problem = on_one_line(error)
        raise InputError(
            f"{where}: not a readable .npy of plain numbers ({problem}); save it with numpy.save"
        ) from error
    if vectors.ndim != 2 or vectors.dtype.newbyteorder("=") not in _DTYPES:
        raise InputError(
            f"{where}: holds {vectors.dtype} of shape {vectors.shape}; it must be float16, float32 or float64 of (N, D)"
        )
    reference = str(section.sentences_source)
    file = resolve(reference)
    try:
        # only line ends separate lines, not the other characters at which splitlines splits; blank lines count
        with file.open(encoding="utf-8") as stream:
            sentences = []
            while line := stream.readline(LONGEST + 1):
                sentences.append(line.removesuffix("\n"))
                if len(line) > LONGEST:
                    raise InputError(
                        f"{key}.sentences: {reference}: line {len(sentences)} is longer than {LONGEST:,} characters; "
                        "write one sentence per line"
                    )
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{key}.sentences: {reference}: cannot be read as UTF-8 text ({error}); save it as UTF-8"
        ) from error
    if len(vectors) != len(sentences):
        raise InputError(
            f"{where}: has {len(vectors)} rows, but {reference} has {len(sentences)} lines; "
            "there must be a line for every row, in the same order"
        )
    return PrecomputedVectors(vectors, sentences, where, missing or file.with_suffix(".missing.txt"))


def _check_header(path: Path) -> None:
    """Refuse a header that claims to be long: NumPy would take memory for it.

    :raises ValueError: when it does.
    """
    with path.open("rb") as stream:
        start = stream.read(12)
    if start[6:7] > b"\x01" and int.from_bytes(start[8:12], "little") > _LONGEST_HEADER:
        raise ValueError(f"its header is longer than {_LONGEST_HEADER:,} bytes")
