"""Collect real sentences to verify an export on, and others to calibrate it on.

Four sources are read, in this order: the user's files, the corpus of the run that trained the student, and the graded
pairs and the sentences of the package. No sentence is used for both purposes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from heapq import nsmallest
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from xcompress import console
from xcompress.bundle.manifest import CARD
from xcompress.corpus.graded import ALIGNED_TSV, DATA, PIVOT
from xcompress.corpus.lines import LONGEST, BadLineError, BrokenOffError, read_lines, table_rows, text_lines
from xcompress.corpus.pairs import decode_line
from xcompress.corpus.split import sentence_key
from xcompress.corpus.store import PairFile
from xcompress.errors import InputError
from xcompress.export.source import Source
from xcompress.vocab.count import FileCounter

VERIFIED = 512
"""Most sentences of a language to verify on; PyTorch needs about 5 s for them on one core."""
ENOUGH = 500
"""With fewer sentences of a language, the user is warned."""
CALIBRATED = 100
"""Most sentences of a language to calibrate on."""
FITTED = 2000
"""Most sentences of a language to shorten or centre vectors on; PyTorch needs some 5 s for them on two cores."""
FROM_TRAINING = 0.4
"""Of these, the share that comes from the training pairs of a language, at most."""
UNKNOWN = "text"
"""In place of a language's code where the user's files do not say which language they are in."""
_CALIBRATION_STEP = 4
"""Every fourth of the package's sentences is for calibration, the others for verification."""
_VERIFY, _CALIBRATE = "verify", "calibrate"
_PACKAGED_NAME = re.compile(r"sentences\.(?P<lang>[a-z]{2,3})\.txt")
_USER_NAME = re.compile(r".*\.(?P<lang>[a-z]{2,3})\.(txt|tsv)(\.xz|\.gz)?")

Item = TypeVar("Item")
Row = tuple[str, str, str]
"""(purpose, language, sentence)"""


def read_files(
    files: Sequence[Path | str], languages: Sequence[str], counters: Sequence[FileCounter] = ()
) -> list[list[Row]]:
    """Read the user's text files, each once: a pipe has no second time, and a warning is needed once.

    The hash of a sentence decides its purpose, so it is the same in every file and run.

    :param files: one sentence per line or tab-separated, plain, .gz or .xz. The name `*.<language>.txt` says the
        language.
    :param languages: see `verification_text`.
    :param counters: of the tokens of each file; none counts no tokens.
    :returns: for each file, at most 2 * `FITTED` sentences, in the order of their hashes.
    :raises InputError: when a file cannot be read or has no text.
    """
    found, codes = [], language_codes(languages)
    for path, counter in zip_longest(map(Path, files), counters):
        match = _USER_NAME.fullmatch(path.name)
        if match and (len(match["lang"]) == 2 or match["lang"] in codes):  # three letters are often a word
            language = match["lang"]
        else:
            language = codes[0] if len(codes) == 1 else UNKNOWN
        rows = []
        for digest, (columns, sentence) in _smallest_hashes(_read_cells(path, counter), 2 * FITTED):
            purpose = _VERIFY if int(digest[-1], 16) < 8 else _CALIBRATE
            rows.append((purpose, language if columns == 1 else UNKNOWN, sentence))
        found.append(rows)
    return found


def verification_text(
    source: Source, languages: Sequence[str], own: Sequence[Sequence[Row]] = ()
) -> dict[str, list[str]]:
    """Collect the sentences on which the graphs are compared with PyTorch.

    Says which languages are taken where the model names none. Warns about those with fewer than `ENOUGH` sentences.
    Where no language has any, returns the package's sentences in other languages: a broken graph shows in these, too.

    :param languages: the model's; none means those of the package.
    :param own: the user's text, from `read_files`.
    :returns: at most `VERIFIED` distinct sentences by language; those of unknown language under `UNKNOWN`.
    """
    codes = language_codes(languages)
    text = _by_language(_VERIFY, _read_all(source, codes, own))
    if not languages:
        advice = "to choose, write a line such as `language: [de, en]` into its head"
        console.say(f"the model's {CARD} names no language, so {', '.join(codes)} are verified; {advice}")
    if missing := unverified_languages(text, codes):
        advice = f"give some with --text NAME.{missing[0]}.txt"
        console.warn(f"no sentences in {', '.join(missing)} to verify with; {advice}")
    if few := [code for code in codes if 0 < len(text.get(code, ())) < ENOUGH]:
        counts = ", ".join(f"{code} ({len(text[code])})" for code in few)
        advice = f"give more with --text NAME.{few[0]}.txt"
        console.warn(f"fewer than {ENOUGH} sentences to verify with in {counts}; {advice}")
    return {code: take_evenly(sentences, VERIFIED) for code, sentences in (text or packaged_text()).items()}


def calibration_text(
    source: Source, languages: Sequence[str], own: Sequence[Sequence[Row]] = (), most: int = CALIBRATED
) -> list[str]:
    """Collect the sentences on which input ranges are measured, and on which vectors are shortened or centred.

    None of them is used for verification.

    :param languages: see `verification_text`, also for `own`.
    :param most: sentences of a language.
    :returns: at most `most` distinct sentences of each language, interleaved.
    """
    text = _calibration_only(_read_all(source, language_codes(languages), own, most))
    text = text or _calibration_only(_read_package(packaged_languages()))
    interleaved = interleave({code: take_evenly(sentences, most) for code, sentences in text.items()})
    return list({sentence_key(sentence): sentence for sentence in interleaved}.values())


