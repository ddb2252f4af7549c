"""Build the corpus of a recipe: read, filter, deduplicate, split, cap and write; pairs are never all in memory."""

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress import files
from xcompress.console import bar, tracked
from xcompress.corpus.catalogues import read_catalogues
from xcompress.corpus.filters import Limits, clean, same_key
from xcompress.corpus.lines import Tally
from xcompress.corpus.pairs import Pair, as_line, read_tsv
from xcompress.corpus.split import Parts, Ranks, Sides, is_among, rank, sentence_key, split
from xcompress.corpus.store import write_lines
from xcompress.errors import InputError

TRAIN, HOLDOUT = "train", "holdout"
DUPLICATE = "duplicate"
HELD_OUT = "shares a sentence with the hold-out"
SAMPLED = "over max_pairs"
BATCH = 16_384
_REMEMBERED = 8192
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CorpusReport:
    """Counts of the pairs in a corpus and of those left out."""

    train: Mapping[str, Mapping[str, int]]
    """Training pairs, by language and origin."""
    holdout: Mapping[str, int]
    """Held-out pairs, by language."""
    dropped: Mapping[str, Mapping[str, int]]
    """Pairs that were read and left out, by language and reason."""
    bad_lines: Mapping[str, Mapping[str, int]]
    """Lines that are not pairs, by file and reason."""
    broken_off: Mapping[str, str]
    """Where damaged files break off, by file."""
    origins: Sequence[str]
    """Where pairs come from; `origins_file` holds positions in this list."""
    fingerprint: str
    """A hash of all files."""


def corpus_file(folder: Path, part: str, language: str) -> Path:
    """Return the path of the pairs of a language, `train` or `holdout`."""
    return folder / f"{part}.{language}.tsv"


def origins_file(folder: Path, language: str) -> Path:
    """Return the path of the origin of each training pair of a language, uint32 (N,)."""
    return folder / f"{TRAIN}.{language}.origins.npy"


def build(
    folder: Path,
    catalogues: Sequence[tuple[str, Path]],
    tsv: Sequence[tuple[Path, str, str]],
    languages: Sequence[str],
    *,
    limits: Limits | None = None,
    holdout_sentences: int = 1000,
    seed: int = 0,
    max_pairs: int | None = None,
    most: Mapping[tuple[str, str], int] | None = None,
) -> CorpusReport:
    """Build a corpus: train.<language>.tsv and holdout.<language>.tsv, read with `PairFile`.

    No sentence of either side is in both. The same sources and seed give the same bytes.

    :param folder: where the files are written; meanwhile it holds all pairs a second time.
    :param catalogues: (origin, folder) of gettext catalogues.
    :param tsv: (file, language, origin) of tab-separated pairs, English first.
    :param languages: ISO 639-1 codes of the translations. Where a sentence is translated twice, the first one stays.
    :param holdout_sentences: English sentences kept out of training.
    :param max_pairs: training pairs per language; more are sampled down, to the same sentences in each language.
    :param most: training pairs of an origin, by language and origin; more are sampled down first.
    :raises InputError: when a file cannot be read or a language is left without pairs.
    """
    tallies: list[Tally] = []
    folder.mkdir(parents=True, exist_ok=True)
    with files.scratch_folder(folder / "gathered") as scratch:
        pairs = _read_sources(catalogues, [source for source in tsv if source[1] in languages], languages, tallies)
        gathered = gather(pairs, scratch, limits or Limits(), seed)
        parts = _split_and_cap(gathered, holdout_sentences, max_pairs, most or {})
        _check_languages(languages, gathered, parts)
        for language in tracked(sorted(parts), "corpus: languages written"):
            lines, masks = gathered.languages[language], parts[language]
            for part, mask in ((TRAIN, masks.train), (HOLDOUT, masks.holdout)):
                with lines.path.open("rb") as stream:
                    write_lines(corpus_file(folder, part, language), compress(stream, mask.tobytes()))
            np.save(origins_file(folder, language), np.frombuffer(lines.origin, np.uint32)[masks.train])
    return _report(folder, gathered, parts, tallies)


