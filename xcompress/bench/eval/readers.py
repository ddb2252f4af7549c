"""Read the files of test sets strictly: every error names the file and the line."""

import re
from collections.abc import Sequence
from pathlib import Path

from xcompress.bench.eval.classification import LabelledRows
from xcompress.bench.eval.task import SentencePairs
from xcompress.corpus.graded import PIVOT
from xcompress.corpus.languages import is_language, short_code
from xcompress.corpus.lines import table_rows, text_lines
from xcompress.errors import InputError
from xcompress.files import hash_of

_COMPRESSED = r"(\.xz|\.gz)?"
TATOEBA = re.compile(rf"(?P<name>.+)\.(?P<other>[a-z]{{3}})-eng\.(?P<side>[a-z]{{3}}){_COMPRESSED}")
LABELLED = re.compile(rf"(?P<lang>[a-z]{{2,3}})\.(?P<split>train|dev|test)\.tsv{_COMPRESSED}")
PLAIN = re.compile(rf"(?P<name>.+)\.(?P<lang>[a-z]{{2,3}})\.txt{_COMPRESSED}")
ENGLISH = "eng"
"""English in the names of Tatoeba's files."""


def matching(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], Path]]:
    """List the files whose names match.

    The group `lang` must be a language code, see `is_language`.
    """
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    matches = ((match, path) for path in files if (match := pattern.fullmatch(path.name)))
    return [(match, path) for match, path in matches if is_language(match.groupdict().get("lang", PIVOT))]


def read_holdouts(folder: Path) -> dict[str, SentencePairs]:
    """Read `holdout.<lang>.tsv` files of `english<TAB>translation`, by language.

    Rows that repeat a sentence of either side are left out.

    :raises InputError: naming file and line.
    """
    return {path.name.split(".")[1]: _read_holdout(path) for path in sorted(folder.glob("holdout.*.tsv"))}


def sample_pairs(rows: Sequence[tuple[str, str]], most: int) -> SentencePairs:
    """Return at most `most` of the pairs.

    The choice depends on the English sentence alone: languages that share sentences keep the same ones, and those are
    encoded once.
    """
    return tuple(sorted(rows, key=lambda row: hash_of(row[0]))[:most])


def read_tatoeba(folder: Path) -> dict[str, dict[str, SentencePairs]]:
    """Read line-aligned files `<name>.<xxx>-eng.<xxx>` and `<name>.<xxx>-eng.eng`, by name and language.

    :raises InputError: naming the file, and the line where there is one.
    """
    sides: dict[tuple[str, str], dict[str, Path]] = {}
    for match, path in matching(folder, TATOEBA):
        _add_file(sides.setdefault((match["name"], match["other"]), {}), match["side"], path)
    sets: dict[str, dict[str, SentencePairs]] = {}
    for (name, code), files in sides.items():
        languages = sets.setdefault(name, {})
        key = code if short_code(code) in languages else short_code(code)
        languages[key] = _read_aligned(code, files)
    return sets


def read_labelled(folder: Path, split: str) -> dict[str, LabelledRows]:
    """Read the files `<lang>.<split>.tsv`, by language.

    :raises InputError: naming file and line.
    """
    files: dict[str, Path] = {}
    for match, path in matching(folder, LABELLED):
        if match["split"] == split:
            _add_file(files, short_code(match["lang"]), path)
    return {language: _read_labels(path) for language, path in files.items()}


def read_plain(folder: Path) -> dict[str, list[str]]:
    """Read the files `<name>.<lang>.txt`, by language; several files of one language are joined.

    :raises InputError: naming file and line.
    """
    sentences: dict[str, list[str]] = {}
    for match, path in matching(folder, PLAIN):
        sentences.setdefault(short_code(match["lang"]), []).extend(read_sentences(path))
    return sentences


def read_sentences(path: Path) -> list[str]:
    """Read a file with one sentence per line, without repetitions, in order.

    :raises InputError: naming file and line.
    """
    return list(dict.fromkeys(text for line in text_lines(path) if (text := line.strip())))


def _add_file(files: dict[str, Path], key: str, path: Path) -> None:
    if key in files:
        raise InputError(f"{path}: {files[key].name} holds {key} too; keep one of them in the folder")
    files[key] = path


def _read_holdout(path: Path) -> SentencePairs:
    english_seen: set[str] = set()
    translated_seen: set[str] = set()
    rows = []
    for number, cells in table_rows(path, "tsv"):
        if len(cells) != 2:
            raise InputError(f"{path}:{number}: expected 2 columns (english, translation), found {len(cells)}; fix it")
        english, translated = cells
        if english not in english_seen and translated not in translated_seen:
            rows.append((english, translated))
        english_seen.add(english)
        translated_seen.add(translated)
    return tuple(rows)


def _read_aligned(code: str, files: dict[str, Path]) -> SentencePairs:
    """Read both sides of one language."""
    if set(files) != {code, ENGLISH}:
        path = next(iter(files.values()))
        raise InputError(f"{path}: the other side is missing; copy both files, .{code} and .{ENGLISH}")
    sides = {}
    for side, path in sorted(files.items(), key=lambda item: item[0] != ENGLISH):
        sides[side] = [line.strip() for line in text_lines(path)]
        if "" in sides[side]:
            raise InputError(f"{path}:{sides[side].index('') + 1}: an empty line; remove it from both files")
    english, translated = sides[ENGLISH], sides[code]
    if len(english) != len(translated):
        raise InputError(
            f"{files[code]}: {len(translated)} lines, but {files[ENGLISH].name} has {len(english)}; "
            "line n of one must be the translation of line n of the other"
        )
    if len(english) < 2:
        raise InputError(f"{files[code]}: retrieval needs at least 2 lines, found {len(english)}")
    return tuple(zip(english, translated, strict=True))


def _read_labels(path: Path) -> LabelledRows:
    """Read `label<TAB>text` or, where the first line has three columns, `id<TAB>label<TAB>text`."""
    rows: list[tuple[str, str]] = []
    columns = 2
    for number, cells in table_rows(path, "tsv"):
        where = f"{path}:{number}"
        columns = 3 if not rows and len(cells) == 3 else columns
        if len(cells) != columns:
            raise InputError(f"{where}: expected {columns} columns (label, text), found {len(cells)}; correct it")
        label, text = (cell.strip() for cell in cells[-2:])
        if not label or not text:
            raise InputError(f"{where}: an empty {'text' if label else 'label'}; correct or remove this line")
        if not rows and label.casefold() == "label":
            raise InputError(f"{where}: the names of the columns; remove this line")
        rows.append((label, text))
    if len(rows) < 2:
        raise InputError(f"{path}: classification needs at least 2 rows, found {len(rows)}")
    return tuple(rows)
