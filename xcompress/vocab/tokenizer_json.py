"""How a vocabulary writes characters: the marks around them, and bytes that stand for them."""

import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from tokenizers import pre_tokenizers

from xcompress.errors import InputError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Merges:
    """Merges in the order of their ranks, and the marks that pieces bear inside of a word and at its end."""

    pairs: tuple[Pair, ...]
    ranks: Mapping[Pair, int]
    prefix: str
    suffix: str

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> "Merges":
        """Read the merges of a BPE model, which older files write as one string with a space in it."""
        pairs = tuple(_pair(merge) for merge in model["merges"])
        ranks = {pair: rank for rank, pair in enumerate(pairs)}
        return cls(pairs, ranks, model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or "")

    def among(self, kept: Container[str]) -> list[list[str]]:
        """List the merges of kept pieces into a kept piece, in order."""
        return [
            [left, right]
            for left, right in self.pairs
            if left in kept and right in kept and self._joined(left, right) in kept
        ]

    def parts(self, piece: str) -> set[str]:
        """Return every piece that stands at some step of making this one, itself included.

        The set is empty where merges do not make it, as with special tokens and pieces that stand for a byte.
        """
        symbols = self._characters(piece)
        passed = set(symbols)
        while (place := self._next_merge(symbols)) is not None:
            symbols[place : place + 2] = [self._joined(symbols[place], symbols[place + 1])]
            passed.add(symbols[place])
        return passed if symbols == [piece] and len(passed) > 1 else set()

    def _next_merge(self, symbols: list[str]) -> int | None:
        """Find the leftmost pair of lowest rank."""
        found = [(self.ranks[pair], place) for place, pair in enumerate(pairwise(symbols)) if pair in self.ranks]
        return min(found)[1] if found else None

    def _characters(self, piece: str) -> list[str]:
        inside = piece.startswith(self.prefix) if self.prefix else False
        body = piece.removeprefix(self.prefix).removesuffix(self.suffix)
        if not body:
            return [piece]
        symbols = [self.prefix + character for character in body]
        symbols[0] = symbols[0] if inside else body[0]
        if self.suffix and piece.endswith(self.suffix):
            symbols[-1] += self.suffix
        return symbols

    def _joined(self, left: str, right: str) -> str:
        return left + right[len(self.prefix) :]


def _pair(merge: str | list[str]) -> Pair:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right


KINDS = ("Unigram", "WordPiece", "BPE")
Described = Mapping[str, Any]
"""A tokenizer, or a part of one, as `Tokenizer.to_str` describes it."""


def check_kind(described: Described) -> None:
    """Refuse a tokenizer whose vocabulary cannot be trimmed.

    :raises InputError: when its model is none of `KINDS`.
    """
    kind = described["model"].get("type")
    if kind not in KINDS:
        raise InputError(
            f"vocabulary: the tokenizer is {kind}, only {', '.join(KINDS)} can be trimmed; "
            "keep its vocabulary (in a recipe vocabulary.method: keep)"
        )