def _read_sources(
    catalogues: Sequence[tuple[str, Path]],
    tsv: Sequence[tuple[Path, str, str]],
    languages: Sequence[str],
    tallies: list[Tally],
) -> Iterator[Pair]:
    for origin, root in tracked(catalogues, "catalogues: read"):
        yield from read_catalogues(root, languages, origin)
    size = sum(path.stat().st_size for path, *_ in tsv if path.is_file())
    with bar("corpus: bytes read", size) as ticker:
        for path, language, origin in tsv:
            tallies.append(Tally(path))
            yield from read_tsv(path, language, origin, tallies[-1], ticker.advance)


@dataclass(frozen=True, slots=True)
class CleanPair:
    """A normalised pair that passed the filters, and the hashes of its sentences."""

    pair: Pair
    key: int
    """64 bits of the English sentence and the language; pairs that share it are duplicates."""
    source: int
    """The rank of the English sentence."""
    target: int
    """The rank of the translation."""


@dataclass
class LanguageLines:
    """The pairs of one language as lines of a file; 20 bytes of each are in memory."""

    path: Path
    source: "array[int]" = field(default_factory=lambda: array("Q"))
    target: "array[int]" = field(default_factory=lambda: array("Q"))
    origin: "array[int]" = field(default_factory=lambda: array("I"))
    """Positions in `Gathered.origins`."""

    @property
    def sides(self) -> Sides:
        """The ranks of both sides."""
        return Sides(np.frombuffer(self.source, np.uint64), np.frombuffer(self.target, np.uint64))


@dataclass
class Gathered:
    """All pairs that passed the filters, by language, with counts of what was read and dropped."""

    folder: Path
    languages: dict[str, LanguageLines] = field(default_factory=dict)
    origins: dict[str, int] = field(default_factory=dict)
    read: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def drop(self, language: str, reason: str, count: int = 1) -> None:
        """Count dropped pairs."""
        if count:
            self.dropped[language][reason] += count

    def append(self, batch: Sequence[CleanPair]) -> None:
        """Append pairs to the files of their languages."""
        texts: dict[str, list[bytes]] = defaultdict(list)
        for cleaned in batch:
            language = cleaned.pair.language
            lines = self.languages.setdefault(language, LanguageLines(self.folder / language))
            lines.source.append(cleaned.source)
            lines.target.append(cleaned.target)
            lines.origin.append(self.origins.setdefault(cleaned.pair.origin, len(self.origins)))
            texts[language].append(as_line(cleaned.pair))
        for language, new_lines in texts.items():
            with self.languages[language].path.open("ab") as stream:
                stream.writelines(new_lines)


def gather(pairs: Iterable[Pair], folder: Path, limits: Limits, seed: int) -> Gathered:
    """Write the pairs that pass the filters to a file per language, in their order.

    Of several translations of an English sentence into a language, the first stays; sentences that differ only in case
    or compatibility form are the same.
    """
    gathered = Gathered(folder)
    known = np.empty(0, np.uint64)
    cleaned = _clean_pairs(pairs, limits, seed, gathered)
    while batch := list(islice(cleaned, BATCH)):
        keys, first_rows = np.unique(np.array([pair.key for pair in batch], np.uint64), return_index=True)
        is_new = ~is_among(keys, known)
        known = np.concatenate([known, keys[is_new]])
        known.sort(kind="stable")  # fast on two sorted runs
        new_rows = set(first_rows[is_new].tolist())
        for row, pair in enumerate(batch):
            gathered.drop(pair.pair.language, DUPLICATE, row not in new_rows)
        gathered.append([pair for row, pair in enumerate(batch) if row in new_rows])
    return gathered


