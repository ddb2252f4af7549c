"""Read word lists, most frequent word first: text with one word per line, or msgpack files of the wordfreq package."""

import zlib
from itertools import chain, islice
from pathlib import Path

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
        return [line.rstrip("\r\n") for line in islice(text_lines(path), limit)]
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


def with_capitals(words: list[str]) -> list[str]:
    """Return the words, followed by those with a capital first letter, as at the start of a sentence."""
    return words + [capital for word in words if (capital := word[:1].upper() + word[1:]) != word]
