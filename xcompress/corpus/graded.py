"""Sets of sentence pairs with similarity scores (STS), in one language or across two: read and score.

Three layouts are read: row-aligned files `graded.<lang>.tsv`, files of STS 2017 named after a language pair, and
row-aligned CSV files `stsb-<lang>-dev.csv`. Row-aligned files are crossed: row n gives xx-xx; en-xx, with its first
sentence in English and its second in xx; and xx-yy, with two other languages in alphabetical order.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from xcompress.corpus.lines import table_rows
from xcompress.corpus.split import sentence_key
from xcompress.errors import InputError
from xcompress.metrics import Encode, cosines, spearman
from xcompress.printable import counted

DATA = Path(__file__).parent.parent / "data"
PIVOT = "en"
PART = ": "
"""Separates the name of a set from that of its part, such as `stsb: news` or `stsb: news, unseen`."""
UNSEEN = "unseen"
"""Ends the name of a part without the rows that have a sentence of the set's train split."""
BUILTIN = "built-in"
ALIGNED_TSV = re.compile(r"graded\.(?P<lang>[a-z]{2,3})\.tsv(\.xz|\.gz)?")
ALIGNED_CSV = re.compile(r"stsb-(?P<lang>[a-z]{2,3})-(?P<split>train|dev|test)\.csv(\.xz|\.gz)?")
PAIR_FILE = re.compile(r".*\.(?P<pair>[a-z]{2,3}-[a-z]{2,3})\.(txt|tsv)(\.xz|\.gz)?")
STSB_GENRES: Mapping[int, Mapping[str, int]] = {
    1500: {"captions": 625, "forums": 375, "news": 500},
    1379: {"captions": 625, "forums": 254, "news": 500},
    1375: {"captions": 500, "forums": 375, "news": 500},
}
"""Rows of each genre of the STS benchmark in the order of its files, by the number of rows (Cer et al., 2017, table 4):
the dev set, the test set, and the dev set without the captions that STS 2017 has, too."""


