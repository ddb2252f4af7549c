"""Real sentences to verify an export on and, apart from these, to calibrate it on.

Four sources are read, in this order: files of the user, the corpus of the run that a student comes from, and from the
package its graded pairs and its sentences. No sentence is used for both purposes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import nsmallest
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from xcompress import console
from xcompress.corpus.graded import ALIGNED_TSV, DATA, PIVOT
from xcompress.corpus.lines import LONGEST, BrokenOffError, read_lines
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.errors import InputError
from xcompress.export.source import Source

VERIFIED = 512
"""At most so many sentences of a language are verified on; PyTorch needs about 5 s for them on one core."""
ENOUGH = 500
"""With fewer sentences of a language the user is told."""
CALIBRATED = 100
"""At most so many sentences of a language are calibrated on."""
FROM_TRAINING = 40
"""Of these so many come from the training pairs of each language."""
GIVEN = "text"
"""Stands for a language's code where the user's files do not say which one they are in."""
_CALIBRATES = 4
"""Every fourth of the package's sentences calibrates, the others verify."""
_VERIFY, _CALIBRATE = "verify", "calibrate"
_SENTENCES = re.compile(r"sentences\.(?P<lang>[a-z]{2,3})\.txt")
_NAMED = re.compile(r".*\.(?P<lang>[a-z]{2})\.(txt|tsv)(\.xz|\.gz)?")

Item = TypeVar("Item")
Found = Iterator[tuple[str, str, str]]
"""(part, language, sentence)"""


def verification_text(
    source: Source, languages: Sequence[str], extra: Sequence[Path | str] = ()
) -> dict[str, list[str]]:
    """Collect sentences to compare an export with PyTorch on.

    The user is warned of languages without sentences, and of those with fewer than `ENOUGH`. A model that would have
    none at all is compared on the package's sentences in other languages: the graph can be wrong in these, too.

    :param languages: the model's; none means those of the package.
    :param extra: the user's own text files, a sentence a line or tab-separated, plain, .gz or .xz. One whose name ends
        in `.<language>.txt` is in that language.
    :returns: by language, at most `VERIFIED` different sentences; under `GIVEN` those of no known language.
    :raises InputError: when a file of the user cannot be read or holds no text.
    """
    codes = codes_of(languages)
    text = _text_of(_VERIFY, _found(source, codes, extra))
    _warn(text, codes)
    return {code: spread(found, VERIFIED) for code, found in (text or packaged_text()).items()}


def calibration_text(source: Source, languages: Sequence[str], extra: Sequence[Path | str] = ()) -> list[str]:
    """Collect sentences to find the ranges of activations on; none of them is among those to verify on.

    :param languages: see `verification_text`; so is `extra`.
    :returns: at most `CALIBRATED` different sentences of each language, languages in turn.
    :raises InputError: when a file of the user cannot be read or holds no text.
    """
    text = _calibrates(_found(source, codes_of(languages), extra)) or _calibrates(_packaged(packaged_languages()))
    columns = [spread(sentences, CALIBRATED) for sentences in text.values()]
    in_turn = (sentence for row in zip_longest(*columns) for sentence in row if sentence is not None)
    return list({sentence_key(sentence): sentence for sentence in in_turn}.values())


def packaged_text() -> dict[str, list[str]]:
    """Collect the sentences to verify on that come with the package, by language."""
    found = _text_of(_VERIFY, _packaged(packaged_languages()))
    return {code: spread(sentences, VERIFIED) for code, sentences in found.items()}


def unverified_languages(text: Mapping[str, Sequence[str]], languages: Sequence[str]) -> list[str]:
    """Name the languages of a model that no sentence was found in.

    The user's text of no known language is taken to cover them all.
    """
    return [] if GIVEN in text else [code for code in codes_of(languages) if not text.get(code)]


def codes_of(languages: Sequence[str]) -> list[str]:
    """Return the languages as codes of two or three letters, such as `pt` for `pt-BR`; of none, the package's.

    What is no language, such as the `multilingual` of some model cards, is left out.
    """
    codes = [re.split("[-_]", language.lower())[0] for language in languages]
    return list(dict.fromkeys(code for code in codes if 2 <= len(code) <= 3)) or packaged_languages()


