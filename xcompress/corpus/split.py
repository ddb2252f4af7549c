"""Split pairs into training and hold-out, which share no sentence on either side."""

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Ranks = NDArray[np.uint64]
"""Pseudo-random 64-bit ranks of sentences, which also identify them."""
PER_LANGUAGE = 300
"""Held-out sentences that each language gets, where the size allows."""
_LARGEST_SHARE = 4
"""At most 1 / this of the sentences is held out."""
_NO_WORD = re.compile(r"[\W_]")


@dataclass(frozen=True)
class Sides:
    """The N pairs of one language, as the ranks (N,) of the sentences of either side."""

    source: Ranks
    target: Ranks


@dataclass(frozen=True)
class Parts:
    """Masks (N,) of the training and the held-out pairs among the N pairs of one language."""

    train: NDArray[np.bool_]
    holdout: NDArray[np.bool_]


def split(languages: Mapping[str, Sides], holdout_sentences: int) -> dict[str, Parts]:
    """Split the pairs of each language by English sentence.

    Each language first gets `PER_LANGUAGE` sentences, or its share of a smaller hold-out, but no more than a quarter of
    its own. Sentences with translations in more languages are held out first, so that scores of different languages
    are measured on mostly the same sentences; the rank decides among equals, so the order and number of files do not
    matter. Pairs whose translation is in the hold-out are not trained on either.

    :param holdout_sentences: distinct English sentences to hold out; no more than a quarter of all.
    """
    chosen = _choose({name: np.unique(sides.source) for name, sides in languages.items()}, holdout_sentences)
    held = {name: is_among(sides.source, chosen) for name, sides in languages.items()}
    seen = np.unique(np.concatenate([chosen, *(sides.target[held[name]] for name, sides in languages.items())]))
    return {
        name: Parts(~(is_among(sides.source, seen) | is_among(sides.target, seen)), held[name])
        for name, sides in languages.items()
    }


def sentence_key(text: str) -> str:
    """Return a key that sentences share if they differ only in case, punctuation, spaces or compatibility form."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # vowel signs and accents (category M) stay, which regular expressions do not count as parts of words
    return " ".join(
        _NO_WORD.sub(lambda match: match[0] if unicodedata.category(match[0])[0] == "M" else " ", folded).split()
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


def _choose(sentences: Mapping[str, Ranks], holdout_sentences: int) -> Ranks:
    """Return the sorted ranks of the English sentences to hold out, given the distinct ones of each language."""
    every, spread = np.unique(np.concatenate([*sentences.values(), np.empty(0, np.uint64)]), return_counts=True)
    size = min(holdout_sentences, len(every) // _LARGEST_SHARE)
    chosen: set[int] = set()
    have: Counter[str] = Counter()
    for language, of_language in sorted(sentences.items(), key=lambda item: (len(item[1]), item[0])):
        wanted = min(PER_LANGUAGE, size // len(sentences), len(of_language) // _LARGEST_SHARE)
        for sentence in _best_first(of_language, spread[np.searchsorted(every, of_language)]):
            if have[language] >= wanted:
                break
            if sentence not in chosen:
                chosen.add(sentence)
                rank_array = np.array([sentence], np.uint64)
                have.update(name for name, ranks in sentences.items() if is_among(rank_array, ranks)[0])
    rest = (sentence for sentence in _best_first(every, spread) if sentence not in chosen)
    return np.array(sorted({*chosen, *islice(rest, max(size - len(chosen), 0))}), np.uint64)


def _best_first(ranks: Ranks, spread: NDArray[np.int64]) -> Iterator[int]:
    """Yield ranks, those of sentences with translations in most languages first."""
    for count in np.unique(spread)[::-1]:
        yield from map(int, ranks[spread == count])
