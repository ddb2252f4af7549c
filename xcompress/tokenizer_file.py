"""Read a tokenizer.json that anyone may have written: refused where it would multiply a text, or fails on any."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcompress.errors import InputError, first_line
from xcompress.printable import UNPRINTABLE

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MOST_GROWTH = 100
"""How many characters a normalizer and a pre-tokenizer may make of one. SentencePiece's make 18 of a ligature."""
MOST_ADDED = 10_000
"""Characters that they may add to a text, whatever its length."""
MOST_STEPS = 100
"""Steps that they may have."""
MOST_SPECIAL_TOKENS = 100
"""Tokens that may be added to a text."""
LONGEST_TEXT = 100_000
"""Characters of a text that are tokenized; what follows them is beyond any limit on tokens."""
LONGEST_PREFIX = 1000
"""Characters of a model's prefix."""
LONGEST_TOKEN = 1000
"""Characters of a token of Unigram, and of a word that WordPiece splits: on long words, both take far longer. The
longest word of a BERT has 100."""
SCORE_STEPS = 128
"""Scores of a student's trimmed Unigram vocabulary are multiples of 1 / this, which float32 adds up exactly.

Implementations that compute in float32 and in float64 break ties between segmentations differently otherwise: in 58 of
a million sentences, SentencePiece and tokenizers did not agree on multilingual-e5-small's tokens.
"""
SPACE = "\u2581"
"""Represents a space in tokens that begin a word."""
MASK_TOKENS = ("<mask>", "[MASK]")
_LONGEST_PADDING = 1_000_000
_GROWTH = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 2, "BertNormalizer": 3, "Metaspace": 2}
"""How many characters a step of this type makes of one, at most; steps that are not here or in `_growth` make one."""
_NO_WORDS = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
_PROBE = "The 2 boats\tare “late”: ½ ﬁ \u0130 e\u0301 \ufdfa 中文 مرحبا \U0001f468\u200d\U0001f469 x"


def read_tokenizer(
    file: Path, content: bytes | None = None, remedy: str = "fetch the model or save its tokenizer again"
) -> "Tokenizer":
    """Read a tokenizer.json, check its components, and try it on a text.

    :param content: of the file, where it was read before.
    :param remedy: what to do where it cannot be used, for the error message.
    :raises InputError: when it cannot be used; the message says what is wrong with it.
    """
    from tokenizers import Tokenizer

    try:
        with as_value_error():
            content = file.read_bytes() if content is None else content
            _check_components(content)
            tokenizer: Tokenizer = Tokenizer.from_buffer(content)
            tokenizer.encode(_PROBE)
    except ValueError as error:
        raise InputError(f"{file}: not a tokenizer.json ({first_line(error)}); {remedy}") from error
    return tokenizer


@contextmanager
def as_value_error() -> Iterator[None]:
    """Raise what the tokenizers library raises as a ValueError of one line; its panics are no Exceptions.

    Ctrl-C, an exit and a lack of memory stay what they are.

    :raises InputError: when the library cannot start its threads, which is no fault of the file.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, ValueError):
        raise
    except BaseException as error:
        if "ThreadPoolBuildError" in str(error):
            raise InputError(
                "the tokenizers library can start no thread; allow more processes (ulimit -u), or set "
                "TOKENIZERS_PARALLELISM=false"
            ) from error
        raise ValueError(first_line(error)) from error


def tokenizer_to_json(tokenizer: "Tokenizer") -> dict[str, Any]:
    """Return the content of the tokenizer's tokenizer.json."""
    return json.loads(tokenizer.to_str())  # type: ignore[no-any-return]


def clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def encode_batch(
    tokenizer: "Tokenizer", texts: Sequence[str], name: object = "tokenizer", *, add_special_tokens: bool = True
) -> "list[Encoding]":
    """Tokenize texts; the encodings have no offsets.

    :param name: the tokenizer's file, for error messages.
    :raises InputError: when the tokenizer fails on a text, as its regular expressions may give up on one.
    """
    try:
        with as_value_error():
            encodings: list[Encoding] = tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
    except ValueError as error:
        raise InputError(
            f"{name}: cannot tokenize one of the texts ({first_line(error)}); leave it out, or use another tokenizer"
        ) from error
    return encodings


def id_range(tokenizer: "Tokenizer") -> int:
    """Return the highest id that a tokenizer may give + 1, also around a text and as padding.

    That is more than its number of tokens where ids are left out.
    """
    return max([*tokenizer.get_vocab().values(), *ids_around(tokenizer)], default=-1) + 1


def ids_around(tokenizer: "Tokenizer") -> set[int]:
    """Return the token ids that a tokenizer may add to those of a text: in its post-processor, and for padding."""
    return ids_of_ends(_to_json(tokenizer.post_processor), tokenizer.padding)


