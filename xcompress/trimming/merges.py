"""The merges of byte-pair encoding: which pieces make up a piece, and which merges are left among some pieces.

A word is segmented by applying, again and again, the merge of lowest rank that is possible in it, the leftmost first
(Sennrich et al., 2016). No merge crosses the bounds of a piece that is left at the end. Within these bounds the merges
are therefore those that segment the piece alone: its parts. Let all parts of some pieces be kept, with the order of
their merges. In a word that was segmented into these pieces, every merge that was applied is still there, and none is
new; so at every step the same one has the lowest rank, and the word is segmented as before.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

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
