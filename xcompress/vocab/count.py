"""How often each piece stands in the words of a language, or in a file of text, and what was held out of the count."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.console import Ticker, bar, tracked
from xcompress.corpus.lines import LONGEST, BrokenOffError, read_lines
from xcompress.corpus.word_lists import read_words, with_capitals
from xcompress.errors import InputError
from xcompress.sources import resolve
from xcompress.vocab.student import CHUNK, piece_rows

WORD_LISTS = "wheel:wordfreq==3.1.1/wordfreq/data"
ALWAYS_COUNTED = 10_000
"""So many of a language's most frequent words are never held out."""
HELD_OUT = 20
"""Every how many-th line of a text, or rarer word of a language, is not counted."""
HELD_OUT_AT_MOST = 10_000
_PLACES = 3
_ALL = 10_000_000
_LIST = re.compile(r"small_(?P<language>[a-z]{2,3})\.msgpack\.gz")


@dataclass(frozen=True)
class Counted:
    """What one language or file says about the pieces of a vocabulary."""

    name: str
    """The language's code, or the file's name."""
    seen: NDArray[np.int64]
    """In how many words of a list, or how often in a file, each piece stands, (V,)."""
    shares: NDArray[np.float64]
    """How much of running text each piece makes up, (V,); they sum to 1."""
    held_out: tuple[str, ...]
    """Texts that were not counted."""
    characters: frozenset[str] = frozenset()
    """Of all that was counted, where it is at hand; pieces that spell unknown words leave no trace of theirs."""
    of_words: bool = False
    """Whether these are words alone, which say nothing about punctuation and numbers."""


def check_languages(languages: Sequence[str]) -> None:
    """Refuse languages without a list of frequent words; the lists are fetched when they are not here.

    :raises InputError: when there is no list for one of them.
    """
    known = sorted(match["language"] for path in resolve(WORD_LISTS).iterdir() if (match := _LIST.fullmatch(path.name)))
    unknown = [language for language in languages if language not in known]
    if unknown:
        raise InputError(
            f"languages: there is no list of frequent words for {', '.join(unknown)}, only for {' '.join(known)}; "
            "give text of it with --text"
        )


def count_words(tokenizer: Tokenizer, language: str) -> Counted:
    """Count the pieces of a language's most frequent words; every 20th of the rarer ones is held out.

    Word n makes up a share of text in proportion to 1/n (Zipf's law). Each word is read in three places, since many
    tokenizers write it differently at the start of a text, behind a space, and behind a bracket or a quotation mark.

    :param language: ISO 639-1; each word is also counted with a capital first letter.
    :raises InputError: when there is no list for the language.
    """
    check_languages([language])
    words = read_words(resolve(WORD_LISTS) / f"small_{language}.msgpack.gz", _ALL)
    held_out = words[ALWAYS_COUNTED + HELD_OUT - 1 :: HELD_OUT]
    apart = set(held_out)
    ranked = [
        (form, 1 / rank) for rank, word in enumerate(words, 1) if word not in apart for form in with_capitals([word])
    ]
    texts, weights = [_in_places(form) for form, _ in ranked], np.array([weight for _, weight in ranked])
    total = _Total(tokenizer)
    for start in tracked(range(0, len(texts), CHUNK), f"{language}: pieces of frequent words"):
        total.add(texts[start : start + CHUNK], weights[start : start + CHUNK])
    characters = frozenset(character for form, _ in ranked for character in form)
    return Counted(language, -(-total.seen // _PLACES), total.shares(), tuple(held_out), characters, of_words=True)


def _in_places(word: str) -> str:
    return f"{word} {word} ({word}"


def count_file(tokenizer: Tokenizer, path: Path) -> Counted:
    """Count the pieces of a file of text, and hold out every 20th line; a line may have columns, set apart by tabs.

    :param path: UTF-8, plain or compressed by suffix (.gz, .xz).
    :raises InputError: when the file cannot be read as text, or holds none.
    """
    total, held_out = _Total(tokenizer), list[str]()
    with bar(f"{path.name}: bytes read", _size(path)) as ticker:
        for chunk in _chunks(_lines(path, ticker)):
            kept_out = chunk[HELD_OUT - 1 :: HELD_OUT][: HELD_OUT_AT_MOST - len(held_out)]
            held_out += kept_out
            counted = list(chunk)
            del counted[HELD_OUT - 1 : HELD_OUT * len(kept_out) : HELD_OUT]
            texts = [column for line in counted for column in line.split("\t")]
            total.add(texts, np.ones(len(texts)))
    if not total.seen.any():
        raise InputError(f"{path}: holds no text; give a file with a sentence a line")
    columns = tuple(column for line in held_out for column in line.split("\t"))
    return Counted(path.name, total.seen, total.shares(), columns)


class _Total:
    """Adds up the pieces of texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._rows = piece_rows(tokenizer)
        self.seen = np.zeros(self._rows, dtype=np.int64)
        self._weighted = np.zeros(self._rows)

    def add(self, texts: Sequence[str], weights: NDArray[np.float64]) -> None:
        """Count the pieces of texts; one of a text weighs as much as the text."""
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]
        ids = np.array([number for one in encoded for number in one], dtype=np.int64)
        spread = np.repeat(weights, [len(one) for one in encoded])
        self.seen += np.bincount(ids, minlength=self._rows)
        self._weighted += np.bincount(ids, weights=spread, minlength=self._rows)

    def shares(self) -> NDArray[np.float64]:
        """Return the weighted counts, scaled to a sum of 1."""
        whole: NDArray[np.float64] = self._weighted / max(float(self._weighted.sum()), np.finfo(float).tiny)
        return whole


def _lines(path: Path, ticker: Ticker) -> Iterator[str]:
    try:
        for number, line in enumerate(read_lines(path, ticker.advance), 1):
            text = _decoded(line, path, number).lstrip("\ufeff").rstrip("\r\n")
            if text.strip():
                yield text
    except BrokenOffError as error:
        raise InputError(f"{path}: {error}; copy the file again") from error


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode("utf-8", errors="ignore" if len(line) > LONGEST else "strict")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: line {number} is not UTF-8 ({error.reason}); convert the file to UTF-8") from error


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); correct the path") from error
