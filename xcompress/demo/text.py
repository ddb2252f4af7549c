"""What the page searches: sentences that come with the package, or the user's own."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from xcompress.corpus.graded import DATA
from xcompress.corpus.lines import text_lines
from xcompress.errors import InputError

MOST = 20_000
"""More sentences than that make the page slow to load."""
SHARE = (0, 1, 3, 6)
"""Sentence n is there in language n, n + 1, n + 3 and n + 6: every two of eight languages share some."""
EXAMPLES = 5
SAME = 5
"""The grade of pairs that mean the same."""
_NAMED = re.compile(r".*\.(?P<lang>[a-z]{2,3})\.(txt|tsv)(\.xz|\.gz)?")
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]{2,4})?")
_PAIRS = re.compile(r"graded\.(?P<lang>[a-z]{2,3})\.tsv")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the code of its language, which is empty where nobody said it."""

    language: str
    text: str


@dataclass(frozen=True)
class DemoText:
    """What is searched, and queries to start with."""

    sentences: tuple[Sentence, ...]
    examples: tuple[Sentence, ...]

    @property
    def languages(self) -> list[str]:
        """The languages of the sentences, in order of appearance."""
        return list(dict.fromkeys(sentence.language for sentence in self.sentences if sentence.language))


def packaged_text(languages: Sequence[str]) -> DemoText:
    """Take the package's sentences; each is there in four of the languages, so that one screen shows several.

    The examples say in other words what one of the sentences says.

    :param languages: those of the model; none means all that the package has.
    :raises InputError: when the package has text in none of them.
    """
    codes = [code for code in _packaged_languages() if not languages or code in _codes(languages)]
    if not codes:
        raise InputError(f"demo: no sentences in {', '.join(languages)} come with xcompress; give some with --text")
    columns = {code: _pairs(code) for code in codes}
    sentences = [
        Sentence(code, columns[code][row][0])
        for row in range(len(columns[codes[0]]))
        for code in dict.fromkeys(codes[(row + step) % len(codes)] for step in SHARE)
    ]
    return DemoText(tuple(sentences), tuple(_examples(columns)))


def own_text(file: Path) -> DemoText:
    """Read a user's file: a sentence a line, or `language<TAB>sentence`; plain, .gz or .xz.

    A file that is named like `news.de.txt` is in that language.

    :raises InputError: when it cannot be read, holds no text, or too much of it.
    """
    match = _NAMED.fullmatch(file.name)
    lines = (_sentence(line, match["lang"] if match else "") for line in text_lines(file))
    sentences = list(islice(dict.fromkeys(one for one in lines if one.text), MOST + 1))
    if not sentences:
        raise InputError(f"{file}: holds no text; give a file with a sentence a line")
    if len(sentences) > MOST:
        raise InputError(f"{file}: more than {MOST:,} sentences, too many for a page; give fewer")
    step = max(1, len(sentences) // EXAMPLES)
    return DemoText(tuple(sentences), tuple(sentences[step // 2 :: step][:EXAMPLES]))


def _sentence(line: str, language: str) -> Sentence:
    code, tab, text = line.strip().partition("\t")
    if tab and _CODE.fullmatch(code):
        return Sentence(code, " ".join(text.split()))
    return Sentence(language, " ".join(line.split()))


def _codes(languages: Sequence[str]) -> set[str]:
    return {re.split("[-_]", language.lower())[0] for language in languages}


def _packaged_languages() -> list[str]:
    """List the languages of the graded pairs, English first."""
    matches = (_PAIRS.fullmatch(file.name) for file in DATA.iterdir())
    codes = sorted(match["lang"] for match in matches if match)
    return sorted(codes, key=lambda code: code != "en")


def _pairs(language: str) -> list[list[str]]:
    lines = (DATA / f"graded.{language}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def _examples(columns: dict[str, list[list[str]]]) -> list[Sentence]:
    """Take the shortest sentence of each language that means the same as another, and none in two languages."""
    rows = next(iter(columns.values()))
    same = {row for row in range(len(rows)) if float(rows[row][2]) == SAME}
    examples = []
    for code in islice(cycle(columns), EXAMPLES):
        row = min(same, key=lambda row: (len(columns[code][row][1]), row))
        same.remove(row)
        examples.append(Sentence(code, columns[code][row][1]))
    return examples
