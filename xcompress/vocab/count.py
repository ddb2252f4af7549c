"""Count the tokens of a language's frequent words or of a text file, and hold some text out of the count."""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.console import bar, tracked, warn
from xcompress.corpus.lines import LONGEST, BrokenOffError, check_first_line, read_lines
from xcompress.corpus.word_lists import read_words, with_capitals
from xcompress.errors import InputError
from xcompress.printable import counted
from xcompress.sources import resolve
from xcompress.tokenizer_file import id_range, tokenizer_to_json
from xcompress.vocab.student import CHUNK, CHUNK_CHARACTERS, encode_ids, split_chunks
from xcompress.vocab.tokenizer_json import check_trimmable

WORD_LISTS = "wheel:wordfreq==3.1.1/wordfreq/data"
LANGUAGES = (
    "ar bg bn ca cs da de el en es fa fi fil fr he hi hu id is it ja ko lt lv mk ms nb nl pl pt ro ru sh sk sl sv ta "
    "tr uk ur vi zh"
)
"""The languages that have a list there. Written down, as the lists take a download of 57 MB."""
ALWAYS_COUNTED = 10_000
"""This many of a language's most frequent words are never held out."""
HELD_OUT = 20
"""Every n-th line of a text, or rarer word of a language, is held out."""
HELD_OUT_AT_MOST = 10_000
_ALL_WORDS = 10_000_000


@dataclass(frozen=True)
class TokenCounts:
    """The token counts of a language or a text file."""

    name: str
    """Language code or file name."""
    seen: NDArray[np.int64]
    """Number of words, or occurrences in a file, of each token, (V,)."""
    shares: NDArray[np.float64]
    """Share of each token in running text, (V,); they sum to 1."""
    held_out: tuple[str, ...]
    """Texts that were not counted."""
    characters: frozenset[str] = frozenset()
    """All characters of counted words, as unknown tokens do not show theirs; empty for a file."""
    words_only: bool = False
    """Whether words alone were counted, without punctuation and numbers."""


def check_languages(languages: Sequence[str]) -> None:
    """Check that there are lists of frequent words for languages; nothing is fetched.

    :raises InputError: when a language has no list.
    """
    if unknown := [language for language in languages if language not in LANGUAGES.split()]:
        raise InputError(
            f"languages: no word frequencies for {', '.join(map(repr, unknown))}, only for {LANGUAGES}; write these "
            "with commas between, and give text in others with --text"
        )


def count_words_and_files(tokenizer: Tokenizer, languages: Sequence[str], files: Sequence[Path]) -> list[TokenCounts]:
    """Count the tokens of languages' frequent words and of text files.

    :raises InputError: when a language has no word list, a file cannot be read, or the tokenizer cannot be trimmed.
    """
    check_trimmable(tokenizer_to_json(tokenizer))  # before the word lists are fetched
    of_languages = [count_words(tokenizer, language) for language in languages]
    return of_languages + [count_file(tokenizer, path) for path in files]