def packaged_text() -> dict[str, list[str]]:
    """Return the package's sentences for verification, by language."""
    text = _by_language(_VERIFY, _read_package(packaged_languages()))
    return {code: take_evenly(sentences, VERIFIED) for code, sentences in text.items()}


def packaged_languages() -> list[str]:
    """List the languages in which the package has sentences."""
    matches = (pattern.fullmatch(file.name) for file in DATA.iterdir() for pattern in (ALIGNED_TSV, _PACKAGED_NAME))
    return sorted({match["lang"] for match in matches if match})


@cache
def real_sentences() -> tuple[str, ...]:
    """List the package's sentences for verification, languages interleaved; they are read once in a process."""
    return tuple(interleave(packaged_text()))


def unverified_languages(text: Mapping[str, Sequence[str]], languages: Sequence[str]) -> list[str]:
    """List the languages of a model for which there is no sentence.

    Text of unknown language counts for all of them.
    """
    return [] if UNKNOWN in text else [code for code in language_codes(languages) if not text.get(code)]


def language_codes(languages: Sequence[str]) -> list[str]:
    """Reduce languages to codes of two or three letters, such as `pt` for `pt-BR`.

    Drops other words, such as the `multilingual` of some model cards. Returns the package's languages if none is left.
    """
    codes = [re.split("[-_]", language.lower())[0] for language in languages]
    return list(dict.fromkeys(code for code in codes if 2 <= len(code) <= 3)) or packaged_languages()


def take_evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Take at most `most` items at even distances, starting with the first."""
    count = min(most, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def interleave(text: Mapping[str, Sequence[str]]) -> list[str]:
    """List the sentences of several languages: the first of each, then the second of each, ..."""
    return [sentence for row in zip_longest(*text.values()) for sentence in row if sentence is not None]


def _read_all(
    source: Source, languages: Sequence[str], own: Sequence[Sequence[Row]], calibrated: int = CALIBRATED
) -> Iterator[Row]:
    """Yield the sentences of all sources.

    :param calibrated: how many for calibration are needed of each language.
    """
    for rows in own:
        yield from rows[: 2 * max(VERIFIED, calibrated)]
    # the run's corpus: held-out pairs for verification, some training pairs for calibration
    folder, from_training = source.student.parent / "corpus", int(FROM_TRAINING * calibrated)
    for purpose, name, most in ((_VERIFY, "holdout", VERIFIED), (_CALIBRATE, "train", from_training)):
        for file in sorted(folder.glob(f"{name}.*.tsv")):
            language = file.name.split(".")[1]
            for pair in take_evenly(PairFile(file, language), most) if file.stat().st_size else []:
                for code, sentence in ((PIVOT, pair.source), (language, pair.target)):
                    if code in languages:
                        yield purpose, code, sentence
    yield from _read_package(languages)


def _read_cells(path: Path, counter: FileCounter | None) -> Iterator[tuple[int, str]]:
    """Yield (columns of its line, cell) for each cell that has letters.

    :raises InputError: when there is none.
    """
    bad = good = 0
    try:
        for line in read_lines(path):
            if counter:
                counter.add(line)
            try:
                cells = (decode_line(line) or "").split("\t")
            except BadLineError:
                bad, cells = bad + 1, []
            for cell in cells:
                if any(map(str.isalpha, cell)):
                    good += 1
                    yield len(cells), " ".join(cell.split())
    except BrokenOffError as error:
        console.warn(f"{path}: {error}; the lines before are used")
    if not good:
        raise InputError(f"{path}: contains no sentence; write one sentence per line, or tab-separated, in UTF-8")
    if bad:
        console.warn(
            f"{path}: {bad} lines are not UTF-8, have control characters or over {LONGEST:,} bytes; the rest is used"
        )


def _smallest_hashes(cells: Iterable[tuple[int, str]], most: int) -> list[tuple[str, tuple[int, str]]]:
    """Keep the cells with the smallest hashes: the same ones in any order, and few in memory at a time."""
    kept: dict[str, tuple[int, str]] = {}
    for cell in cells:
        kept[sha256(sentence_key(cell[1]).encode()).hexdigest()] = cell
        if len(kept) > 8 * most:
            kept = dict(nsmallest(most, kept.items()))
    return nsmallest(most, kept.items())


def _read_package(languages: Iterable[str]) -> Iterator[Row]:
    for language in languages:
        graded, sentences = DATA / f"graded.{language}.tsv", DATA / f"sentences.{language}.txt"
        for _, cells in table_rows(graded, "tsv") if graded.is_file() else ():
            for sentence in cells[:2]:
                yield _VERIFY, language, sentence
        for number, line in enumerate(text_lines(sentences) if sentences.is_file() else ()):
            yield _VERIFY if number % _CALIBRATION_STEP else _CALIBRATE, language, line


def _by_language(purpose: str, sentences: Iterable[Row]) -> dict[str, list[str]]:
    """Group the distinct sentences for one purpose by language."""
    text: dict[str, dict[str, str]] = {}
    for sentence_purpose, language, sentence in sentences:
        if sentence_purpose == purpose and (key := sentence_key(sentence)):
            text.setdefault(language, {}).setdefault(key, sentence.strip())
    return {language: list(distinct.values()) for language, distinct in text.items()}


def _calibration_only(sentences: Iterable[Row]) -> dict[str, list[str]]:
    """Group the sentences for calibration, without those that another source has for verification."""
    rows = list(sentences)
    verified = {sentence_key(sentence) for purpose, _, sentence in rows if purpose == _VERIFY}
    return _by_language(_CALIBRATE, (row for row in rows if sentence_key(row[2]) not in verified))