def pieces(model: Described) -> dict[str, int]:
    """Map the pieces of the model to their ids; tokens that were added to it are not among them."""
    if model["type"] == "Unigram":
        return {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    return dict(model["vocab"])


def unknown_id(model: Described) -> int | None:
    """Return the id that stands for what no piece can spell."""
    if model["type"] == "Unigram":
        return model["unk_id"]  # type: ignore[no-any-return]
    return model["vocab"].get(model.get("unk_token"))  # type: ignore[no-any-return]


def is_byte_level(described: Described) -> bool:
    """Tell whether text is turned into characters that stand for its bytes."""
    parts = [*_parts(described.get("pre_tokenizer")), *_parts(described.get("normalizer"))]
    return any(part["type"] == "ByteLevel" for part in parts)


def required(described: Described) -> set[int]:
    """Choose the ids that no trimmed tokenizer of this kind can do without.

    These are the added tokens, what the post-processor and the padding name, the unknown piece, and the pieces that
    stand for bytes.
    """
    model = described["model"]
    vocabulary = pieces(model)
    in_bytes = pre_tokenizers.ByteLevel.alphabet() if is_byte_level(described) else []
    fallback = [f"<0x{byte:02X}>" for byte in range(256)] if model.get("byte_fallback") else []
    chosen = {vocabulary[piece] for piece in (*in_bytes, *fallback) if piece in vocabulary}
    unknown = unknown_id(model)
    return chosen | _special(described) | ({unknown} if unknown is not None else set())


def closed(described: Described, ids: Iterable[int]) -> set[int]:
    """Add the pieces through which merges make the given ones; only BPE has such."""
    chosen = set(ids)
    model = described["model"]
    if model["type"] != "BPE":
        return chosen
    merges, vocabulary = Merges.of(model), pieces(model)
    made = {part for piece, number in vocabulary.items() if number in chosen for part in merges.parts(piece)}
    return chosen | {vocabulary[part] for part in made}


def renumbered(described: Described, new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the tokenizer with only the pieces that have a new id.

    Normaliser, pre-tokenizer and decoder hold no ids and stay as they are.

    :param new_ids: new ids by old ones; they keep the order, and the required ids are among them.
    :raises InputError: when the kind of model cannot be trimmed, or an id is missing that the tokenizer needs.
    """
    check_kind(described)
    missing = sorted(_special(described) - new_ids.keys())
    if missing:
        raise InputError(f"vocabulary: ids {missing} are to be dropped, but the tokenizer's own parts name them")
    return with_model(described, _cut(described["model"], new_ids), new_ids)


def with_model(described: Described, model: Described, new_ids: Mapping[int, int]) -> dict[str, Any]:
    """Return the tokenizer with another model; all that names ids outside of it is numbered anew."""
    added = [{**token, "id": new_ids[token["id"]]} for token in described["added_tokens"]]
    padding = described.get("padding")
    changed = {
        "model": model,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "post_processor": _renumbered_processor(described.get("post_processor"), new_ids),
        "padding": padding and {**padding, "pad_id": new_ids[padding["pad_id"]]},
    }
    return {**described, **changed}


def _cut(model: Described, new_ids: Mapping[int, int]) -> dict[str, Any]:
    if model["type"] == "Unigram":
        vocabulary = [entry for number, entry in enumerate(model["vocab"]) if number in new_ids]
        unknown = model["unk_id"]
        return {**model, "vocab": vocabulary, "unk_id": None if unknown is None else new_ids[unknown]}
    ordered = sorted(model["vocab"].items(), key=lambda entry: entry[1])
    kept = {piece: new_ids[number] for piece, number in ordered if number in new_ids}
    if model["type"] == "WordPiece":
        return {**model, "vocab": kept}
    return {**model, "vocab": kept, "merges": Merges.of(model).among(kept)}


def _special(described: Described) -> set[int]:
    """Collect the ids that stand outside of the vocabulary."""
    padding = described.get("padding")
    named = {token["id"] for token in described["added_tokens"]} | ({padding["pad_id"]} if padding else set())
    for part in _parts(described.get("post_processor")):
        for token in part.get("special_tokens", {}).values() if part["type"] == "TemplateProcessing" else ():
            named |= set(token["ids"])
        named |= {part[name][1] for name in ("cls", "sep") if name in part}
    return named


def _parts(component: Described | None) -> Iterator[Described]:
    """Yield what a component consists of; a sequence of components is taken apart."""
    if component is None:
        return
    inner = next(
        (component[name] for name in ("processors", "pretokenizers", "normalizers") if name in component), None
    )
    if inner is None:
        yield component
    else:
        for part in inner:
            yield from _parts(part)


def _renumbered_processor(processor: Described | None, new_ids: Mapping[int, int]) -> dict[str, Any] | None:
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumbered_processor(part, new_ids) for part in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        named = processor["special_tokens"].items()
        tokens = {name: {**token, "ids": [new_ids[old] for old in token["ids"]]} for name, token in named}
        return {**processor, "special_tokens": tokens}
    pairs = {name: [processor[name][0], new_ids[processor[name][1]]] for name in ("cls", "sep") if name in processor}
    return {**processor, **pairs}


SPACE = "\u2581"
"""Stands for a space in pieces that begin a word."""
ASCII = frozenset(map(chr, range(33, 127)))
_MARKS = ("P", "Sc", "Sm")
_SIGNS = ("Nd", *_MARKS)


@dataclass(frozen=True)
class Spelling:
    """The marks that pieces of a vocabulary bear."""

    prefix: str
    """In front of pieces inside of a word."""
    suffix: str
    """Behind pieces that end a word."""
    in_bytes: bool
    """Whether a character is written as those that stand for its bytes."""

    @classmethod
    def of(cls, described: Described) -> "Spelling":
        """Read the marks out of a tokenizer's JSON."""
        model = described["model"]
        prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
        return cls(prefix, suffix, is_byte_level(described))

    def surface(self, piece: str) -> str:
        """Return a piece as it stands in text, without marks and spaces; parts of characters are left out."""
        bare = piece.removeprefix(self.prefix).removesuffix(self.suffix)
        if self.in_bytes and set(bare) <= _bytes_by_letter().keys():
            bare = bytes(_bytes_by_letter()[letter] for letter in bare).decode("utf-8", errors="ignore")
        return bare.strip(f"{SPACE} ")

    def forms(self, character: str) -> set[str]:
        """Return all ways to write one character as a piece; those of "" are the marks themselves."""
        spaced = SPACE + character
        if self.in_bytes:
            letters = {byte: letter for letter, byte in _bytes_by_letter().items()}
            character, spaced = (
                "".join(letters[byte] for byte in text.encode()) for text in (character, f" {character}")
            )
        bare = (character, spaced)
        return {f"{front}{text}{end}" for front in ("", self.prefix) for text in bare for end in ("", self.suffix)}


def is_sign(character: str) -> bool:
    """Tell punctuation marks, digits, and signs of currencies and mathematics from letters and the rest."""
    return unicodedata.category(character).startswith(_SIGNS)


def is_number_like(surface: str) -> bool:
    """Tell text of ASCII digits and any script's punctuation alone, such as 1999 or "...", from what has letters."""
    return bool(surface) and all(
        not character.isalpha() if character.isascii() else unicodedata.category(character).startswith(_MARKS)
        for character in surface
    )


@cache
def _bytes_by_letter() -> dict[str, int]:
    """Map the letters of byte-level vocabularies to bytes: printable bytes are themselves, others follow at 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
