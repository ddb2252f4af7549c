"""Read word lists, most frequent word first: text with one word per line, or msgpack files of the wordfreq package."""

import zlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError, first_line, short_repr
from xcompress.files import megabytes
from xcompress.printable import counted
from xcompress.sources.packed import open_packed

_LARGEST = 30_000_000
"""Bytes of an unpacked .msgpack file; those of wordfreq have up to 4 MB."""
_MOST_FACTS = 100
"""Names in its header; those of wordfreq have two."""
_MOST_BINS = 10_000
"""Its lists; those of wordfreq have 800."""


def read_words(path: Path, limit: int) -> list[str]:
    """Read the `limit` most frequent words of a list.

    :param path: a UTF-8 text file with one word a line, or `*.msgpack.gz` of wordfreq: a header and then one list of
        words per frequency bin, most frequent bin first.
    :raises InputError: when the file is neither, or most lines have more than a word.
    """
    try:
        if path.name.endswith(".msgpack.gz"):
            return _read_bins(path, limit)
        lines = (line.strip() for line in text_lines(path))
        words = list(islice(filter(None, lines), limit))
        if not words:
            raise ValueError("it is empty")
        spaced = [word for word in words if len(word.split()) > 1]
        if 2 * len(spaced) > len(words):
            raise ValueError(f"most lines have more than a word, such as {short_repr(spaced[0])}")
        return words
    except (OSError, ValueError, TypeError, EOFError, zlib.error) as error:
        raise InputError(
            f"{path}: not a word list ({first_line(error)}); give text with one word per line, or .msgpack.gz"
        ) from error


def _read_bins(path: Path, limit: int) -> list[str]:
    import msgpack

    with path.open("rb") as file:
        data = open_packed(file, path).read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"over {megabytes(_LARGEST)} unpacked")
    # Lists and the header are read item by item: unpacked whole, they take up to 80 times the memory of their bytes.
    unpacker = msgpack.Unpacker(raw=False, max_array_len=0, max_map_len=0)
    unpacker.feed(data)
    try:
        bins = unpacker.read_array_header() - 1
        header = {unpacker.unpack(): unpacker.unpack() for _ in range(min(unpacker.read_map_header(), _MOST_FACTS))}
        if header.get("format") != "cB" or bins > _MOST_BINS:
            raise ValueError(f"its header is {short_repr(header)} of {counted(bins, 'list')}, expected the format 'cB'")
        words = (unpacker.unpack() for _ in range(bins) for _ in range(unpacker.read_array_header()))
        frequent = list(islice(words, limit))
    except msgpack.OutOfData as error:
        raise EOFError("it ends early") from error
    if not all(isinstance(word, str) for word in frequent):
        raise ValueError("a word is no text")
    return frequent


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
