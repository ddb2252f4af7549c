"""Clean raw pairs chunk by chunk: parse their lines, filter them and hash their sentences.

No chunk needs another one: they can be cleaned in several processes.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.filters import Limits, clean, same_key
from xcompress.corpus.pairs import BadLine, Pair, as_line, parse_lines
from xcompress.corpus.split import rank, sentence_key

NUMBERS = np.dtype([("key", "<u8"), ("source", "<u8"), ("target", "<u8"), ("order", "<u8"), ("origin", "<u4")])
"""What is known of a pair.

`key` has 64 bits of the English sentence and the language; pairs that share it are duplicates. `source` and `target`
are the ranks of its sentences, `order` is its place among the pairs of all languages, `origin` numbers its origin.
"""
_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Consecutive pairs of the sources: lines of a file, or pairs that were read from something else."""

    pairs: Sequence[Pair] = ()
    lines: Sequence[bytes] = ()
    first: int = 1
    """Number of the first line."""
    language: str = ""
    origin: str = ""
    file: int | None = None
    """Number of the file that the lines are from."""
    is_last: bool = False
    """Whether the file has no more lines."""
    broken_off: str = ""
    """Where and how the file is damaged, in its last chunk."""


@dataclass(slots=True)
class CleanChunk:
    """The pairs of a chunk that passed the filters, and counts of what was read and dropped."""

    file: int | None
    is_last: bool
    broken_off: str
    good: int
    """Lines that are pairs."""
    bad: Sequence[BadLine]
    read: Counter[str] = field(default_factory=Counter)
    """Pairs by language."""
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Reasons by language."""
    origins: list[str] = field(default_factory=list)
    """In the order of the first pair of each."""
    count: int = 0
    lines: dict[str, bytes] = field(default_factory=dict)
    """Results of `as_line`, by language."""
    numbers: dict[str, NDArray[np.void]] = field(default_factory=dict)
    """`NUMBERS` of each pair, by language: `order` counts the pairs of the chunk, and `origin` those of `origins`."""


class Cleaner:
    """Cleans chunks."""

    def __init__(self, limits: Limits, seed: int) -> None:
        self.limits = limits
        self.seed = seed
        self._clean = lru_cache(_REMEMBERED)(self._clean_pair)  # a file may repeat a line often

    def __call__(self, chunk: RawChunk) -> CleanChunk:
        """Return the pairs of a chunk that pass the filters, in their order."""
        pairs: Sequence[Pair] = chunk.pairs
        bad: Sequence[BadLine] = ()
        if chunk.lines:
            pairs, bad = parse_lines(chunk.lines, chunk.first, chunk.language, chunk.origin)
        result = CleanChunk(chunk.file, chunk.is_last, chunk.broken_off, len(pairs), bad)
        lines: dict[str, list[bytes]] = defaultdict(list)
        numbers: dict[str, list[tuple[int, ...]]] = defaultdict(list)
        number_of = dict[str, int]()
        for pair in pairs:
            result.read[pair.language] += 1
            cleaned = self._clean(pair)
            if isinstance(cleaned, str):
                result.dropped[pair.language][cleaned] += 1
                continue
            line, *hashes = cleaned
            origin = number_of.setdefault(pair.origin, len(number_of))
            lines[pair.language].append(line)
            numbers[pair.language].append((*hashes, result.count, origin))
            result.count += 1
        result.origins = list(number_of)
        result.lines = {language: b"".join(of_language) for language, of_language in lines.items()}
        result.numbers = {language: np.array(of_language, NUMBERS) for language, of_language in numbers.items()}
        return result

    def _clean_pair(self, pair: Pair) -> tuple[bytes, int, int, int] | str:
        """Return a normalised pair as a line, with its key and the ranks of its sides, or why it is dropped."""
        plain = clean(pair, self.limits)
        if isinstance(plain, str):
            return plain
        duplicate_key = f"{plain.language}\t{same_key(plain.source)}"
        key = int.from_bytes(hashlib.blake2b(duplicate_key.encode(), digest_size=8).digest(), "big")
        source, target = (rank(sentence_key(side), self.seed) for side in (plain.source, plain.target))
        return as_line(plain), key, source, target
