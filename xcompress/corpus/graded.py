"""Graded similarity: pairs of sentences with a human score, in one language or across two, and how to score on them.

Three layouts are read: row-aligned files `graded.<lang>.tsv`, files of STS 2017 named after a language pair, and
row-aligned CSV files `stsb-<lang>-dev.csv` (or `-test`). Row-aligned files are crossed: row n gives xx-xx, and en-xx
with its first sentence in English and its second in xx.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError
from xcompress.metrics import cosines, spearman

DATA = Path(__file__).parent.parent / "data"
PIVOT = "en"
BUILTIN = "built-in"
ALIGNED_TSV = re.compile(r"graded\.(?P<lang>[a-z]{2,3})\.tsv(\.xz|\.gz)?")
ALIGNED_CSV = re.compile(r"stsb-(?P<lang>[a-z]{2,3})-(?P<split>train|dev|test)\.csv(\.xz|\.gz)?")
PAIR_FILE = re.compile(r".*\.(?P<pair>[a-z]{2,3}-[a-z]{2,3})\.(txt|tsv)(\.xz|\.gz)?")
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True)
class GradedPairs:
    """Rows of one language pair: `first[n]` and `second[n]` are as similar as `scores[n]` says."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    scores: tuple[float, ...]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.scores)

    def every(self, step: int) -> "GradedPairs":
        """Keep row 0, `step`, 2 x `step`, ..."""
        return GradedPairs(self.first[::step], self.second[::step], self.scores[::step])


@dataclass(frozen=True)
class GradedSet:
    """A test set: for every language pair, such as `en-en` or `en-de`, its graded rows."""

    name: str
    language_pairs: Mapping[str, GradedPairs]

    def sentences(self) -> list[str]:
        """List every distinct sentence once, in order of appearance."""
        pairs = self.language_pairs.values()
        return list(dict.fromkeys(text for rows in pairs for texts in (rows.first, rows.second) for text in texts))

    def every(self, step: int) -> "GradedSet":
        """Keep every `step`-th row of every language pair."""
        return GradedSet(self.name, {pair: rows.every(step) for pair, rows in self.language_pairs.items()})

    def within(self, languages: Iterable[str]) -> "GradedSet":
        """Keep the language pairs of which both sides are in `languages`."""
        kept = set(languages)
        pairs = self.language_pairs.items()
        return GradedSet(self.name, {pair: rows for pair, rows in pairs if kept.issuperset(pair.split("-"))})


def builtin() -> GradedSet:
    """Read the graded set that comes with the package.

    :raises InputError: when the installation lacks it.
    """
    files = _matching(DATA, ALIGNED_TSV, "lang")
    if not files:
        raise InputError(f"{DATA}: no graded.<lang>.tsv in this installation; reinstall xcompress")
    return _aligned(BUILTIN, files, _tsv_rows)