@dataclass(frozen=True)
class GradedPairs:
    """Rows of one language pair: `scores[n]` is the similarity of `first[n]` and `second[n]`."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.scores)

    def rows(self, rows: slice | Sequence[int]) -> "GradedPairs":
        """Keep some rows, or those with these numbers."""
        kept = range(len(self))[rows] if isinstance(rows, slice) else rows
        first, second = (tuple(side[row] for row in kept) for side in (self.first, self.second))
        return GradedPairs(first, second, tuple(self.scores[row] for row in kept))


@dataclass(frozen=True)
class GradedSet:
    """A test set: the graded rows of every language pair, such as `en-en` or `en-de`."""

    name: str
    language_pairs: Mapping[str, GradedPairs]
    is_stsb: bool = False
    """Whether its files are named as those of the STS benchmark, whose genres follow from the order of the rows."""
    is_aligned: bool = False
    """Whether row n of every language pair has the same sentences, in other languages."""

    def sentences(self) -> list[str]:
        """Return every distinct sentence once, in order of appearance."""
        pairs = self.language_pairs.values()
        return list(dict.fromkeys(text for rows in pairs for texts in (rows.first, rows.second) for text in texts))

    def rows(self, rows: slice | Sequence[int]) -> "GradedSet":
        """Keep some rows of every language pair, or those with these numbers."""
        return replace(self, language_pairs={pair: every.rows(rows) for pair, every in self.language_pairs.items()})

    def every(self, step: int) -> "GradedSet":
        """Keep rows 0, `step`, 2 x `step`, ... of every language pair."""
        return self.rows(slice(None, None, step))

    def within(self, languages: Iterable[str]) -> "GradedSet":
        """Keep the language pairs with both sides in `languages`."""
        kept = set(languages)
        pairs = self.language_pairs.items()
        return replace(self, language_pairs={pair: rows for pair, rows in pairs if kept.issuperset(pair.split("-"))})

    def unseen(self, seen: Iterable[str]) -> "GradedSet":
        """Leave out rows with a sentence that was seen, in any language of a row-aligned set.

        A language pair with fewer than two rows left, which cannot be ranked, is left out as a whole.

        :param seen: sentences; case, punctuation and spaces do not count.
        """
        return self.without(self.among(seen))

    def without(self, known: set[str]) -> "GradedSet":
        """Leave out rows as `unseen` does, given what `among` returned for this set or a larger one."""
        fresh = {
            pair: {row for row, both in enumerate(zip(rows.first, rows.second, strict=True)) if known.isdisjoint(both)}
            for pair, rows in self.language_pairs.items()
        }
        if self.is_aligned and fresh:
            fresh = dict.fromkeys(fresh, set.intersection(*fresh.values()))
        kept = {pair: rows.rows(sorted(fresh[pair])) for pair, rows in self.language_pairs.items()}
        return replace(self, language_pairs={pair: rows for pair, rows in kept.items() if len(rows) > 1})

    def among(self, seen: Iterable[str]) -> set[str]:
        """Return the sentences of this set that were seen; case, punctuation and spaces do not count."""
        keys = set(map(sentence_key, seen))
        return {text for text in self.sentences() if sentence_key(text) in keys}

    def by_genre(self) -> dict[str, "GradedSet"]:
        """Return the rows of each genre of the STS benchmark; empty for other sets, and for another number of rows."""
        if not self.is_stsb:
            return {}
        rows = {len(pairs) for pairs in self.language_pairs.values()}
        genres, start = {}, 0
        for genre, count in STSB_GENRES.get(rows.pop() if len(rows) == 1 else 0, {}).items():
            part = slice(start, start := start + count)
            genres[genre] = replace(self.rows(part), name=f"{self.name}{PART}{genre}", is_stsb=False)
        return genres

    def parts(self, seen: Iterable[str]) -> list["GradedSet"]:
        """Return its genres; then, of the set and of its genres, the rows without a sentence that was seen.

        :param seen: sentences, such as those of the train split. Parts that have none of them are not repeated.
        """
        genres, known, unseen = list(self.by_genre().values()), self.among(seen), []
        for part in (self, *genres):
            fewer = part.without(known)
            if any(len(fewer.language_pairs.get(pair, ())) < len(rows) for pair, rows in part.language_pairs.items()):
                name = f"{part.name}{PART if part is self else ', '}{UNSEEN}"
                unseen.append(replace(fewer, name=name, is_stsb=False))
        return [*genres, *unseen]


@cache
def builtin() -> GradedSet:
    """Read the graded set that ships with the package, once in a process.

    :raises InputError: when it is not installed.
    """
    files = _matching(DATA, ALIGNED_TSV, "lang")
    if not files:
        raise InputError(f"{DATA}: no graded.<lang>.tsv in this installation; reinstall xcompress")
    return _read_aligned(BUILTIN, files, "tsv")


def read_folder(folder: Path) -> GradedSet:
    """Read a graded set in any of the three layouts; of CSV files, the dev split.

    :raises InputError: naming the bad file and line, or the layouts when there is none.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name one with graded similarity files")
    if files := _matching(folder, ALIGNED_TSV, "lang"):
        return _read_aligned(folder.name, files, "tsv")
    if files := _matching(folder, ALIGNED_CSV, "lang", "dev"):
        return _read_aligned(folder.name, files, "csv")
    if files := _matching(folder, PAIR_FILE, "pair"):
        pairs = {pair: _read_pairs(path, "tsv") for pair, path in files.items()}
        for pair, path in files.items():
            _check_distinct(path, pairs[pair])
        return GradedSet(folder.name, pairs)
    raise InputError(
        f"{folder}: no graded similarity files; expected graded.<lang>.tsv, stsb-<lang>-dev.csv[.xz|.gz] "
        "or files named like STS.en-de.txt"
    )


def train_sentences(folder: Path) -> set[str]:
    """Return the sentences of the train split of an STS benchmark, `stsb-<lang>-train.csv`; none without such files.

    :raises InputError: naming the line that cannot be read.
    """
    files = _matching(folder, ALIGNED_CSV, "lang", "train").values()
    return {cell for path in files for _, cells in table_rows(path, "csv", strict=False) for cell in cells[:2]}


def score(encode: Encode, graded_set: GradedSet) -> dict[str, float]:
    """Return Spearman's correlation of cosines and human scores, times 100, for every language pair.

    :param encode: maps n texts to vectors (n, D); called once, with every distinct sentence.
    """
    texts = graded_set.sentences()
    vectors = encode(texts)
    rows_by_text = {text: row for row, text in enumerate(texts)}

    def correlation(rows: GradedPairs) -> float:
        left, right = ([rows_by_text[text] for text in side] for side in (rows.first, rows.second))
        return spearman(cosines(vectors[left], vectors[right]), np.asarray(rows.scores))

    return {pair: correlation(rows) for pair, rows in graded_set.language_pairs.items()}


