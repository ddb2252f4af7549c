"""Pairs from their sources to lines on disk: filtered, normalised, one translation a sentence; a batch in memory."""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np

from xcompress.corpus.filters import Limits, clean, same_key
from xcompress.corpus.pairs import Pair, as_line
from xcompress.corpus.split import Ranks, Sides, is_among, rank, sentence_key

BATCH = 16_384
DUPLICATE = "duplicate"
_REMEMBERED = 8192


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A pair worth learning from, and what its sentences are known by."""

    pair: Pair
    key: int
    """64 bits of the English sentence and the language; pairs that share it are duplicates."""
    source: int
    target: int


@dataclass
class Lines:
    """The pairs of one language as lines of a file; what is kept of each in memory are 20 bytes."""

    path: Path
    source: "array[int]" = field(default_factory=lambda: array("Q"))
    target: "array[int]" = field(default_factory=lambda: array("Q"))
    origin: "array[int]" = field(default_factory=lambda: array("I"))
    """Places in `Gathered.origins`."""

    @property
    def sides(self) -> Sides:
        """The ranks of both sides."""
        return Sides(np.frombuffer(self.source, np.uint64), np.frombuffer(self.target, np.uint64))


@dataclass
class Gathered:
    """All pairs worth learning from, by language, and what was read and dropped to get them."""

    folder: Path
    languages: dict[str, Lines] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def drop(self, language: str, reason: str, count: int = 1) -> None:
        """Count pairs that are dropped."""
        if count:
            self.dropped[language][reason] += count

    def append(self, batch: Sequence[Cleaned]) -> None:
        """Write pairs at the end of their languages' files."""
        texts: dict[str, list[bytes]] = defaultdict(list)
        for one in batch:
            language = one.pair.language
            lines = self.languages.setdefault(language, Lines(self.folder / language))
            lines.source.append(one.source)
            lines.target.append(one.target)
            lines.origin.append(self.origins.setdefault(one.pair.origin, len(self.origins)))
            texts[language].append(as_line(one.pair))
        for language, own in texts.items():
            with self.languages[language].path.open("ab") as stream:
                stream.writelines(own)


def gather(pairs: Iterable[Pair], folder: Path, limits: Limits, seed: int) -> Gathered:
    """Write the pairs worth learning from to a file per language, in their order.

    Of the translations of an English sentence into a language the first stays; case and compatibility forms do not
    make another sentence.
    """
    gathered = Gathered(folder)
    known = np.empty(0, np.uint64)
    cleaned = _cleaned(pairs, limits, seed, gathered)
    while batch := list(islice(cleaned, BATCH)):
        keys, first = np.unique(np.array([one.key for one in batch], np.uint64), return_index=True)
        new = ~is_among(keys, known)
        known = _merged(known, keys[new])
        fresh = set(first[new].tolist())
        for row, one in enumerate(batch):
            gathered.drop(one.pair.language, DUPLICATE, row not in fresh)
        gathered.append([one for row, one in enumerate(batch) if row in fresh])
    return gathered


def _cleaned(pairs: Iterable[Pair], limits: Limits, seed: int, gathered: Gathered) -> Iterator[Cleaned]:
    remembered = lru_cache(_REMEMBERED)(lambda pair: _cleaned_one(pair, limits, seed))  # a line may stand there often
    for pair in pairs:
        gathered.read[pair.language] += 1
        found = remembered(pair)
        if isinstance(found, str):
            gathered.drop(pair.language, found)
        else:
            yield found


def _cleaned_one(pair: Pair, limits: Limits, seed: int) -> Cleaned | str:
    plain = clean(pair, limits)
    if isinstance(plain, str):
        return plain
    source, target = (rank(sentence_key(side), seed) for side in (plain.source, plain.target))
    return Cleaned(plain, _key(plain), source, target)


def _key(pair: Pair) -> int:
    text = f"{pair.language}\t{same_key(pair.source)}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _merged(known: Ranks, more: Ranks) -> Ranks:
    merged = np.concatenate([known, more])
    merged.sort(kind="stable")  # quick on two sorted runs
    return merged