def count_words(tokenizer: Tokenizer, language: str) -> TokenCounts:
    """Count the tokens of a language's most frequent words; every 20th of the rarer ones is held out.

    The share of word n in text is proportional to 1/n (Zipf's law). Each word is tokenized in three contexts, as many
    tokenizers have other tokens at the start of a text, behind a space, and behind a bracket or a quotation mark.

    :param language: ISO 639-1; each word is also counted with a capital first letter.
    :raises InputError: when the language has no list of words.
    """
    check_languages([language])
    words = read_words(resolve(WORD_LISTS) / f"small_{language}.msgpack.gz", _ALL_WORDS)
    held_out = words[ALWAYS_COUNTED + HELD_OUT - 1 :: HELD_OUT]
    excluded = set(held_out)
    ranked = [
        (form, 1 / rank) for rank, word in enumerate(words, 1) if word not in excluded for form in with_capitals([word])
    ]
    texts = [f"{word} {word} ({word}" for word, _ in ranked]
    weights = np.array([weight for _, weight in ranked])
    starts = tracked(range(0, len(texts), CHUNK), f"{language}: tokens of frequent words")
    chunks = ((texts[start : start + CHUNK], weights[start : start + CHUNK]) for start in starts)
    seen, shares = _sum_up(tokenizer, chunks)
    characters = frozenset(character for word, _ in ranked for character in word)
    occurrences = -(-seen // 3)  # each word stands three times in its text
    return TokenCounts(language, occurrences, shares, tuple(held_out), characters, words_only=True)


class FileCounter:
    """Counts the tokens of a text file from its lines, and holds out every 20th; a line may have columns, by tabs.

    :raises InputError: when the tokenizer cannot be trimmed, before any text is read.
    """

    def __init__(self, tokenizer: Tokenizer, path: Path) -> None:
        check_trimmable(tokenizer_to_json(tokenizer))
        self._tokenizer, self._path = tokenizer, path
        self._seen = np.zeros(id_range(tokenizer), np.int64)
        self._texts, self._held_out = list[str](), list[str]()
        self._lines = self._characters = 0

    def add(self, line: bytes) -> bool:
        """Count a line, as `read_lines` yields it: of a long one the start. Return whether it is text in UTF-8."""
        try:
            text, _ = codecs.utf_8_decode(line, "strict", len(line) <= LONGEST)  # a cut line may end in a character
        except UnicodeDecodeError:
            return False
        if "\0" in text:  # as in UTF-16
            return False
        if text.strip():
            self._lines += 1
            columns = text.rstrip("\r\n").removeprefix("\ufeff").split("\t")
            if self._lines % HELD_OUT or self._lines > HELD_OUT * HELD_OUT_AT_MOST:
                self._texts += columns
                self._characters += len(text)
            else:
                self._held_out += columns
        if len(self._texts) >= CHUNK or self._characters >= CHUNK_CHARACTERS:
            self._tokenize()
        return True

    def _tokenize(self) -> None:
        for texts in split_chunks(self._texts):
            ids, _ = encode_ids(self._tokenizer, texts)
            self._seen += np.bincount(ids, minlength=len(self._seen))
        self._texts, self._characters = [], 0

    def counts(self) -> TokenCounts:
        """Return the counts of all lines.

        :raises InputError: when there is no text.
        """
        self._tokenize()
        if not self._seen.any():
            raise InputError(f"{self._path}: contains no text; give a file with one sentence per line, in UTF-8")
        return TokenCounts(self._path.name, self._seen, self._seen / self._seen.sum(), tuple(self._held_out))


def count_file(tokenizer: Tokenizer, path: Path) -> TokenCounts:
    """Count the tokens of a text file, see `FileCounter`.

    Warns of lines that are not UTF-8, and of a compressed file that is damaged; the other lines are counted.

    :param path: UTF-8, plain or compressed by suffix (.gz, .xz).
    :raises InputError: when the file cannot be read, or has no text.
    """
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); correct the path") from error
    counter, bad = FileCounter(tokenizer, path), 0
    with bar(f"{path.name}: bytes read", size) as ticker:
        try:
            for number, line in enumerate(read_lines(path, ticker.advance), 1):
                if number == 1:
                    check_first_line(str(path), line)
                bad += not counter.add(line)
        except BrokenOffError as error:
            warn(f"{path}: {error}; the lines before are used")
    if bad:
        warn(f"{path}: {counted(bad, 'line')} not in UTF-8 left out")
    return counter.counts()


def _sum_up(
    tokenizer: Tokenizer, chunks: Iterable[tuple[Sequence[str], NDArray[np.float64]]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Count the tokens of texts.

    :param chunks: texts with a weight for each.
    :returns: occurrences of each token, (V,); and its share where each has the weight of its text, (V,).
    """
    rows = id_range(tokenizer)
    seen, weighted = np.zeros(rows, np.int64), np.zeros(rows)
    for texts, weights in chunks:
        ids, lengths = encode_ids(tokenizer, texts)
        seen += np.bincount(ids, minlength=rows)
        weighted += np.bincount(ids, weights=np.repeat(weights, lengths), minlength=rows)
    return seen, weighted / max(float(weighted.sum()), np.finfo(float).tiny)
