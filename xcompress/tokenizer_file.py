"""Read a tokenizer.json that anyone may have written: refused where it would multiply a text, or fails on any."""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcompress.errors import InputError, first_line
from xcompress.printable import UNPRINTABLE

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MOST_GROWTH = 100
"""How many characters a normalizer may make of one. SentencePiece's make 18 of a ligature."""
MOST_ADDED = 10_000
"""Characters that a normalizer may add to a text, whatever its length."""
MOST_STEPS = 100
"""Steps of a normalizer."""
MOST_SPECIAL_TOKENS = 100
"""Tokens that may be added to a text."""
LONGEST_TEXT = 100_000
"""Characters of a text that are tokenized; what follows them is beyond any limit on tokens."""
LONGEST_PREFIX = 1000
"""Characters of a model's prefix."""
SCORE_STEPS = 128
"""Scores of a student's trimmed Unigram vocabulary are multiples of 1 / this, which float32 adds up exactly.

Implementations that compute in float32 and in float64 break ties between segmentations differently otherwise: in 58 of
a million sentences, SentencePiece and tokenizers did not agree on multilingual-e5-small's tokens.
"""
_LONGEST_PADDING = 1_000_000
_PROBE = "The 2 boats\tare “late”: ½ ﬁ \u0130 e\u0301 \ufdfa 中文 مرحبا \U0001f468\u200d\U0001f469 x"


def read_tokenizer(file: Path) -> "Tokenizer":
    """Read a tokenizer.json, and try it on a text.

    :raises ValueError: saying what is wrong with it.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
        _check_growth(tokenizer)
        _check_ends(tokenizer)
        tokenizer.encode(_PROBE)
    except (KeyboardInterrupt, SystemExit, MemoryError, ValueError):
        raise
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        raise ValueError(first_line(error)) from error
    return tokenizer


def prefix_problem(prefix: str) -> str | None:
    """Return what is wrong with the text that a model expects in front of every sentence, or None."""
    if control := UNPRINTABLE.search(prefix):
        return f"holds U+{ord(control[0]):04X}, which cannot be printed"
    if len(prefix) > LONGEST_PREFIX:
        return f"has {len(prefix)} characters, more than {LONGEST_PREFIX}"
    return None


def check_tokenizers(folder: Path) -> None:
    """Check each tokenizer.json of a model that another library opens.

    :raises InputError: when `read_tokenizer` refuses one.
    """
    for file in sorted(folder.rglob("tokenizer.json")):
        try:
            read_tokenizer(file)
        except ValueError as error:
            raise InputError(f"{file}: not a tokenizer.json ({error}); fetch it again") from error


def _check_growth(tokenizer: "Tokenizer") -> None:
    """Refuse a normalizer that makes a text many times as long: n characters become `times` x n + `added` at most."""
    if tokenizer.normalizer is None:
        return
    times, added, count = 1.0, 0.0, 0
    for count, step in enumerate(_steps(json.loads(tokenizer.normalizer.__getstate__())), 1):
        step_times, step_added = _growth(step)
        times, added = times * step_times, added * step_times + step_added
        if times > MOST_GROWTH or added > MOST_ADDED or count > MOST_STEPS:
            raise ValueError(f"its normalizer makes a text over {MOST_GROWTH} times as long, or takes too many steps")


def _steps(normalizer: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if normalizer["type"] != "Sequence":
        yield normalizer
        return
    for step in normalizer["normalizers"]:
        yield from _steps(step)


def _growth(step: Mapping[str, Any]) -> tuple[float, float]:
    """Return how much longer one step makes a text: a factor, and a number of characters.

    Unicode's own forms count as 1: however many of them follow each other, together they make 18 characters of one.
    """
    if step["type"] == "Prepend":
        return 1, len(step["prepend"])
    if step["type"] == "Replace":
        found, content = step["pattern"].get("String"), len(step["content"])
        if found:
            return max(1.0, content / len(found)), 0
        return max(1, 1 + content), content  # a regular expression may match nothing between any two characters
    if step["type"] == "Precompiled":
        table = base64.b64decode(step["precompiled_charsmap"])
        replacements = table[4 + int.from_bytes(table[:4], "little") :]
        return max(1, *(len(text.decode("utf-8", "replace")) for text in replacements.split(b"\0"))), 0
    return 1, 0


def _check_ends(tokenizer: "Tokenizer") -> None:
    """Refuse countless special tokens, and padding that would fill the memory."""
    special = tokenizer.num_special_tokens_to_add(False)
    if special > MOST_SPECIAL_TOKENS:
        raise ValueError(f"it adds {special:,} special tokens to a text, over {MOST_SPECIAL_TOKENS}")
    padding = tokenizer.padding or {}
    if max(padding.get("length") or 0, padding.get("pad_to_multiple_of") or 0) > _LONGEST_PADDING:
        raise ValueError(f"it pads a text to over {_LONGEST_PADDING:,} tokens")
