"""A hold-out that shares no sentence with the training pairs, on either side."""

import hashlib
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence

from xcompress.corpus.pairs import Pair

PER_LANGUAGE = 300
_LARGEST_SHARE = 4
_NO_WORD = re.compile(r"[\W_]")


def split(pairs: Sequence[Pair], holdout_sentences: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split into training and hold-out pairs by English sentence.

    Each language first gets its share of the hold-out (300 pairs where the size allows), never more than a quarter of
    its own sentences by that rule. Sentences with translations in more languages come first, so that figures of
    different languages are measured on mostly the same sentences; among equals a hash with the seed decides, so order
    and number of files do not matter. Training pairs whose translation stands in the hold-out are dropped too.

    :param holdout_sentences: distinct English sentences to hold out; no more than a quarter of all.
    """
    keyed = [(pair, sentence_key(pair.source), sentence_key(pair.target)) for pair in pairs]
    languages: dict[str, set[str]] = defaultdict(set)
    for pair, source, _ in keyed:
        languages[source].add(pair.language)
    ranked = sorted(languages, key=lambda key: (-len(languages[key]), rank(key, seed)))
    chosen = _chosen(ranked, languages, min(holdout_sentences, len(ranked) // _LARGEST_SHARE))
    seen = chosen | {target for _, source, target in keyed if source in chosen}
    holdout = [pair for pair, source, _ in keyed if source in chosen]
    train = [pair for pair, source, target in keyed if source not in seen and target not in seen]
    return train, holdout


def sentence_key(text: str) -> str:
    """Return what two writings of one sentence share: NFKC, case folded, letters and digits only."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(_NO_WORD.sub(_mark_or_space, folded).split())


def _mark_or_space(match: re.Match[str]) -> str:
    """Keep vowel signs and accents, which regular expressions do not count as parts of words."""
    return match[0] if unicodedata.category(match[0])[0] == "M" else " "


def rank(key: str, seed: int) -> str:
    """Return a pseudo-random rank of a sentence that depends on nothing but the sentence and the seed."""
    return hashlib.sha256(f"{seed}\t{key}".encode()).hexdigest()


def _chosen(ranked: Sequence[str], languages: dict[str, set[str]], size: int) -> set[str]:
    totals = Counter(language for key in ranked for language in languages[key])
    chosen: set[str] = set()
    have: Counter[str] = Counter()
    for language in sorted(totals, key=lambda name: (totals[name], name)):
        wanted = min(PER_LANGUAGE, size // len(totals), totals[language] // _LARGEST_SHARE)
        for key in ranked:
            if have[language] >= wanted:
                break
            if key not in chosen and language in languages[key]:
                chosen.add(key)
                have.update(languages[key])
    rest = (key for key in ranked if key not in chosen)
    return chosen | {key for key, _ in zip(rest, range(size - len(chosen)), strict=False)}
