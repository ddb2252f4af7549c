"""The sentences that the demo page searches: those that come with the package, or the user's own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from xcompress.corpus.graded import PIVOT, builtin
from xcompress.corpus.languages import is_language
from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError

MAX_SENTENCES = 20_000
"""With more sentences the page loads slowly."""
EXAMPLES = 5
"""Number of example queries."""
_LANGUAGE_OFFSETS = (0, 1, 3, 6)
"""Sentence n is taken in the languages n, n + 1, n + 3 and n + 6: of eight languages, any two share some sentences."""
_EVERY = 4
"""Every fourth pair of the package is searched, which keeps the page small."""
_PARAPHRASE_GRADE = 5
_LANGUAGE_IN_NAME = re.compile(r".*\.(?P<language>[a-z]{2,3})\.(txt|tsv)(\.xz|\.gz)?")
_LANGUAGE_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]{2,4})?")


@dataclass(frozen=True)
class Sentence:
    """A sentence and its language code, empty if unknown."""

    language: str
    text: str


@dataclass(frozen=True)
class DemoText:
    """The sentences to search, and example queries."""

    sentences: tuple[Sentence, ...]
    examples: tuple[Sentence, ...]

    @property
    def languages(self) -> list[str]:
        """The languages of the sentences, in order of appearance."""
        return list(dict.fromkeys(sentence.language for sentence in self.sentences if sentence.language))


def packaged_sentences(languages: Sequence[str]) -> DemoText:
    """Take graded pairs of the package, each first sentence in up to four languages, so that results mix languages.

    The examples are paraphrases of sentences that are searched.

    :param languages: languages of the model; empty means all that the package has.
    :raises InputError: when the package has no text in these languages.
    """
    # The languages of the package that the model knows, English first.
    pairs = builtin().every(_EVERY).language_pairs
    packaged = sorted({pair.split("-")[0] for pair in pairs}, key=lambda code: (code != PIVOT, code))
    wanted = {re.split("[-_]", language.lower())[0] for language in languages}
    codes = [code for code in packaged if not languages or code in wanted]
    if not codes:
        raise InputError(f"demo: xcompress ships no sentences in {', '.join(languages)}; give your own with --text")

    rows = {code: pairs[f"{code}-{code}"] for code in codes}
    sentences = [
        Sentence(code, rows[code].first[row])
        for row in range(len(rows[codes[0]]))
        for code in dict.fromkeys(codes[(row + offset) % len(codes)] for offset in _LANGUAGE_OFFSETS)
    ]

    # For each example, the shortest paraphrase in the next language; no pair is used twice.
    paraphrases = {row for row, grade in enumerate(rows[codes[0]].scores) if grade == _PARAPHRASE_GRADE}
    examples = []
    for code in islice(cycle(codes), EXAMPLES):
        lengths = {row: len(rows[code].second[row]) for row in paraphrases}
        row = min(lengths, key=lambda row: (lengths[row], row))
        paraphrases.remove(row)
        examples.append(Sentence(code, rows[code].second[row]))
    return DemoText(tuple(sentences), tuple(examples))


def read_sentences(path: Path) -> DemoText:
    """Read a file with a sentence or `language<TAB>sentence` on each line; plain, .gz or .xz.

    Lines without a language have that of the file name, such as `news.de.txt`.

    :raises InputError: when the file cannot be read, holds no text, or too much.
    """
    match = _LANGUAGE_IN_NAME.fullmatch(path.name)
    file_language = match["language"] if match and is_language(match["language"]) else ""
    distinct: dict[Sentence, None] = {}
    for line in text_lines(path):
        code, tab, text = line.strip().partition("\t")
        language, text = (code, text) if tab and _LANGUAGE_CODE.fullmatch(code) else (file_language, line)
        if text := " ".join(text.split()):
            distinct[Sentence(language, text)] = None
        if len(distinct) > MAX_SENTENCES:
            raise InputError(f"{path}: more than {MAX_SENTENCES:,} sentences, too many for a page; give fewer")
    sentences = tuple(distinct)
    if not sentences:
        raise InputError(f"{path}: contains no text; give a file with one sentence per line")
    step = max(1, len(sentences) // EXAMPLES)
    return DemoText(sentences, sentences[step // 2 :: step][:EXAMPLES])