def read_folder(folder: Path, split: str = "dev") -> GradedSet:
    """Read a graded set in any of the three layouts.

    :param split: the part of a set that has parts, which only the CSV files do: dev or test.
    :raises InputError: naming file and line, or the layouts when none is found.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; name one with graded similarity files")
    if files := _matching(folder, ALIGNED_TSV, "lang"):
        return _aligned(folder.name, files, _tsv_rows)
    if files := _matching(folder, ALIGNED_CSV, "lang", split):
        return _aligned(folder.name, files, _csv_rows)
    if files := _matching(folder, PAIR_FILE, "pair"):
        return GradedSet(folder.name, {pair: _columns(_tsv_rows(path)) for pair, path in files.items()})
    raise InputError(
        f"{folder}: no graded similarity files; expected graded.<lang>.tsv, stsb-<lang>-{split}.csv[.xz|.gz] "
        "or files named like STS.en-de.txt"
    )


def score(encode: Encode, graded_set: GradedSet) -> dict[str, float]:
    """Return Spearman's correlation times 100 of cosines and human scores, for every language pair.

    :param encode: maps n texts to vectors (n, D); it is given every distinct sentence once.
    """
    texts = graded_set.sentences()
    vectors = encode(texts)
    place = {text: row for row, text in enumerate(texts)}

    def correlation(rows: GradedPairs) -> float:
        left, right = ([place[text] for text in side] for side in (rows.first, rows.second))
        return spearman(cosines(vectors[left], vectors[right]), np.asarray(rows.scores))

    return {pair: correlation(rows) for pair, rows in graded_set.language_pairs.items()}


def averages(scores: Mapping[str, float]) -> dict[str, float]:
    """Average scores per language pair as they are usually printed; see `average_groups`."""
    groups = average_groups(scores)
    return {name: sum(scores[pair] for pair in pairs) / len(pairs) for name, pairs in groups.items()}


def average_groups(pairs: Iterable[str]) -> dict[str, list[str]]:
    """Sort language pairs into the averages that are usually printed; one without any pair is left out.

    :returns: `en-en`, `monolingual` (every xx-xx, English too), `other monolingual` (without English) and `en-xx`
        (English and another language, whichever comes first in the pair's name).
    """
    given = list(pairs)
    same = [pair for pair in given if _is_monolingual(pair)]
    english = f"{PIVOT}-{PIVOT}"
    groups = {
        "en-en": [pair for pair in same if pair == english],
        "monolingual": same,
        "other monolingual": [pair for pair in same if pair != english],
        "en-xx": [pair for pair in given if pair not in same and PIVOT in pair.split("-")],
    }
    return {name: members for name, members in groups.items() if members}


def _is_monolingual(pair: str) -> bool:
    first, second = pair.split("-")
    return first == second


def _matching(folder: Path, pattern: re.Pattern[str], group: str, split: str | None = None) -> dict[str, Path]:
    matches = ((pattern.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    found: dict[str, Path] = {}
    for match, path in matches:
        if match and (split is None or match["split"] == split):
            if other := found.get(match[group]):
                raise InputError(f"{path}: {other.name} holds {match[group]} too; keep one of them in the folder")
            found[match[group]] = path
    return found


Row = tuple[str, str, float]


def _aligned(name: str, files: Mapping[str, Path], read: Callable[[Path], list[Row]]) -> GradedSet:
    """Read one file per language and cross their rows."""
    tables = {language: _columns(read(path)) for language, path in files.items()}
    anchor = PIVOT if PIVOT in tables else next(iter(tables))
    for language, table in tables.items():
        _check_alignment(files[language], table, files[anchor], tables[anchor])
    pairs = {f"{language}-{language}": table for language, table in tables.items()}
    if english := tables.get(PIVOT):
        others = ((language, table) for language, table in tables.items() if language != PIVOT)
        pairs |= {f"{PIVOT}-{code}": GradedPairs(english.first, rows.second, english.scores) for code, rows in others}
    return GradedSet(name, pairs)


def _check_alignment(path: Path, table: GradedPairs, anchor_path: Path, anchor: GradedPairs) -> None:
    if len(table) != len(anchor):
        raise InputError(
            f"{path}: {len(table)} rows, but {anchor_path.name} has {len(anchor)}; "
            "row n must be the same pair in every file"
        )
    for row, (given, expected) in enumerate(zip(table.scores, anchor.scores, strict=True), 1):
        if given != expected:
            raise InputError(
                f"{path}: row {row} has score {given:g}, but {anchor_path.name} has {expected:g} there; "
                "row n must be the same pair in every file"
            )


def _columns(rows: Sequence[Row]) -> GradedPairs:
    first, second, scores = zip(*rows, strict=True)
    return GradedPairs(first, second, scores)


def _tsv_rows(path: Path) -> list[Row]:
    return _rows(path, _numbered_tsv)


def _numbered_tsv(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines, 1):
        yield number, line.rstrip("\r\n").split("\t")


def _csv_rows(path: Path) -> list[Row]:
    return _rows(path, _numbered_csv)


def _numbered_csv(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines)
    for cells in reader:
        yield reader.line_num, cells


def _rows(path: Path, split: Callable[[Iterable[str]], Iterable[tuple[int, list[str]]]]) -> list[Row]:
    try:
        rows = [_row(f"{path}:{number}", cells) for number, cells in split(text_lines(path))]
    except csv.Error as error:
        raise InputError(f"{path}: no CSV ({error}); copy the file again") from error
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} rows; a rank correlation needs at least 2")
    return rows


def _row(where: str, cells: list[str]) -> Row:
    if len(cells) != 3:
        raise InputError(f"{where}: {len(cells)} columns instead of sentence1, sentence2, score; correct this line")
    first, second = cells[0].strip(), cells[1].strip()
    if not first or not second:
        raise InputError(f"{where}: an empty sentence; correct or remove this line")
    return first, second, _number(where, cells[2])


def _number(where: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: score {text.strip()!r} is not a number; correct this line")
    return value
