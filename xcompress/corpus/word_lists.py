"""Read word lists, most frequent word first: text with one word per line, or msgpack files of the wordfreq package."""

import gzip
from itertools import chain, islice
from pathlib import Path

from xcompress.errors import InputError


def read_words(path: Path, limit: int) -> list[str]:
    """Read the `limit` most frequent words of a list.

    :param path: a UTF-8 text file with one word a line, or `*.msgpack.gz` of wordfreq: a header and then one list of
        words per frequency bin, most frequent bin first.
    :raises InputError: when the file is neither.
    """
    try:
        if path.name.endswith(".msgpack.gz"):
            import msgpack

            with gzip.open(path, "rb") as stream:
                header, *frequency_bins = msgpack.load(stream, raw=False)
            if header.get("format") != "cB":
                raise ValueError(f"format is {header.get('format')!r}, expected 'cB'")
            return list(islice(chain.from_iterable(frequency_bins), limit))
        return path.read_text(encoding="utf-8").split("\n")[:limit]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"{path}: not a word list ({error}); give text with one word per line, or .msgpack.gz"
        ) from error


def with_capitals(words: list[str]) -> list[str]:
    """Return the words, followed by those with a capital first letter, as at the start of a sentence."""
    return words + [capital for word in words if (capital := word[:1].upper() + word[1:]) != word]
