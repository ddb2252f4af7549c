"""The tokenizer.json of Unigram, WordPiece and BPE: trim its vocabulary, follow its merges, read its tokens as text."""

import unicodedata
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush
from typing import Any

from tokenizers import pre_tokenizers

from xcompress.errors import InputError
from xcompress.tokenizer_file import SCORE_STEPS, SPACE, ids_of_ends, steps_of

TRIMMABLE = ("Unigram", "WordPiece", "BPE")
ASCII = frozenset(map(chr, range(33, 127)))
_PUNCTUATION = ("P", "Sc", "Sm")
_SIGNS = ("Nd", *_PUNCTUATION)

TokenizerJson = Mapping[str, Any]
"""The content of a tokenizer.json, or of a part of it such as its model."""
Pair = tuple[str, str]


def check_trimmable(tokenizer_json: TokenizerJson) -> None:
    """Refuse a tokenizer whose vocabulary cannot be trimmed.

    :raises InputError: when its model is not in `TRIMMABLE`.
    """
    kind = tokenizer_json["model"].get("type")
    if kind not in TRIMMABLE:
        raise InputError(
            f"vocabulary: the tokenizer is {kind}, only {', '.join(TRIMMABLE)} can be trimmed; "
            "keep its vocabulary: export it without --languages and --vocabulary, in a recipe vocabulary.method: keep"
        )


def model_vocabulary(model: TokenizerJson) -> dict[str, int]:
    """Map the tokens of a model to their ids, without added tokens."""
    if model["type"] == "Unigram":
        return {token: number for number, (token, _) in enumerate(model["vocab"])}
    return dict(model["vocab"])


def unknown_id(model: TokenizerJson) -> int | None:
    """Return the id of the unknown token."""
    if model["type"] == "Unigram":
        return model["unk_id"]  # type: ignore[no-any-return]
    return model["vocab"].get(model.get("unk_token"))  # type: ignore[no-any-return]


def is_byte_level(tokenizer_json: TokenizerJson) -> bool:
    """Tell whether the tokenizer replaces text by characters that represent its bytes."""
    components = (tokenizer_json.get("pre_tokenizer"), tokenizer_json.get("normalizer"))
    return any(part["type"] == "ByteLevel" for component in components for part in steps_of(component))


def required_ids(tokenizer_json: TokenizerJson) -> set[int]:
    """Return the ids that every trimmed tokenizer needs.

    These are the added tokens, the ids in the post-processor and the padding, the unknown token, and the tokens that
    represent bytes.
    """
    model = tokenizer_json["model"]
    vocabulary = model_vocabulary(model)
    byte_letters = pre_tokenizers.ByteLevel.alphabet() if is_byte_level(tokenizer_json) else []
    byte_fallback = [f"<0x{byte:02X}>" for byte in range(256)] if model.get("byte_fallback") else []
    ids = {vocabulary[token] for token in (*byte_letters, *byte_fallback) if token in vocabulary}
    unknown = unknown_id(model)
    return ids | _referenced_ids(tokenizer_json) | ({unknown} if unknown is not None else set())


def add_merge_steps(tokenizer_json: TokenizerJson, ids: Iterable[int]) -> set[int]:
    """Add the tokens through which BPE merges form the given tokens; other models need none."""
    chosen = set(ids)
    model = tokenizer_json["model"]
    if model["type"] != "BPE":
        return chosen
    merges, vocabulary = Merges.from_model(model), model_vocabulary(model)
    steps = {step for token, number in vocabulary.items() if number in chosen for step in merges.steps(token)}
    return chosen | {vocabulary[step] for step in steps}