def _clean_pairs(pairs: Iterable[Pair], limits: Limits, seed: int, gathered: Gathered) -> Iterator[CleanPair]:
    """Yield the pairs that pass the filters; count what is read and dropped."""

    @lru_cache(_REMEMBERED)  # a file may repeat a line often
    def cleaned_or_reason(pair: Pair) -> CleanPair | str:
        plain = clean(pair, limits)
        if isinstance(plain, str):
            return plain
        duplicate_key = f"{plain.language}\t{same_key(plain.source)}"
        key = int.from_bytes(hashlib.blake2b(duplicate_key.encode(), digest_size=8).digest(), "big")
        source, target = (rank(sentence_key(side), seed) for side in (plain.source, plain.target))
        return CleanPair(plain, key, source, target)

    for pair in pairs:
        gathered.read[pair.language] += 1
        result = cleaned_or_reason(pair)
        if isinstance(result, str):
            gathered.drop(pair.language, result)
        else:
            yield result


def _split_and_cap(
    gathered: Gathered, holdout_sentences: int, max_pairs: int | None, most: Mapping[tuple[str, str], int]
) -> dict[str, Parts]:
    """Choose the training and held-out pairs of each language; count what is left out."""
    sides = {language: lines.sides for language, lines in gathered.languages.items()}
    parts = {}
    for language, masks in split(sides, holdout_sentences).items():
        ranks, origin = sides[language].source, np.frombuffer(gathered.languages[language].origin, np.uint32)
        train = masks.train.copy()
        for name, number in gathered.origins.items():
            if (language, name) in most:
                of_origin = masks.train & (origin == number)
                train &= ~of_origin | _sample(of_origin, ranks, most[language, name])
        train = _sample(train, ranks, max_pairs)
        parts[language] = Parts(train, masks.holdout)
        gathered.drop(language, HELD_OUT, int(np.count_nonzero(~(masks.train | masks.holdout))))
        gathered.drop(language, SAMPLED, int(np.count_nonzero(masks.train & ~train)))
    return parts


def _sample(mask: Mask, ranks: Ranks, count: int | None) -> Mask:
    """Keep `count` of the rows in a mask (N,), those of the lowest ranks; all when None."""
    rows = np.flatnonzero(mask)
    sampled = np.zeros_like(mask)
    sampled[rows[np.argsort(ranks[rows], kind="stable")[:count]]] = True
    return sampled


def _check_languages(languages: Sequence[str], gathered: Gathered, parts: Mapping[str, Parts]) -> None:
    """Raise an error for a language without training pairs, with the reasons why pairs were dropped."""
    for language in languages:
        if language not in parts or not parts[language].train.any():
            reasons = gathered.dropped.get(language, Counter()).most_common()
            why = ", ".join(f"{count} {reason}" for reason, count in reasons) or "none dropped"
            raise InputError(
                f"corpus: no training pair for {language!r}: {gathered.read[language]} read ({why}); "
                f"add a source for {language!r}, loosen the limits, or remove the language"
            )


def _report(folder: Path, gathered: Gathered, parts: Mapping[str, Parts], tallies: Sequence[Tally]) -> CorpusReport:
    train = {}
    for language in sorted(parts):
        numbers = np.frombuffer(gathered.languages[language].origin, np.uint32)[parts[language].train]
        counts = np.bincount(numbers, minlength=len(gathered.origins)).tolist()
        train[language] = {name: counts[number] for name, number in sorted(gathered.origins.items()) if counts[number]}
    written = [corpus_file(folder, part, language) for language in sorted(parts) for part in (TRAIN, HOLDOUT)]
    return CorpusReport(
        train=train,
        holdout={language: int(np.count_nonzero(parts[language].holdout)) for language in sorted(parts)},
        dropped={language: dict(sorted(gathered.dropped[language].items())) for language in sorted(gathered.dropped)},
        bad_lines={str(tally.path): dict(sorted(tally.bad.items())) for tally in tallies if tally.bad},
        broken_off={str(tally.path): tally.broken_off for tally in tallies if tally.broken_off},
        origins=list(gathered.origins),
        fingerprint=files.hash_of([(path.name, files.sha256_of(path)) for path in written]),
    )