def ids_of_ends(post_processor: Mapping[str, Any] | None, padding: Mapping[str, Any] | None) -> set[int]:
    """Return the token ids that the entries of a tokenizer.json for post-processor and padding name."""
    ids = {padding["pad_id"]} if padding else set()
    for processor in steps_of(post_processor):
        ids |= {processor[name][1] for name in ("cls", "sep") if name in processor}
        ids |= {number for token in processor.get("special_tokens", {}).values() for number in token["ids"]}
    return ids


def steps_of(component: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """Yield the steps of a normalizer, pre-tokenizer or post-processor, which may be nested sequences, in their order.

    :param component: its entry in a tokenizer.json; None has no steps.
    """
    pending = [component] if component is not None else []
    while pending:  # without recursion, as a file may nest them deeply
        step = pending.pop()
        inner = next((step[name] for name in ("normalizers", "pretokenizers", "processors") if name in step), None)
        if inner is None:
            yield step
        else:
            pending += reversed(inner)


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
        read_tokenizer(file)


def _check_components(content: bytes) -> None:
    """Check all but the vocabulary, before the library normalizes the added tokens, as it does when it reads them."""
    from tokenizers import Tokenizer

    description = json.loads(content)
    tokenizer = Tokenizer.from_str(json.dumps({**description, "added_tokens": [], "model": _NO_WORDS}))
    _check_growth(tokenizer)
    _check_ends(tokenizer)
    _check_words(description.get("model"))


def _check_growth(tokenizer: "Tokenizer") -> None:
    """Refuse what makes a text many times as long: n characters become `times` x n + `added` at most.

    The first of Unicode's forms, the first lower-casing and the first Metaspace count as 1: real tokenizers have them,
    and nearly every text stays about as long as it is. Further ones can multiply what a `Replace` between them makes.
    """
    times, added, seen = 1.0, 0.0, set[str]()
    components = (tokenizer.normalizer, tokenizer.pre_tokenizer)
    steps = chain.from_iterable(steps_of(_to_json(component)) for component in components)
    for count, step in enumerate(steps, 1):
        kind = "form" if step["type"].startswith("NF") else step["type"]
        is_free = kind in ("form", "Lowercase", "Metaspace") and kind not in seen
        seen.add(kind)
        step_times, step_added = (1, 0) if is_free else _growth(step)
        times, added = times * step_times, added * step_times + step_added
        if times > MOST_GROWTH or added > MOST_ADDED or count > MOST_STEPS:
            raise ValueError(
                f"its normalizer and pre-tokenizer make a text over {MOST_GROWTH} times as long, or take too many steps"
            )


def _to_json(component: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a component of tokenizers, or None
    return json.loads(component.__getstate__()) if component is not None else None


def _growth(step: Mapping[str, Any]) -> tuple[float, float]:
    """Return how much longer one step makes a text: a factor, and a number of characters."""
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
    if step["type"] == "ByteLevel":  # a letter for each byte, and perhaps a space in front of each piece of the text
        return 4 + bool(step.get("add_prefix_space")), 0
    return _GROWTH.get(step["type"], 1), 0


def _check_ends(tokenizer: "Tokenizer") -> None:
    """Refuse countless special tokens, padding that would fill the memory, and a template that repeats the text."""
    special = tokenizer.num_special_tokens_to_add(False)
    if special > MOST_SPECIAL_TOKENS:
        raise ValueError(f"it adds {special:,} special tokens to a text, over {MOST_SPECIAL_TOKENS}")
    padding = tokenizer.padding or {}
    if max(padding.get("length") or 0, padding.get("pad_to_multiple_of") or 0) > _LONGEST_PADDING:
        raise ValueError(f"it pads a text to over {_LONGEST_PADDING:,} tokens")
    for processor in steps_of(_to_json(tokenizer.post_processor)):
        for key in ("single", "pair") if processor["type"] == "TemplateProcessing" else ():
            texts = [piece["Sequence"]["id"] for piece in processor[key] if "Sequence" in piece]
            if len(texts) != len(set(texts)) or (key == "single" and texts != ["A"]):
                raise ValueError(f"its template {key!r} repeats a text or lacks it")


def _check_words(model: Any) -> None:  # noqa: ANN401 - any JSON value
    """Refuse a model that would take hours for one long word; WordPiece takes the cube of its length."""
    parts = model if isinstance(model, dict) else {}
    vocabulary = parts.get("vocab")
    tokens = [entry[0] for entry in vocabulary] if isinstance(vocabulary, list) else []  # of Unigram
    longest = max([parts.get("max_input_chars_per_word", 0), *map(len, tokens)])
    if longest > LONGEST_TOKEN:
        raise ValueError(f"its words may have {longest:,} characters, over {LONGEST_TOKEN:,}")