def renumber(tokenizer_json: TokenizerJson, new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the tokenizer with only the tokens that have a new id.

    Normalizer, pre-tokenizer and decoder hold no ids and stay as they are.

    :param new_ids: new ids by old ones, in the same order; the required ids are among them.
    :raises InputError: when the model cannot be trimmed, or a required id is missing.
    """
    check_trimmable(tokenizer_json)
    missing = sorted(_referenced_ids(tokenizer_json) - new_ids.keys())
    if missing:
        raise InputError(f"vocabulary: ids {missing} cannot be removed, as other parts of tokenizer.json refer to them")
    model = tokenizer_json["model"]
    if model["type"] == "Unigram":
        vocabulary = [entry for number, entry in enumerate(model["vocab"]) if number in new_ids]
        unknown = model["unk_id"]
        trimmed = {**model, "vocab": vocabulary, "unk_id": None if unknown is None else new_ids[unknown]}
    else:
        ordered = sorted(model["vocab"].items(), key=lambda entry: entry[1])
        trimmed = {**model, "vocab": {token: new_ids[number] for token, number in ordered if number in new_ids}}
    if model["type"] == "BPE":
        trimmed["merges"] = Merges.from_model(model).among(trimmed["vocab"])
    return replace_model(tokenizer_json, trimmed, new_ids)


def round_scores(tokenizer_json: TokenizerJson) -> dict[str, Any]:
    """Return a Unigram tokenizer with its scores rounded to `SCORE_STEPS`; any other as it is.

    The segmentation of a text changes where another is almost as likely: in 17 of 10,000 sentences.
    """
    model = tokenizer_json["model"]
    if model["type"] != "Unigram":
        return dict(tokenizer_json)
    vocabulary = [[token, round(score * SCORE_STEPS) / SCORE_STEPS] for token, score in model["vocab"]]
    return {**tokenizer_json, "model": {**model, "vocab": vocabulary}}


def replace_model(tokenizer_json: TokenizerJson, model: TokenizerJson, new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the tokenizer with another model, and with new ids everywhere outside of it."""
    added_tokens = [{**token, "id": new_ids[token["id"]]} for token in tokenizer_json["added_tokens"]]
    padding = tokenizer_json.get("padding")
    changes = {
        "model": model,
        "added_tokens": sorted(added_tokens, key=lambda token: token["id"]),
        "post_processor": _renumber_processor(tokenizer_json.get("post_processor"), new_ids),
        "padding": padding and {**padding, "pad_id": new_ids[padding["pad_id"]]},
    }
    return {**tokenizer_json, **changes}


def _renumber_processor(processor: TokenizerJson | None, new_ids: Mapping[int, int]) -> dict[str, Any] | None:
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumber_processor(part, new_ids) for part in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        special_tokens = processor["special_tokens"].items()
        renumbered = {name: {**token, "ids": [new_ids[old] for old in token["ids"]]} for name, token in special_tokens}
        return {**processor, "special_tokens": renumbered}
    pairs = {name: [processor[name][0], new_ids[processor[name][1]]] for name in ("cls", "sep") if name in processor}
    return {**processor, **pairs}


def _referenced_ids(tokenizer_json: TokenizerJson) -> set[int]:
    """Collect the ids that the tokenizer names outside of its model."""
    ids_around = ids_of_ends(tokenizer_json.get("post_processor"), tokenizer_json.get("padding"))
    return ids_around | {token["id"] for token in tokenizer_json["added_tokens"]}


@dataclass(frozen=True)
class Merges:
    """The merges of a BPE model in the order of their ranks, and the markers that its tokens have."""

    ranks: Mapping[Pair, int]
    prefix: str
    """Marks tokens inside of a word."""
    suffix: str
    """Marks tokens at the end of a word."""

    @classmethod
    def from_model(cls, model: TokenizerJson) -> "Merges":
        """Read the merges of a model; older files write a merge as one string with a space."""
        merges = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
        ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}  # of equal ones the last counts
        return cls(ranks, model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or "")

    def among(self, tokens: Container[str]) -> list[list[str]]:
        """List, in order, the merges whose parts and result are among the tokens."""
        return [
            [left, right]
            for left, right in sorted(self.ranks, key=self.ranks.__getitem__)
            if left in tokens and right in tokens and self._merge(left, right) in tokens
        ]

    def steps(self, token: str) -> set[str]:
        """Return all tokens that occur while merges form this one, itself included.

        The set is empty where merges do not form it, as for special tokens and tokens that represent a byte.
        """
        # split the token into characters, with the markers that it would have in front of the first merge
        is_inside = bool(self.prefix) and token.startswith(self.prefix)
        body = token.removeprefix(self.prefix).removesuffix(self.suffix)
        if not body:
            return set()
        symbols = [self.prefix + character for character in body]
        symbols[0] = symbols[0] if is_inside else body[0]
        if self.suffix and token.endswith(self.suffix):
            symbols[-1] += self.suffix
        # apply the merge of lowest rank, the leftmost of several, until none applies
        steps, end = set(symbols), len(symbols)
        before, after = list(range(-1, end - 1)), list(range(1, end + 1))
        waiting: list[tuple[int, int, Pair]] = []

        def find_merge(left: int) -> None:
            if left >= 0 and after[left] < end:
                pair = symbols[left], symbols[after[left]]
                if pair in self.ranks:
                    heappush(waiting, (self.ranks[pair], left, pair))

        for position in range(end):
            find_merge(position)
        while waiting:
            _, left, pair = heappop(waiting)
            right = after[left]
            if right == end or (symbols[left], symbols[right]) != pair:
                continue  # one of the two was merged with another one
            symbols[left] = self._merge(*pair)
            steps.add(symbols[left])
            after[left], after[right] = after[right], end
            if after[left] < end:
                before[after[left]] = left
            find_merge(before[left])
            find_merge(left)
        return steps if after[0] == end and symbols[0] == token and len(steps) > 1 else set()

    def _merge(self, left: str, right: str) -> str:
        return left + right[len(self.prefix) :]


