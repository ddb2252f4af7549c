"""Filters: which parallel pairs to train on."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from tokenizers import Tokenizer

from xcompress.corpus.normalise import PLACEHOLDER, normalise, one_sign, placeholders
from xcompress.corpus.pairs import Pair

_CODE = re.compile(
    r"""
    [{}\\<>|=^~:._(@%-] (?:         # the search skips to the next one of these, and looks around it
      (?<= [{}\\<>|=^~] )
    | (?<= : ) //
    | (?<= \bwww\. )
    | (?<= \w\. ) \w+\.\w
    | (?<= \w_ ) \w
    | (?<= \w\( ) \)
    | (?<= \S@ ) \S
    | (?<= % ) [A-Za-z(]
    | (?<= - ) (?<! \S- ) -?\w
    )
    """,
    re.X,
)
_INVALID = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_WORD = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*")
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SCRIPTS = {
    language: re.compile(f"[{letters}]+")
    for languages, letters in {
        "ar fa ur": "\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff",
        "ru uk bg mk be": "\u0400-\u04ff",
        "el": "\u0370-\u03ff\u1f00-\u1fff",
        "he": "\u0590-\u05ff",
        "hi mr ne": "\u0900-\u097f",
        "ja": "\u3040-\u30ff\u4e00-\u9fff",
        "ko": "\uac00-\ud7af",
        "th": "\u0e00-\u0e7f",
        "zh": "\u3400-\u9fff",
    }.items()
    for language in languages.split()
}
_LONGEST = 2000
"""Characters of a side; a longer one is dropped unseen, as normalisation takes quadratic time on some junk."""
_ADDED_TO_SIDES = 10
"""Characters that are added to both sides before their lengths are compared."""
_MIN_LETTERS = 0.6
"""Share of letters among a side's visible characters."""
_MIN_SCRIPT = 0.5
"""Share of letters in the script of the language."""
_MAX_PLACEHOLDERS = 3
"""Placeholders in the English side."""
OVER_TOKENS = "over max_tokens"
_MOST_SPECIAL_TOKENS = 4
"""Most special tokens that a tokenizer adds to a text."""


class _Letters(dict[str, bool]):
    """Whether a character is a letter or an accent; looked up once for each."""

    def __missing__(self, character: str) -> bool:
        self[character] = unicodedata.category(character)[0] in "LM"
        return self[character]


_IS_LETTER = _Letters()


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """The largest number of tokens of a side."""

    most: int
    count: Callable[[str], int]
    """Returns the number of tokens of a text, special tokens included."""

    def admits(self, text: str) -> bool:
        """Tell whether a text is short enough; only texts that may be too long are tokenized.

        No tokenizer makes more tokens than the text has bytes, as it is or in NFKC, special tokens not counted.
        """
        forms = text, unicodedata.normalize("NFKC", text)
        at_most = max(len(form.encode()) for form in forms) + _MOST_SPECIAL_TOKENS
        return at_most <= self.most or self.count(text) <= self.most


def length_in_tokens(tokenizer: Tokenizer, text: str) -> int:
    """Return the number of tokens of a text, special tokens included; the tokenizer must neither truncate nor pad."""
    return len(tokenizer.encode(text).ids)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a pair must keep.

    :param min_words: words of the English side, without placeholders.
    :param max_words: words of the English side.
    :param max_ratio: characters of the longer side / those of the shorter one, after adding 10 to both; a Chinese,
        Japanese or Korean character counts as three.
    :param form: Unicode normalisation of the pairs that are kept; nfkc includes `one_sign`. All limits but `tokens` are
        checked in nfc.
    :param tokens: of each side, in the form that is kept; no limit when None.
    """

    min_words: int = 4
    max_words: int = 64
    max_ratio: float = 2.5
    form: Literal["nfc", "nfkc"] = "nfc"
    tokens: TokenLimit | None = None


def clean(pair: Pair, limits: Limits) -> Pair | str:
    """Return a raw pair normalised, or in a few words why it is dropped."""
    if len(_words(pair.source)) < limits.min_words:  # saves work: most interface messages are labels
        return "too short"
    if max(len(pair.source), len(pair.target)) > _LONGEST:
        return "too long"
    plain = Pair(normalise(pair.source), normalise(pair.target), pair.language, pair.origin)
    reason = _why_dropped(pair, plain, limits)
    if reason:
        return reason
    if limits.form == "nfkc":
        plain = replace(plain, source=one_sign(plain.source), target=one_sign(plain.target))
    if limits.tokens and not all(map(limits.tokens.admits, (plain.source, plain.target))):
        return OVER_TOKENS
    return plain


def _why_dropped(raw: Pair, plain: Pair, limits: Limits) -> str | None:
    words = len(_words(plain.source)) - _words(plain.source).count(PLACEHOLDER)
    if words < limits.min_words:
        return "too short"
    if words > limits.max_words:
        return "too long"
    if not placeholders(raw.target) == placeholders(raw.source) <= _MAX_PLACEHOLDERS:
        return "placeholders"
    if _INVALID.search(raw.source + raw.target):
        return "code or symbols"
    if same_key(plain.source) == same_key(plain.target):
        return "not translated"
    sides = (plain.source, plain.target)
    if any(_CODE.search(side) or _share_of_letters(side) < _MIN_LETTERS for side in sides):
        return "code or symbols"
    shorter, longer = sorted(len(side) + 2 * len(_WIDE.findall(side)) + _ADDED_TO_SIDES for side in sides)
    if longer / shorter > limits.max_ratio:
        return "lengths differ"
    return None if _share_in_script(plain.target, plain.language) >= _MIN_SCRIPT else "wrong script"


def same_key(text: str) -> str:
    """Return a key that texts share if they differ only in case or compatibility form: NFKC, case folded."""
    return unicodedata.normalize("NFKC", text).casefold()


@lru_cache(1)  # most sentences are the same in raw and normalised form
def _words(text: str) -> Sequence[str]:
    return _WORD.findall(text)


def _share_of_letters(text: str) -> float:
    """Return the share of letters and accents among the visible characters of a normalised text."""
    return sum(map(_IS_LETTER.__getitem__, text)) / max(len(text) - text.count(" "), 1)


def _share_in_script(text: str, language: str) -> float:
    """Return the share of letters in the script of a language; 1 for languages in Latin script."""
    if language not in _SCRIPTS:
        return 1.0
    letters = "".join(filter(str.isalpha, text))
    return len("".join(_SCRIPTS[language].findall(letters))) / max(len(letters), 1)
