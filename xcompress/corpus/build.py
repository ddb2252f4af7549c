"""The corpus of a recipe: gathered, filtered, free of duplicates, split and capped."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xcompress import files
from xcompress.console import tracked
from xcompress.corpus.catalogues import read_catalogues
from xcompress.corpus.filters import Limits, why_dropped, without_duplicates
from xcompress.corpus.normalise import normalise
from xcompress.corpus.pairs import Pair, read_tsv
from xcompress.corpus.split import rank, sentence_key, split
from xcompress.errors import InputError


@dataclass(frozen=True)
class Corpus:
    """Pairs to train on and pairs held out; no sentence of either side stands in both."""

    train: tuple[Pair, ...]
    holdout: tuple[Pair, ...]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all pairs, in order."""
        return files.hash_of([[(p.source, p.target, p.language) for p in part] for part in (self.train, self.holdout)])

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the number of training pairs by language, then by origin."""
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for pair in self.train:
            counted[pair.language][pair.origin] += 1
        return {language: dict(sorted(counted[language].items())) for language in sorted(counted)}


def build(
    catalogues: Sequence[tuple[str, Path]],
    tsv: Sequence[tuple[Path, str, str]],
    languages: Sequence[str],
    *,
    limits: Limits | None = None,
    holdout_sentences: int = 1000,
    seed: int = 0,
    max_pairs: int | None = None,
) -> Corpus:
    """Gather pairs into a corpus.

    :param catalogues: (origin, folder) of gettext catalogues.
    :param tsv: (file, language, origin) of tab-separated pairs, English first.
    :param languages: ISO 639-1 codes of the translations; earlier sources win where a sentence is translated twice.
    :param holdout_sentences: English sentences kept out of training.
    :param max_pairs: training pairs per language; more are sampled down, to the same sentences in each language.
    :raises InputError: when a file cannot be read or a language is left without pairs.
    """
    read = tracked(catalogues, "catalogues: read")
    raw = [pair for origin, root in read for pair in read_catalogues(root, languages, origin)]
    raw += [
        pair for path, language, origin in tsv if language in languages for pair in read_tsv(path, language, origin)
    ]
    kept, dropped = _clean(raw, limits or Limits())
    train, holdout = split(kept, holdout_sentences, seed)
    train = _capped(train, max_pairs, seed)
    _refuse_empty(languages, raw, train, dropped)
    return Corpus(tuple(train), tuple(holdout))


def _clean(raw: Sequence[Pair], limits: Limits) -> tuple[list[Pair], Mapping[str, Counter[str]]]:
    """Filter, normalise and de-duplicate; count by language what was dropped and why."""
    kept, dropped = [], defaultdict[str, Counter[str]](Counter)
    for pair in tracked(raw, "corpus: pairs filtered"):
        reason = why_dropped(pair, limits)
        if reason:
            dropped[pair.language][reason] += 1
        else:
            kept.append(Pair(normalise(pair.source), normalise(pair.target), pair.language, pair.origin))
    return without_duplicates(kept), dropped


def _capped(pairs: list[Pair], max_pairs: int | None, seed: int) -> list[Pair]:
    if max_pairs is None:
        return pairs
    by_language: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        by_language[pair.language].append((rank(sentence_key(pair.source), seed), index))
    chosen = {index for ranked in by_language.values() for _, index in sorted(ranked)[:max_pairs]}
    return [pair for index, pair in enumerate(pairs) if index in chosen]


def _refuse_empty(
    languages: Sequence[str], raw: Sequence[Pair], train: Sequence[Pair], dropped: Mapping[str, Counter[str]]
) -> None:
    read, left = Counter(pair.language for pair in raw), Counter(pair.language for pair in train)
    for language in languages:
        if not left[language]:
            reasons = dropped.get(language, Counter()).most_common()
            why = ", ".join(f"{count} {reason}" for reason, count in reasons) or "none dropped"
            raise InputError(
                f"corpus: no training pair for {language!r}: {read[language]} read ({why}); "
                f"add a source for {language!r}, loosen the limits, or take the language out"
            )