@dataclass(frozen=True)
class SurfaceForms:
    """Convert between the tokens of a vocabulary and the text that they stand for."""

    prefix: str
    """Marks tokens inside of a word."""
    suffix: str
    """Marks tokens at the end of a word."""
    in_bytes: bool
    """Whether tokens consist of characters that represent bytes."""

    @classmethod
    def from_json(cls, tokenizer_json: TokenizerJson) -> "SurfaceForms":
        """Read the markers of a tokenizer."""
        model = tokenizer_json["model"]
        prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
        return cls(prefix, suffix, is_byte_level(tokenizer_json))

    def surface(self, token: str) -> str:
        """Return the text of a token without markers and spaces; incomplete characters are dropped."""
        bare = token.removeprefix(self.prefix).removesuffix(self.suffix)
        if self.in_bytes and set(bare) <= bytes_by_letter().keys():
            bare = bytes(bytes_by_letter()[letter] for letter in bare).decode("utf-8", errors="ignore")
        return bare.strip(f"{SPACE} ")

    def tokens(self, character: str) -> set[str]:
        """Return all possible tokens of one character; for "" the markers alone."""
        spaced = SPACE + character
        if self.in_bytes:
            letters = {byte: letter for letter, byte in bytes_by_letter().items()}
            character, spaced = (
                "".join(letters[byte] for byte in text.encode()) for text in (character, f" {character}")
            )
        return {
            f"{prefix}{text}{suffix}"
            for prefix in ("", self.prefix)
            for text in (character, spaced)
            for suffix in ("", self.suffix)
        }


def ids_of_characters(tokenizer_json: TokenizerJson, characters: Iterable[str]) -> set[int]:
    """Return the ids of all tokens of one of the characters, with and without markers; "" stands for markers alone."""
    forms, vocabulary = SurfaceForms.from_json(tokenizer_json), model_vocabulary(tokenizer_json["model"])
    tokens = {token for character in characters for token in forms.tokens(character)}
    return {vocabulary[token] for token in tokens if token in vocabulary}


def is_sign(character: str) -> bool:
    """Tell whether a character is punctuation, a digit, or a sign of currency or mathematics, in any script."""
    return unicodedata.category(character).startswith(_SIGNS)


def is_number_like(surface: str) -> bool:
    """Tell whether a text has only ASCII digits and punctuation of any script, such as 1999 or "..."."""
    return bool(surface) and all(
        not character.isalpha() if character.isascii() else unicodedata.category(character).startswith(_PUNCTUATION)
        for character in surface
    )


@cache
def bytes_by_letter() -> dict[str, int]:
    """Map the letters of byte-level vocabularies to bytes: printable bytes to themselves, the others from 256 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + number): byte for number, byte in enumerate(others)}
