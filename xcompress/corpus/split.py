"""A hold-out that shares no sentence with the training pairs, on either side."""

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
"""Ranks of sentences, which also tell them apart."""
PER_LANGUAGE = 300
_LARGEST_SHARE = 4
_NO_WORD = re.compile(r"[\W_]")


@dataclass(frozen=True)
class Sides:
    """Both sides of the N pairs of one language, as the ranks (N) of their sentences' keys."""

    source: Ranks
    target: Ranks


@dataclass(frozen=True)
class Parts:
    """Which of the N pairs of one language are trained on and which are held out, as masks (N)."""

    train: NDArray[np.bool_]
    holdout: NDArray[np.bool_]


def split(languages: Mapping[str, Sides], holdout_sentences: int) -> dict[str, Parts]:
    """Split the pairs of each language by English sentence.

    Each language first gets its share of the hold-out (300 pairs where the size allows), never more than a quarter of
    its own sentences by that rule. Sentences with translations in more languages come first, so that figures of
    different languages are measured on mostly the same sentences; among equals the rank decides, so order and number
    of files do not matter. Pairs whose translation stands in the hold-out are not trained on either.

    :param holdout_sentences: distinct English sentences to hold out; no more than a quarter of all.
    """
    chosen = _chosen({name: np.unique(sides.source) for name, sides in languages.items()}, holdout_sentences)
    held = {name: is_among(sides.source, chosen) for name, sides in languages.items()}
    seen = np.unique(np.concatenate([chosen, *(sides.target[held[name]] for name, sides in languages.items())]))
    return {
        name: Parts(~(is_among(sides.source, seen) | is_among(sides.target, seen)), held[name])
        for name, sides in languages.items()
    }


def sentence_key(text: str) -> str:
    """Return what two writings of one sentence share: NFKC, case folded, letters and digits only."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_NO_WORD.sub(_mark_or_space, folded).split())


def _mark_or_space(match: re.Match[str]) -> str:
    """Keep vowel signs and accents, which regular expressions do not count as parts of words."""
    return match[0] if unicodedata.category(match[0])[0] == "M" else " "


def rank(key: str, seed: int) -> int:
    """Return a pseudo-random rank of 64 bits that depends on nothing but the sentence's key and the seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}\t{key}".encode()).digest()[:8], "big")


def is_among(values: Ranks, known: Ranks) -> NDArray[np.bool_]:
    """Tell which values (N) stand in `known`, which is sorted."""
    if not len(known):
        return np.zeros(len(values), np.bool_)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def _chosen(sentences: Mapping[str, Ranks], holdout_sentences: int) -> Ranks:
    """Return the sorted ranks of the English sentences to hold out, given the distinct ones of each language."""
    every, spread = np.unique(np.concatenate([*sentences.values(), np.empty(0, np.uint64)]), return_counts=True)
    size = min(holdout_sentences, len(every) // _LARGEST_SHARE)
    chosen: set[int] = set()
    have: Counter[str] = Counter()
    for language, own in sorted(sentences.items(), key=lambda item: (len(item[1]), item[0])):
        wanted = min(PER_LANGUAGE, size // len(sentences), len(own) // _LARGEST_SHARE)
        for sentence in _best_first(own, spread[np.searchsorted(every, own)]):
            if have[language] >= wanted:
                break
            if sentence not in chosen:
                chosen.add(sentence)
                one = np.array([sentence], np.uint64)
                have.update(name for name, ranks in sentences.items() if is_among(one, ranks)[0])
    rest = (sentence for sentence in _best_first(every, spread) if sentence not in chosen)
    return np.array(sorted({*chosen, *islice(rest, max(size - len(chosen), 0))}), np.uint64)


def _best_first(ranks: Ranks, spread: NDArray[np.int64]) -> Iterator[int]:
    """Yield sorted ranks, those of sentences in most languages first."""
    for count in np.unique(spread)[::-1]:
        yield from (int(one) for one in ranks[spread == count])
