"""How a vocabulary writes characters: the marks around them, and bytes that stand for them."""

import unicodedata
from dataclasses import dataclass
from functools import cache

from xcompress.trimming.described import Described, is_byte_level

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