def averages(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the averages of scores per language pair that papers print; see `average_groups`."""
    groups = average_groups(scores)
    return {name: sum(scores[pair] for pair in pairs) / len(pairs) for name, pairs in groups.items()}


def average_groups(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Return the language pairs of each average that papers print; averages of no pair are left out.

    :returns: `en-en`, `monolingual` (every xx-xx, English too), `other monolingual` (without English), `en-xx` (English
        and another language, whichever comes first in the pair's name) and `xx-yy` (two other languages).
    """
    all_pairs = list(pairs)
    same = [pair for pair in all_pairs if len(set(pair.split("-"))) == 1]
    english = f"{PIVOT}-{PIVOT}"
    crossed = [pair for pair in all_pairs if pair not in same]
    groups = {
        "en-en": [pair for pair in same if pair == english],
        "monolingual": same,
        "other monolingual": [pair for pair in same if pair != english],
        "en-xx": [pair for pair in crossed if PIVOT in pair.split("-")],
        "xx-yy": [pair for pair in crossed if PIVOT not in pair.split("-")],
    }
    return {name: members for name, members in groups.items() if members}


def _matching(folder: Path, pattern: re.Pattern[str], group: str, split: str | None = None) -> dict[str, Path]:
    """Return the files of a folder whose names match a pattern, by one of its groups."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        match = pattern.fullmatch(path.name)
        if match and path.is_file() and (split is None or match["split"] == split):
            if duplicate := files.get(match[group]):
                raise InputError(f"{path}: {duplicate.name} holds {match[group]} too; keep one of them in the folder")
            files[match[group]] = path
    return files


def read_aligned_files(files: Mapping[str, Path], kind: Literal["csv", "tsv"]) -> dict[str, GradedPairs]:
    """Read one file per language, with the same pair and score in row n of all.

    :raises InputError: naming the bad file and line, or the row whose score differs.
    """
    tables = {language: _read_pairs(path, kind) for language, path in files.items()}
    anchor = PIVOT if PIVOT in tables else next(iter(tables))
    for language, table in tables.items():
        _check_alignment(files[language], table, files[anchor], tables[anchor])
    return tables


def _read_aligned(name: str, files: Mapping[str, Path], kind: Literal["csv", "tsv"]) -> GradedSet:
    """Read one file per language and cross their rows."""
    tables = read_aligned_files(files, kind)
    _check_distinct(next(iter(files.values())), next(iter(tables.values())))  # all have the same scores
    pairs = {f"{language}-{language}": table for language, table in tables.items()}
    for first, second in combinations(sorted(tables, key=lambda language: (language != PIVOT, language)), 2):
        pairs[f"{first}-{second}"] = GradedPairs(tables[first].first, tables[second].second, tables[first].scores)
    return GradedSet(name, pairs, is_stsb=kind == "csv", is_aligned=True)


def _check_alignment(path: Path, table: GradedPairs, anchor_path: Path, anchor: GradedPairs) -> None:
    if len(table) != len(anchor):
        raise InputError(
            f"{path}: {counted(len(table), 'row')}, but {anchor_path.name} has {len(anchor)}; "
            "row n must be the same pair in every file"
        )
    for row, (score, expected) in enumerate(zip(table.scores, anchor.scores, strict=True), 1):
        if score != expected:
            raise InputError(
                f"{path}: row {row} has score {score:g}, but {anchor_path.name} has {expected:g} there; "
                "row n must be the same pair in every file"
            )


def _check_distinct(path: Path, table: GradedPairs) -> None:
    if len(set(table.scores)) == 1:
        raise InputError(f"{path}: all scores are {table.scores[0]:g}; a rank correlation needs different ones")


def _read_pairs(path: Path, kind: Literal["csv", "tsv"]) -> GradedPairs:
    """Read the rows of one file: sentence, sentence, score."""
    rows = []
    for number, cells in table_rows(path, kind, strict=False):
        where = f"{path}:{number}"
        if len(cells) != 3:
            columns = counted(len(cells), "column")
            raise InputError(f"{where}: {columns} instead of sentence1, sentence2, score; correct this line")
        first, second = cells[0].strip(), cells[1].strip()
        if not first or not second:
            raise InputError(f"{where}: an empty sentence; correct or remove this line")
        try:
            value = float(cells[2])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"{where}: score {cells[2].strip()!r} is not a number; correct this line")
        rows.append((first, second, value))
    if len(rows) < 2:
        raise InputError(f"{path}: {counted(len(rows), 'row')}; a rank correlation needs at least 2")
    first_sentences, second_sentences, scores = zip(*rows, strict=True)
    return GradedPairs(first_sentences, second_sentences, scores)
