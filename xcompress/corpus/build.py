"""The corpus of a recipe: gathered, filtered, free of duplicates, split and capped, never whole in memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from xcompress import files
from xcompress.console import bar, tracked
from xcompress.corpus.bad_lines import Tally
from xcompress.corpus.catalogues import read_catalogues
from xcompress.corpus.filters import Limits
from xcompress.corpus.gather import Gathered, gather
from xcompress.corpus.pairs import Pair, read_tsv
from xcompress.corpus.split import Parts, Ranks, split
from xcompress.corpus.store import write_lines
from xcompress.errors import InputError

TRAIN, HOLDOUT = "train", "holdout"
ORIGINS = "origins.npy"
HELD_OUT = "shares a sentence with the hold-out"
SAMPLED = "over max_pairs"
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CorpusReport:
    """What a corpus consists of, and what was left out of it."""

    train: Mapping[str, Mapping[str, int]]
    """Pairs to train on, by language and origin."""
    holdout: Mapping[str, int]
    """Pairs held out, by language."""
    dropped: Mapping[str, Mapping[str, int]]
    """Pairs that were read and are of no use, by language and reason."""
    bad_lines: Mapping[str, Mapping[str, int]]
    """Lines that are no pairs, by file and reason."""
    broken_off: Mapping[str, str]
    """Where damaged files break off, by file."""
    origins: Sequence[str]
    """Where pairs come from; `origins_file` has places in this list."""
    fingerprint: str
    """A hash of all files."""


def corpus_file(folder: Path, part: str, language: str) -> Path:
    """Return the place of a language's pairs, `train` or `holdout`."""
    return folder / f"{part}.{language}.tsv"


def origins_file(folder: Path, language: str) -> Path:
    """Return the place of the origin of each of a language's training pairs, uint32 (N,)."""
    return folder / f"{TRAIN}.{language}.{ORIGINS}"


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
    """Gather pairs into a corpus: train.<language>.tsv and holdout.<language>.tsv, read with `PairFile`.

    No sentence of either side stands in both. The same sources and seed give the same bytes.

    :param folder: where the files are written; it holds all pairs once more while they are gathered.
    :param catalogues: (origin, folder) of gettext catalogues.
    :param tsv: (file, language, origin) of tab-separated pairs, English first.
    :param languages: ISO 639-1 codes of the translations; earlier sources win where a sentence is translated twice.
    :param holdout_sentences: English sentences kept out of training.
    :param max_pairs: training pairs per language; more are sampled down, to the same sentences in each language.
    :param most: training pairs of an origin, by language and origin; more are sampled down first.
    :raises InputError: when a file cannot be read or a language is left without pairs.
    """
    tallies: list[Tally] = []
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".gathered.", dir=folder) as temporary:
        pairs = _sources(catalogues, [one for one in tsv if one[1] in languages], languages, tallies)
        gathered = gather(pairs, Path(temporary), limits or Limits(), seed)
        parts = _parts(gathered, holdout_sentences, max_pairs, most or {})
        _refuse_empty(languages, gathered, parts)
        for language in tracked(sorted(parts), "corpus: languages written"):
            lines = gathered.languages[language]
            _write(folder, language, lines.path, parts[language])
            origins = np.frombuffer(lines.origin, np.uint32)[parts[language].train]
            np.save(origins_file(folder, language), origins)
    return _report(folder, gathered, parts, tallies)


def _sources(
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


def _parts(
    gathered: Gathered, holdout_sentences: int, max_pairs: int | None, most: Mapping[tuple[str, str], int]
) -> dict[str, Parts]:
    """Split and cap; count what that leaves out."""
    sides = {language: lines.sides for language, lines in gathered.languages.items()}
    parts = {}
    for language, whole in split(sides, holdout_sentences).items():
        train = _thinned(gathered, language, whole.train, most)
        train = _capped(train, sides[language].source, max_pairs)
        parts[language] = Parts(train, whole.holdout)
        gathered.drop(language, HELD_OUT, int(np.count_nonzero(~(whole.train | whole.holdout))))
        gathered.drop(language, SAMPLED, int(np.count_nonzero(whole.train & ~train)))
    return parts


def _thinned(gathered: Gathered, language: str, train: Mask, most: Mapping[tuple[str, str], int]) -> Mask:
    """Sample down the origins that have more pairs than they may."""
    lines = gathered.languages[language]
    origin, thinned = np.frombuffer(lines.origin, np.uint32), train.copy()
    for name, number in gathered.origins.items():
        if (language, name) in most:
            own = train & (origin == number)
            thinned &= ~own | _capped(own, lines.sides.source, most[language, name])
    return thinned


def _capped(train: Mask, source: Ranks, max_pairs: int | None) -> Mask:
    rows = np.flatnonzero(train)
    capped = np.zeros_like(train)
    capped[rows[np.argsort(source[rows], kind="stable")[:max_pairs]]] = True
    return capped


def _refuse_empty(languages: Sequence[str], gathered: Gathered, parts: Mapping[str, Parts]) -> None:
    for language in languages:
        if language not in parts or not parts[language].train.any():
            reasons = gathered.dropped.get(language, Counter()).most_common()
            why = ", ".join(f"{count} {reason}" for reason, count in reasons) or "none dropped"
            raise InputError(
                f"corpus: no training pair for {language!r}: {gathered.read[language]} read ({why}); "
                f"add a source for {language!r}, loosen the limits, or take the language out"
            )


def _write(folder: Path, language: str, lines: Path, parts: Parts) -> None:
    for part, mask in ((TRAIN, parts.train), (HOLDOUT, parts.holdout)):
        with lines.open("rb") as stream:
            write_lines(corpus_file(folder, part, language), compress(stream, mask.tobytes()))


def _report(folder: Path, gathered: Gathered, parts: Mapping[str, Parts], tallies: Sequence[Tally]) -> CorpusReport:
    written = [corpus_file(folder, part, language) for language in sorted(parts) for part in (TRAIN, HOLDOUT)]
    return CorpusReport(
        train={language: _by_origin(gathered, language, parts[language].train) for language in sorted(parts)},
        holdout={language: int(np.count_nonzero(parts[language].holdout)) for language in sorted(parts)},
        dropped={language: dict(sorted(gathered.dropped[language].items())) for language in sorted(gathered.dropped)},
        bad_lines={str(tally.path): dict(sorted(tally.bad.items())) for tally in tallies if tally.bad},
        broken_off={str(tally.path): tally.broken_off for tally in tallies if tally.broken_off},
        origins=list(gathered.origins),
        fingerprint=files.hash_of([(path.name, files.sha256_of(path)) for path in written]),
    )


def _by_origin(gathered: Gathered, language: str, train: Mask) -> dict[str, int]:
    numbers = np.frombuffer(gathered.languages[language].origin, np.uint32)[train]
    counts = np.bincount(numbers, minlength=len(gathered.origins)).tolist()
    return {origin: counts[number] for origin, number in sorted(gathered.origins.items()) if counts[number]}
