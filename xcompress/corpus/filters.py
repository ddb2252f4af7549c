"""Which pairs are sentences worth learning from."""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from xcompress.corpus.normalise import PLACEHOLDER, normalise, one_sign, placeholders
from xcompress.corpus.pairs import Pair

_CODE = re.compile(r"://|\bwww\.|[{}\\<>|=^~]|\w_\w|\w\(\)|\S@\S|\w\.\w+\.\w|(?<!\S)--?\w|%[A-Za-z(]")
_NO_CHARACTER = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
_WORD = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*")
_WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SCRIPTS = {
    language: re.compile(f"[{letters}]")
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
"""Characters of a side beyond which it is no sentence and not looked at: clean-up takes quadratic time on some junk."""
OVER_TOKENS = "over max_tokens"
_FRAME = 4
"""Special tokens and marks in front of and behind a text, at most."""


@dataclass(frozen=True, slots=True)
class TokenLimit:
    """How many tokens a side may have, and who counts them."""

    most: int
    count: Callable[[str], int]

    def admits(self, text: str) -> bool:
        """Tell whether a text is short enough; it is counted where its length leaves a doubt.

        No tokenizer makes more tokens than its compatibility form has bytes, beside those that frame a text.
        """
        at_most = len(unicodedata.normalize("NFKC", text).encode()) + _FRAME
        return at_most <= self.most or self.count(text) <= self.most


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pair must satisfy to be kept.

    :param min_words: words of the English side, inserted values not counted.
    :param max_words: words of the English side.
    :param max_ratio: longer over shorter side in characters, with `slack` added to both; a Chinese, Japanese or
        Korean character counts as three.
    :param min_letters: share of letters among a side's visible characters.
    :param max_placeholders: inserted values in the English side.
    :param form: Unicode form in which a pair is kept; nfkc comes with `one_sign`. All limits but `tokens` look at nfc.
    :param tokens: of each side, in the form in which it is kept; no limit when None.
    """

    min_words: int = 4
    max_words: int = 64
    max_ratio: float = 2.5
    slack: int = 10
    min_letters: float = 0.6
    min_script: float = 0.5
    max_placeholders: int = 3
    form: Literal["nfc", "nfkc"] = "nfc"
    tokens: TokenLimit | None = None


def keep(pair: Pair, limits: Limits) -> bool:
    """Tell whether a raw or normalised pair is worth learning from."""
    return why_dropped(pair, limits) is None


def why_dropped(pair: Pair, limits: Limits) -> str | None:
    """Return in a few words why a pair is of no use, or None when it is kept."""
    kept = clean(pair, limits)
    return kept if isinstance(kept, str) else None


def clean(pair: Pair, limits: Limits) -> Pair | str:
    """Return a raw pair normalised or, in a few words, why it is of no use."""
    if len(_WORD.findall(pair.source)) < limits.min_words:  # most messages are labels: spare the work
        return "too short"
    if max(len(pair.source), len(pair.target)) > _LONGEST:
        return "too long"
    plain = Pair(normalise(pair.source), normalise(pair.target), pair.language, pair.origin)
    return _why_dropped(pair, plain, limits) or _in_form(plain, limits)


def _in_form(plain: Pair, limits: Limits) -> Pair | str:
    """Give a pair that is worth learning from its form, unless a side then has too many tokens."""
    kept = plain
    if limits.form == "nfkc":
        kept = replace(plain, source=one_sign(plain.source), target=one_sign(plain.target))
    tokens = limits.tokens
    if tokens and not all(map(tokens.admits, (kept.source, kept.target))):
        return OVER_TOKENS
    return kept


def _why_dropped(raw: Pair, plain: Pair, limits: Limits) -> str | None:
    words = sum(word != PLACEHOLDER for word in _WORD.findall(plain.source))
    if words < limits.min_words:
        return "too short"
    if words > limits.max_words:
        return "too long"
    if placeholders(raw.source) != placeholders(raw.target) or placeholders(raw.source) > limits.max_placeholders:
        return "placeholders"
    if _NO_CHARACTER.search(raw.source + raw.target):
        return "code or symbols"
    sides = (plain.source, plain.target)
    if same_key(plain.source) == same_key(plain.target):
        return "not translated"
    if any(_CODE.search(side) or _letters(side) < limits.min_letters for side in sides):
        return "code or symbols"
    if _ratio(*sides, limits.slack) > limits.max_ratio:
        return "lengths differ"
    return None if _script(plain.target, plain.language) >= limits.min_script else "wrong script"


def same_key(text: str) -> str:
    """Return what two spellings of the same text share: NFKC, case folded."""
    return unicodedata.normalize("NFKC", text).casefold()


def _letters(text: str) -> float:
    visible = [unicodedata.category(character)[0] for character in text if not character.isspace()]
    return sum(category in "LM" for category in visible) / max(len(visible), 1)


def _ratio(source: str, target: str, slack: int) -> float:
    lengths = sorted(len(side) + 2 * len(_WIDE.findall(side)) + slack for side in (source, target))
    return lengths[1] / lengths[0]


def _script(text: str, language: str) -> float:
    """Return the share of letters in the language's own script; 1 for languages in Latin letters."""
    pattern = _SCRIPTS.get(language)
    letters = [character for character in text if character.isalpha()]
    return len(pattern.findall("".join(letters))) / max(len(letters), 1) if pattern else 1.0
