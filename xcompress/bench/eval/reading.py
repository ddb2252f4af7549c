"""The files of tests, read strictly: what is not as it should be is named with file and line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from xcompress.bench.eval.classification import Labelled
from xcompress.bench.eval.folders import LABELLED, TATOEBA, matching
from xcompress.bench.eval.languages import short
from xcompress.bench.eval.retrieval import Translations
from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError
from xcompress.files import hash_of

ENGLISH = "eng"


def read_holdouts(folder: Path) -> dict[str, Translations]:
    """Read `holdout.<lang>.tsv` files of `english<TAB>translation`, by language.

    :raises InputError: naming file and line.
    """
    return {path.name.split(".")[1]: tuple(_holdout(path)) for path in sorted(folder.glob("holdout.*.tsv"))}


def sample_pairs(rows: Sequence[tuple[str, str]], most: int) -> Translations:
    """Return some of the pairs.

    :param most: how many at most; which ones depends on the English sentence alone, so that languages that share
        sentences keep the same ones and those are encoded once.
    """
    return tuple(sorted(rows, key=lambda row: hash_of(row[0]))[:most])


def read_tatoeba(folder: Path) -> dict[str, dict[str, Translations]]:
    """Read line-aligned files `<name>.<xxx>-eng.<xxx>` and `<name>.<xxx>-eng.eng`, by name and language.

    :raises InputError: naming the file, and the line where there is one.
    """
    sides: dict[tuple[str, str], dict[str, Path]] = {}
    for match, path in matching(folder, TATOEBA):
        _add(sides.setdefault((match["name"], match["other"]), {}), match["side"], path)
    tests: dict[str, dict[str, Translations]] = {}
    for (name, code), files in sides.items():
        test = tests.setdefault(name, {})
        test[code if short(code) in test else short(code)] = _aligned(code, files)
    return tests


def read_labelled(folder: Path, split: str) -> dict[str, Labelled]:
    """Read the files `<lang>.<split>.tsv`, by language.

    :raises InputError: naming file and line.
    """
    files: dict[str, Path] = {}
    for match, path in matching(folder, LABELLED):
        if match["split"] == split:
            _add(files, short(match["lang"]), path)
    return {language: _labels(path) for language, path in files.items()}


def read_sentences(path: Path) -> list[str]:
    """Read a file of one sentence a line: each distinct one once, in order.

    :raises InputError: naming file and line.
    """
    return list(dict.fromkeys(text for line in text_lines(path) if (text := line.strip())))


def _add(files: dict[str, Path], key: str, path: Path) -> None:
    if key in files:
        raise InputError(f"{path}: {files[key].name} holds {key} too; keep one of them in the folder")
    files[key] = path


def _holdout(path: Path) -> list[tuple[str, str]]:
    """Read the rows of one file, without those that repeat a sentence of either side."""
    english_seen: set[str] = set()
    other_seen: set[str] = set()
    rows = []
    for where, cells in _tsv(path):
        if len(cells) != 2:
            raise InputError(f"{where}: {len(cells)} columns instead of 2 (english, translation); correct it")
        english, other = cells
        if english not in english_seen and other not in other_seen:
            rows.append((english, other))
        english_seen.add(english)
        other_seen.add(other)
    return rows


def _aligned(code: str, files: dict[str, Path]) -> Translations:
    """Read both sides of one language."""
    given = next(iter(files.values()))
    if set(files) != {code, ENGLISH}:
        raise InputError(
            f"{given}: needs its other side, but .{code} and .{ENGLISH} are not both there; copy both files"
        )
    english, other = (_side(files[side]) for side in (ENGLISH, code))
    if len(english) != len(other):
        raise InputError(
            f"{files[code]}: {len(other)} lines, but {files[ENGLISH].name} has {len(english)}; "
            "line n of one must be the translation of line n of the other"
        )
    if len(english) < 2:
        raise InputError(f"{files[code]}: {len(english)} lines; retrieval needs at least 2")
    return tuple(zip(english, other, strict=True))


def _side(path: Path) -> list[str]:
    sentences = [line.strip() for line in text_lines(path)]
    if "" in sentences:
        raise InputError(f"{path}:{sentences.index('') + 1}: an empty line; remove it from both files")
    return sentences


def _labels(path: Path) -> Labelled:
    """Read `label<TAB>text` or, where the first line has three columns, `id<TAB>label<TAB>text`."""
    rows: list[tuple[str, str]] = []
    columns = 2
    for where, cells in _tsv(path):
        columns = 3 if not rows and len(cells) == 3 else columns
        if len(cells) != columns:
            raise InputError(f"{where}: {len(cells)} columns instead of {columns} (label, text); correct it")
        label, text = (cell.strip() for cell in cells[-2:])
        if not label or not text:
            raise InputError(f"{where}: an empty {'text' if label else 'label'}; correct or remove this line")
        rows.append((label, text))
    if len(rows) < 2:
        raise InputError(f"{path}: {len(rows)} rows; classification needs at least 2")
    return tuple(rows)


def _tsv(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield file and line, and the columns there."""
    for number, line in enumerate(text_lines(path), 1):
        yield f"{path}:{number}", line.rstrip("\r\n").split("\t")