def packaged_languages() -> list[str]:
    """List the languages that the package has sentences in."""
    matches = (pattern.fullmatch(file.name) for file in DATA.iterdir() for pattern in (ALIGNED_TSV, _SENTENCES))
    return sorted({match["lang"] for match in matches if match})


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Choose at most `most` items, at even distances, the first among them."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def _found(source: Source, languages: Sequence[str], extra: Sequence[Path | str]) -> Found:
    for path in map(Path, extra):
        yield from _given(path, languages)
    corpus = _corpus(source.student.parent / "corpus")
    yield from (one for one in corpus if one[1] in languages)
    yield from _packaged(languages)


def _given(path: Path, languages: Sequence[str]) -> Found:
    """Yield what a user's file holds: by its hash a sentence is on one side or the other, in every file and run."""
    match = _NAMED.fullmatch(path.name)
    language = match["lang"] if match else languages[0] if len(languages) == 1 else GIVEN
    for digest, (cells, sentence) in _sampled(_cells(path), 2 * VERIFIED):
        part = _VERIFY if int(digest[-1], 16) < 8 else _CALIBRATE
        yield part, language if cells == 1 else GIVEN, sentence


def _cells(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (cells of its line, cell) for each cell that has letters.

    :raises InputError: when there is none.
    """
    bad = good = 0
    try:
        for line in read_lines(path):
            try:
                cells = line.decode().removeprefix("\ufeff").split("\t") if len(line) <= LONGEST else []
            except UnicodeDecodeError:
                cells = []
            bad += not cells
            for cell in filter(_has_letters, cells):
                good += 1
                yield len(cells), " ".join(cell.split())
    except BrokenOffError as error:
        console.warn(f"{path}: {error}; what stands before is used")
    if not good:
        raise InputError(f"{path}: no sentence in it; write a sentence a line, or tab-separated, in UTF-8")
    if bad:
        console.warn(f"{path}: {bad} lines are not UTF-8 or over {LONGEST:,} bytes; the rest is used")


def _corpus(folder: Path) -> Found:
    """Yield what a run held out, to verify on, and some of what it trained on."""
    for part, name, most in ((_VERIFY, "holdout", VERIFIED), (_CALIBRATE, "train", FROM_TRAINING)):
        for file in sorted(folder.glob(f"{name}.*.tsv")):
            language = file.name.split(".")[1]
            for pair in spread(PairFile(file, language), most) if file.stat().st_size else []:
                yield part, PIVOT, pair.source
                yield part, language, pair.target


def _packaged(languages: Iterable[str]) -> Found:
    for language in languages:
        for line in _lines(DATA / f"graded.{language}.tsv"):
            for sentence in line.split("\t")[:2]:
                yield _VERIFY, language, sentence
        for number, line in enumerate(_lines(DATA / f"sentences.{language}.txt")):
            yield _VERIFY if number % _CALIBRATES else _CALIBRATE, language, line


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def _text_of(part: str, found: Iterable[tuple[str, str, str]]) -> dict[str, list[str]]:
    text: dict[str, dict[str, str]] = {}
    for where, language, sentence in found:
        if where == part and (key := sentence_key(sentence)):
            text.setdefault(language, {}).setdefault(key, sentence.strip())
    return {language: list(sentences.values()) for language, sentences in text.items()}


def _calibrates(found: Found) -> dict[str, list[str]]:
    """Collect the sentences to calibrate on, without those that some source verifies on."""
    every = list(found)
    verified = {sentence_key(sentence) for part, _, sentence in every if part == _VERIFY}
    return _text_of(_CALIBRATE, (one for one in every if sentence_key(one[2]) not in verified))


def _sampled(cells: Iterable[tuple[int, str]], most: int) -> list[tuple[str, tuple[int, str]]]:
    """Keep those with the smallest hashes: the same ones in any order, and of a large file only a few at a time."""
    kept: dict[str, tuple[int, str]] = {}
    for cell in cells:
        kept[sha256(sentence_key(cell[1]).encode()).hexdigest()] = cell
        if len(kept) > 8 * most:
            kept = dict(nsmallest(most, kept.items()))
    return nsmallest(most, kept.items())


def _has_letters(cell: str) -> bool:
    return any(map(str.isalpha, cell))


def _warn(text: Mapping[str, Sequence[str]], codes: Sequence[str]) -> None:
    if missing := unverified_languages(text, codes):
        console.warn(f"no sentences in {', '.join(missing)} to verify with; give a file of them with --text")
    few = [f"{code} ({len(text[code])})" for code in codes if 0 < len(text.get(code, ())) < ENOUGH]
    if few:
        console.warn(f"fewer than {ENOUGH} sentences to verify with in {', '.join(few)}; give more with --text")
