"""Split pairs into training and hold-out, which share no sentence on either side."""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.columns import ColumnFile, part_bits, partition
from xcompress.corpus.normalise import INVISIBLE

Ranks = NDArray[np.uint64]
"""Pseudo-random 64-bit ranks of sentences, which also identify them."""
IN_TRAIN, IN_HOLDOUT = 1, 2
"""Parts of pairs; 0 for those that are left out."""
PER_LANGUAGE = 300
"""Held-out sentences that each language gets, where the size allows."""
_LARGEST_SHARE = 4
"""At most 1 / this of the sentences is held out."""
_SIGN = re.compile(r"[^\w\s]|_")


@dataclass(frozen=True)
class HoldOut:
    """The sentences that are not trained on."""

    chosen: Ranks
    """English sentences that are held out, sorted."""
    seen: Ranks
    """These and their translations, sorted."""

    def parts(self, sources: Ranks, targets: Ranks) -> NDArray[np.uint8]:
        """Return the part of each of N pairs, (N,): `IN_TRAIN`, `IN_HOLDOUT`, or 0 for neither.

        A pair is neither where it shares a sentence with the hold-out, but its own English sentence is not held out.
        """
        train = ~(is_among(sources, self.seen) | is_among(targets, self.seen))
        parts: NDArray[np.uint8] = np.select([train, is_among(sources, self.chosen)], [IN_TRAIN, IN_HOLDOUT])
        return parts.astype(np.uint8)


def split(languages: Mapping[str, ColumnFile], holdout_sentences: int, scratch: Path) -> HoldOut:
    """Split the pairs of each language by English sentence.

    Each language first gets `PER_LANGUAGE` sentences, or its share of a smaller hold-out, but no more than a quarter of
    its own. Sentences with translations in more languages are held out first, so that scores of different languages
    are measured on mostly the same sentences; the rank decides among equals, so the order and number of files do not
    matter. Pairs whose translation is in the hold-out are not trained on either.

    :param languages: files with the ranks of the sentences of each pair, `source` and `target`.
    :param holdout_sentences: distinct English sentences to hold out; no more than a quarter of all.
    :param scratch: a folder for temporary files.
    """
    chosen = _choose(_candidates(languages, holdout_sentences + PER_LANGUAGE + 1, scratch), holdout_sentences)
    translations = [
        block["target"][is_among(block["source"], chosen)] for file in languages.values() for block in file.blocks()
    ]
    return HoldOut(chosen, np.unique(np.concatenate([chosen, *translations])))


def sentence_key(text: str) -> str:
    """Return a key of a sentence.

    Sentences share it if they differ only in case, punctuation, spaces, invisible characters or compatibility form.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", INVISIBLE.sub("", text)).casefold())
    # vowel signs and accents (category M) stay, which regular expressions do not count as parts of words
    return " ".join(
        _SIGN.sub(lambda match: match[0] if unicodedata.category(match[0])[0] == "M" else " ", folded).split()
    )


def rank(key: str, seed: int) -> int:
    """Return a pseudo-random rank of 64 bits, made of nothing but the key of a sentence and the seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}\t{key}".encode()).digest()[:8], "big")


def is_among(values: Ranks, known: Ranks) -> NDArray[np.bool_]:
    """Return a mask (N,) of the values (N,) that are in `known`, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    mask: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return mask


@dataclass(frozen=True)
class _Candidates:
    """Sentences that may be held out: for each language, and of all, the first ones in the order of `_best_first`."""

    ranks: Ranks
    """Sorted, (M,)."""
    is_in: NDArray[np.bool_]
    """The languages that each is translated to, (M, languages)."""
    languages: Sequence[str]
    sentences: Mapping[str, int]
    """Distinct English sentences of each language."""
    all_sentences: int

    @property
    def spread(self) -> NDArray[np.int16]:
        """The number of languages of each, (M,)."""
        spread: NDArray[np.int16] = self.is_in.sum(axis=1, dtype=np.int16)
        return spread

    def best(self, count: int) -> "_Candidates":
        """Keep the first `count` of each language and of all."""
        order = np.argsort(-self.spread, kind="stable")
        kept = np.zeros(len(order), np.bool_)
        kept[order[:count]] = True
        for column in self.is_in.T:
            kept[order[column[order]][:count]] = True
        return replace(self, ranks=self.ranks[kept], is_in=self.is_in[kept])


def _candidates(languages: Mapping[str, ColumnFile], count: int, scratch: Path) -> _Candidates:
    """Find the first `count` sentences of each language and of all, part by part."""
    bits = part_bits(sum(map(len, languages.values())))
    parts = [
        partition(partial(file.column, "source"), bits, scratch / f"{name}.parts") for name, file in languages.items()
    ]
    sizes, size = dict.fromkeys(languages, 0), 0
    best = _Candidates(np.empty(0, np.uint64), np.empty((0, len(languages)), np.bool_), [*languages], sizes, size)
    for part in zip(*parts, strict=True):
        distinct = [np.unique(ranks) for ranks, _ in part]
        ranks, rows = np.unique(np.concatenate(distinct), return_inverse=True)
        is_in = np.zeros((len(ranks), len(languages)), np.bool_)
        is_in[rows, np.repeat(np.arange(len(languages)), [len(of_language) for of_language in distinct])] = True
        size += len(ranks)
        sizes = {name: sizes[name] + len(own) for name, own in zip(languages, distinct, strict=True)}
        of_part = _Candidates(ranks, is_in, [*languages], sizes, size).best(count)
        best = replace(
            of_part, ranks=np.append(best.ranks, of_part.ranks), is_in=np.append(best.is_in, of_part.is_in, axis=0)
        ).best(count)
    return best


def _choose(candidates: _Candidates, holdout_sentences: int) -> Ranks:
    """Return the sorted ranks of the English sentences to hold out."""
    size = min(holdout_sentences, candidates.all_sentences // _LARGEST_SHARE)
    chosen: set[int] = set()
    have = np.zeros(len(candidates.languages), np.int64)
    for language, count in sorted(candidates.sentences.items(), key=lambda item: (item[1], item[0])):
        number = candidates.languages.index(language)
        wanted = min(PER_LANGUAGE, size // len(candidates.languages), count // _LARGEST_SHARE)
        for row in _best_first(np.flatnonzero(candidates.is_in[:, number]), candidates.spread):
            if have[number] >= wanted:
                break
            if row not in chosen:
                chosen.add(row)
                have += candidates.is_in[row]
    rest = (row for row in _best_first(np.arange(len(candidates.ranks)), candidates.spread) if row not in chosen)
    rows = sorted({*chosen, *islice(rest, max(size - len(chosen), 0))})
    return candidates.ranks[np.array(rows, np.int64)]


def _best_first(rows: NDArray[np.int64], spread: NDArray[np.int16]) -> Iterator[int]:
    """Yield rows of sentences in the order of their ranks, those with translations in most languages first."""
    for count in np.unique(spread)[::-1]:
        yield from rows[spread[rows] == count].tolist()
