"""Build the corpus of a recipe: read, filter, deduplicate, split, cap and write; pairs are never all in memory."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xcompress import files
from xcompress.console import bar, tracked
from xcompress.corpus.catalogues import read_catalogues
from xcompress.corpus.clean import NUMBERS, CleanChunk, Cleaner, RawChunk
from xcompress.corpus.columns import ColumnFile, Rows, Threshold, in_row_order, lowest, part_bits, partition, write_npy
from xcompress.corpus.filters import Limits
from xcompress.corpus.lines import Tally
from xcompress.corpus.pairs import LINES, check_read, chunks_of_lines, warn_of_swapped_columns
from xcompress.corpus.split import IN_HOLDOUT, IN_TRAIN, HoldOut, Ranks, split
from xcompress.corpus.store import write_lines
from xcompress.errors import InputError
from xcompress.processes import map_in_order

TRAIN, HOLDOUT = "train", "holdout"
DUPLICATE = "duplicate"
HELD_OUT = "shares a sentence with the hold-out"
SAMPLED = "over max_pairs"
PAIRS_ALONE = 20_000
"""Up to this many pairs are filtered in one process: starting others takes as long, see benchmarks/scale.md."""
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
    processes: int = 1,
    hosts: int = 1,
    gather: Callable[[Iterator[CleanChunk]], Iterator[CleanChunk]] = iter,
) -> CorpusReport:
    """Build a corpus: train.<language>.tsv and holdout.<language>.tsv, read with `PairFile`.

    No sentence of either side is in both. The same sources and seed give the same bytes.

    :param folder: where the files are written; meanwhile it holds all pairs a second time, duplicates too, and some
        110 bytes of numbers for each.
    :param catalogues: (origin, folder) of gettext catalogues.
    :param tsv: (file, language, origin) of tab-separated pairs, English first.
    :param languages: ISO 639-1 codes of the translations. Where a sentence is translated twice, the first one stays.
    :param holdout_sentences: English sentences kept out of training.
    :param max_pairs: training pairs per language; more are sampled down, to the same sentences in each language.
    :param most: training pairs of an origin, by language and origin; more are sampled down first.
    :param processes: that filter the text, beside this one, which reads and writes; 1 for none. They change no byte.
    :param hosts: that filter the text, of which this is the first; the others call `clean_sources`. They change no
        byte.
    :param gather: yields the chunks of all hosts in turns, given those of this one.
    :raises InputError: when a file cannot be read or a language is left without pairs.
    :raises XCompressError: when a process is killed.
    """
    tallies = [Tally(path) for path, *_ in tsv]
    folder.mkdir(parents=True, exist_ok=True)
    with files.scratch_folder(folder / "gathered") as scratch:
        # Read and filter the pairs, and drop duplicates.
        gathered = Gathered(scratch)
        for chunk in gather(clean_sources(catalogues, tsv, languages, limits or Limits(), seed, processes, 0, hosts)):
            gathered.append(chunk)
            if chunk.file is not None:
                tally = tallies[chunk.file]
                tally.good += chunk.good
                for line in chunk.bad:
                    tally.add(*line)
                if chunk.is_last:
                    tally.broken_off = chunk.broken_off
                    check_read(tally)
        gathered.drop_duplicates()

        # Split them.
        kept = {language: gathered.languages[language].kept for language in sorted(gathered.languages)}
        hold_out = split(kept, holdout_sentences, scratch)
        draws_twice = bool(most)  # in all languages alike, so that they are sampled down to the same sentences
        for language in kept:
            caps = {name: count for (of, name), count in (most or {}).items() if of == language}
            _choose_parts(gathered, language, hold_out, caps, max_pairs, draws_twice)
        _check_languages(languages, gathered)

        # Write them.
        for language in tracked(sorted(kept), "corpus: languages written"):
            lines = gathered.languages[language]
            for number, part in ((IN_TRAIN, TRAIN), (IN_HOLDOUT, HOLDOUT)):
                write_lines(corpus_file(folder, part, language), lines.of_part(number))
            origins = zip(lines.kept.column("origin"), lines.parts.blocks(), strict=True)
            in_train = (gathered.numbers[origin[parts == IN_TRAIN]] for origin, parts in origins)
            write_npy(origins_file(folder, language), np.dtype(np.uint32), (int(lines.counts[IN_TRAIN]),), in_train)
    return _report(folder, gathered, tallies)


def clean_sources(
    catalogues: Sequence[tuple[str, Path]],
    tsv: Sequence[tuple[Path, str, str]],
    languages: Sequence[str],
    limits: Limits,
    seed: int,
    processes: int = 1,
    host: int = 0,
    hosts: int = 1,
) -> Iterator[CleanChunk]:
    """Read the sources and yield their filtered pairs, chunk by chunk.

    :param host: number of this host, which reads all sources and filters one in `hosts` chunks.
    :raises InputError: when a file cannot be read.
    :raises XCompressError: when a process is killed.
    """
    raw = _read_sources(catalogues, tsv, languages)
    first, count = list[RawChunk](), 0
    while count <= PAIRS_ALONE and (chunk := next(raw, None)):
        first.append(chunk)
        count += len(chunk.pairs) + len(chunk.lines)
    share = islice(chain(first, raw), host, None, hosts)
    workers = processes if count > PAIRS_ALONE else 1
    return map_in_order(partial(Cleaner, limits, seed), share, workers, "corpus: filters")


def _read_sources(
    catalogues: Sequence[tuple[str, Path]], tsv: Sequence[tuple[Path, str, str]], languages: Sequence[str]
) -> Iterator[RawChunk]:
    """Yield the pairs of catalogues and the lines of files, chunk by chunk."""
    for origin, root in tracked(catalogues, "catalogues: read"):
        pairs = read_catalogues(root, languages, origin)
        while chunk := list(islice(pairs, LINES)):
            yield RawChunk(chunk)
    wanted = [(number, *source) for number, source in enumerate(tsv) if source[1] in languages]
    size = sum(path.stat().st_size for _, path, *_ in wanted if path.is_file())
    with bar("corpus: bytes read", size) as ticker:
        for number, path, language, origin in wanted:
            tally = Tally(path)
            for first, lines in chunks_of_lines(path, tally, ticker.advance):
                if first == 1:
                    warn_of_swapped_columns(path, lines, language)
                yield RawChunk((), lines, first, language, origin or path.name, number)
            yield RawChunk(file=number, is_last=True, broken_off=tally.broken_off)


class LanguageLines:
    """The pairs of one language: their lines in a file, and numbers of each in others beside it."""

    def __init__(self, path: Path) -> None:
        def column(name: str, dtype: DTypeLike) -> ColumnFile:
            return ColumnFile(path.with_name(f"{path.name}.{name}"), np.dtype(dtype))

        self.path = path
        self.all = column("all", NUMBERS)
        """The numbers of all pairs."""
        self.is_first = column("first", np.bool_)
        """Whether a pair is no duplicate, for all pairs."""
        self.kept = column("kept", NUMBERS)
        """The numbers of the pairs that are no duplicates."""
        self.parts = column("split", np.uint8)
        """The part of each pair that is no duplicate."""
        self.counts = np.zeros(3, np.int64)
        """Pairs of each part."""
        self.by_origin = np.zeros(0, np.int64)
        """Training pairs of each of `Gathered.origins`."""

    def drop_duplicates(self) -> int:
        """Fill `is_first` and `kept`; return the number of duplicates."""
        count = len(self.all)

        def first_of_keys() -> Iterator[tuple[Rows, NDArray[np.integer]]]:
            scratch = self.path.with_name(f"{self.path.name}.by_key")
            for keys, rows in partition(partial(self.all.column, "key"), part_bits(count), scratch):
                is_first = np.zeros(len(rows), np.uint8)
                is_first[np.unique(keys, return_index=True)[1]] = 1
                yield rows, is_first

        for block in in_row_order(first_of_keys(), count, self.path.with_name(f"{self.path.name}.by_row")):
            self.is_first.append(block.astype(np.bool_))
        for numbers, mask in zip(self.all.blocks(), self.is_first.blocks(), strict=True):
            self.kept.append(numbers[mask])
        return count - len(self.kept)

    def of_part(self, number: int) -> Iterator[bytes]:
        """Yield the lines of a part."""
        with self.path.open("rb") as stream:
            is_first = (compress(islice(stream, len(mask)), mask.tolist()) for mask in self.is_first.blocks())
            kept = chain.from_iterable(is_first)
            for parts in self.parts.blocks():
                yield from compress(islice(kept, len(parts)), (parts == number).tolist())


@dataclass
class Gathered:
    """All pairs that passed the filters, by language, with counts of what was read and dropped."""

    folder: Path
    languages: dict[str, LanguageLines] = field(default_factory=dict)
    found: dict[str, int] = field(default_factory=dict)
    """Where pairs come from, with the number of each in the files."""
    count: int = 0
    read: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    origins: list[str] = field(default_factory=list)
    """Where pairs that are no duplicates come from, in the order of the first of each."""
    numbers: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    """For each number of `found`, the position in `origins`."""

    def drop(self, language: str, reason: str, count: int) -> None:
        """Count dropped pairs."""
        if count:
            self.dropped[language][reason] += count

    def append(self, chunk: CleanChunk) -> None:
        """Append pairs to the files of their languages, and add up the counts."""
        self.read.update(chunk.read)
        for language, reasons in chunk.dropped.items():
            self.dropped[language].update(reasons)
        origins = np.array([self.found.setdefault(name, len(self.found)) for name in chunk.origins], np.uint32)
        for language, of_chunk in chunk.numbers.items():
            lines = self.languages.setdefault(language, LanguageLines(self.folder / language))
            numbers = of_chunk.copy()
            numbers["order"] += self.count
            numbers["origin"] = origins[numbers["origin"]]
            lines.all.append(numbers)
            with lines.path.open("ab") as stream:
                stream.write(chunk.lines[language])
        self.count += chunk.count

    def drop_duplicates(self) -> None:
        """Of pairs that share a key, keep the first."""
        first = np.full(len(self.found), self.count)
        for language, lines in self.languages.items():
            self.drop(language, DUPLICATE, lines.drop_duplicates())
            for block in lines.kept.blocks():
                np.minimum.at(first, block["origin"], block["order"].astype(np.int64))
        names = list(self.found)
        kept = [number for number in np.argsort(first, kind="stable").tolist() if first[number] < self.count]
        self.origins = [names[number] for number in kept]
        self.numbers = np.zeros(len(names), np.uint32)
        self.numbers[kept] = np.arange(len(kept))


def _choose_parts(
    gathered: Gathered,
    language: str,
    hold_out: HoldOut,
    most: Mapping[str, int],
    max_pairs: int | None,
    draws_twice: bool,
) -> None:
    """Write the part of each pair of a language; count the pairs of each part, and what is left out.

    :param most: training pairs of an origin; more are sampled down, to those of the lowest ranks.
    :param max_pairs: training pairs after that.
    :param draws_twice: whether origins are sampled down before, so that `max_pairs` needs ranks of its own: those of an
        origin that was sampled down are all low, and it would be nearly all that is left.
    """
    lines, limits = gathered.languages[language], dict[int, Threshold]()

    def split_blocks() -> Iterator[tuple[NDArray[np.void], Rows, NDArray[np.uint8], Mask]]:
        """Yield the numbers of pairs, their rows, their part before sampling, and the training pairs after it."""
        row = 0
        for numbers in lines.kept.blocks():
            rows, row = np.arange(row, row + len(numbers)), row + len(numbers)
            parts = hold_out.parts(numbers["source"], numbers["target"])
            sampled = parts == IN_TRAIN
            for number, limit in limits.items():
                sampled &= (numbers["origin"] != number) | limit.mask(numbers["source"], rows)
            yield numbers, rows, parts, sampled

    def ranks_of_all(numbers: NDArray[np.void]) -> Ranks:
        """Return the ranks by which all pairs are sampled down: low ranks may end with any byte."""
        ranks: Ranks = numbers["source"]
        return ranks.byteswap() if draws_twice else ranks

    def train_ranks(number: int | None = None) -> Iterator[tuple[Ranks, Rows]]:
        """Yield the ranks of training pairs, of one origin or of all, and their rows."""
        for numbers, rows, _, sampled in split_blocks():
            mask = sampled if number is None else sampled & (numbers["origin"] == number)
            yield (ranks_of_all(numbers) if number is None else numbers["source"])[mask], rows[mask]

    for name, count in most.items():
        number = gathered.found.get(name)
        if number is not None and (limit := lowest(partial(train_ranks, number), count)):
            limits[number] = limit
    of_all = None if max_pairs is None else lowest(train_ranks, max_pairs)
    lines.by_origin = np.zeros(len(gathered.origins), np.int64)
    for numbers, rows, parts, sampled in split_blocks():
        train = sampled & of_all.mask(ranks_of_all(numbers), rows) if of_all else sampled
        over = (parts == IN_TRAIN) & ~train
        gathered.drop(language, HELD_OUT, int(np.count_nonzero(parts == 0)))
        gathered.drop(language, SAMPLED, int(np.count_nonzero(over)))
        parts[over] = 0
        lines.parts.append(parts)
        lines.counts += np.bincount(parts, minlength=len(lines.counts))
        lines.by_origin += np.bincount(gathered.numbers[numbers["origin"][train]], minlength=len(lines.by_origin))


def _check_languages(languages: Sequence[str], gathered: Gathered) -> None:
    """Raise an error for a language without training pairs, with the reasons why pairs were dropped."""
    for language in languages:
        if language not in gathered.languages or not gathered.languages[language].counts[IN_TRAIN]:
            reasons = gathered.dropped.get(language, Counter()).most_common()
            why = ", ".join(f"{count} {reason}" for reason, count in reasons) or "none dropped"
            raise InputError(
                f"corpus: no training pair for {language!r}: {gathered.read[language]} read ({why}); "
                f"add a source for {language!r}, loosen the limits, or remove the language"
            )


def _report(folder: Path, gathered: Gathered, tallies: Sequence[Tally]) -> CorpusReport:
    train = {}
    for language in sorted(gathered.languages):
        counts = dict(zip(gathered.origins, gathered.languages[language].by_origin.tolist(), strict=True))
        train[language] = {name: counts[name] for name in sorted(counts) if counts[name]}
    written = [corpus_file(folder, part, language) for language in train for part in (TRAIN, HOLDOUT)]
    return CorpusReport(
        train=train,
        holdout={language: int(gathered.languages[language].counts[IN_HOLDOUT]) for language in train},
        dropped={language: dict(sorted(gathered.dropped[language].items())) for language in sorted(gathered.dropped)},
        bad_lines={str(tally.path): dict(sorted(tally.bad.items())) for tally in tallies if tally.bad},
        broken_off={str(tally.path): tally.broken_off for tally in tallies if tally.broken_off},
        origins=gathered.origins,
        fingerprint=files.hash_of([(path.name, files.sha256_of(path)) for path in written]),
    )
