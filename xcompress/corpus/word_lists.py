"""Read word lists, most frequent word first: text with one word per line, or msgpack files of the wordfreq package."""

import zlib
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError, first_line, short_repr
from xcompress.files import megabytes
from xcompress.sources.packed import open_packed

_LARGEST = 30_000_000
"""Bytes of an unpacked .msgpack file; those of wordfreq have up to 4 MB."""


def read_words(path: Path, limit: int) -> list[str]:
    """Read the `limit` most frequent words of a list.

    :param path: a UTF-8 text file with one word a line, or `*.msgpack.gz` of wordfreq: a header and then one list of
        words per frequency bin, most frequent bin first.
    :raises InputError: when the file is neither.
    """
    try:
        if path.name.endswith(".msgpack.gz"):
            return _read_bins(path, limit)
        lines = (line.strip() for line in text_lines(path))
        words = list(islice(filter(None, lines), limit))
        if not words:
            raise ValueError("it is empty")
        return words
    except (InputError, OSError, ValueError, TypeError, EOFError, zlib.error) as error:
        problem = first_line(error).removeprefix(str(path)).lstrip(": ")
        raise InputError(
            f"{path}: not a word list ({problem}); give text with one word per line, or .msgpack.gz"
        ) from error


def _read_bins(path: Path, limit: int) -> list[str]:
    import msgpack

    with path.open("rb") as file:
        data = open_packed(file, path).read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"over {megabytes(_LARGEST)} unpacked")
    header, *frequency_bins = msgpack.unpackb(data, raw=False)
    if not isinstance(header, dict) or header.get("format") != "cB":
        raise ValueError(f"its header is {short_repr(header)}, expected the format 'cB'")
    words = list(islice(chain.from_iterable(frequency_bins), limit))
    if not all(isinstance(word, str) for word in words):
        raise ValueError("a word is no text")
    return words


def word_sequences(words: Sequence[str], count: int, generator: np.random.Generator) -> list[str]:
    """Return random sequences of 2 to 8 words.

    The word of rank k, from 1, is drawn with a probability proportional to (k + 2)^-0.75: frequent words are drawn more
    often, but less so than in text.

    :param words: most frequent word first.
    """
    weights = (np.arange(len(words)) + 3.0) ** -0.75
    lengths = generator.integers(2, 9, size=count)
    drawn = generator.choice(len(words), size=int(lengths.sum()), p=weights / weights.sum()).tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(words[row] for row in drawn[end - size : end]) for end, size in zip(ends, lengths, strict=True)]


def with_capitals(words: list[str]) -> list[str]:
    """Return the words, followed by those with a capital first letter, as at the start of a sentence."""
    return words + [capital for word in words if (capital := word[:1].upper() + word[1:]) != word]
