"""Which pieces of a vocabulary are kept, decided by counts, and what that does to text that was not counted."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from xcompress.errors import InputError
from xcompress.vocab.count import Counted
from xcompress.vocab.student import described_by, trim_tokenizer
from xcompress.vocab.tokenizer_json import (
    ASCII,
    Described,
    Spelling,
    check_kind,
    closed,
    is_number_like,
    is_sign,
    pieces,
    required,
    unknown_id,
)


@dataclass(frozen=True)
class HeldOut:
    """Text that was not counted, before and after the vocabulary is trimmed."""

    name: str
    """The language's code, or the file's name."""
    texts: int
    words: int
    """What spaces set apart."""
    unknown_before: float
    """Unknown pieces / pieces."""
    unknown_after: float
    pieces_per_word_before: float
    pieces_per_word_after: float


@dataclass(frozen=True)
class VocabularyReport:
    """How many pieces are kept, why, and what that costs on held-out text."""

    pieces_before: int
    pieces_after: int
    needed: int
    """Pieces that are kept whatever the counts: special tokens, single characters, parts of other pieces."""
    counted: tuple[str, ...]
    """The languages and files whose counts decided."""
    held_out: tuple[HeldOut, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON knows them."""
        return asdict(self)


@dataclass(frozen=True)
class Kept:
    """The pieces to keep, as ascending ids, and the report on them."""

    ids: tuple[int, ...]
    report: VocabularyReport


def choose_pieces(
    tokenizer: Tokenizer,
    counts: Sequence[Counted],
    *,
    size: int | None = None,
    min_count: int = 1,
    needed: Iterable[int] = (),
) -> Kept:
    """Choose the pieces to keep.

    Kept are the pieces seen in any of the counted texts, the most frequent ones where there is a size, and whatever is
    needed beside them: special tokens, every seen character as a piece of its own, printable ASCII, the pieces that
    merges go through; where words alone were counted also numbers, and the punctuation of every script.

    :param counts: from `count_words` and `count_file`; each weighs the same, however long its text.
    :param size: how many of the pieces seen are kept at most, by their mean share of the texts; None keeps all.
    :param min_count: pieces seen less often, in all texts together, do not count as seen.
    :param needed: ids that are kept in any case, such as those that a model's configuration names.
    :raises InputError: when the tokenizer cannot be trimmed, nothing was counted, or a number is below 1.
    """
    described = described_by(tokenizer)
    check_kind(described)
    _check_numbers(counts, size, min_count)
    mandatory = required(described) | set(needed) | _spelled(described, counts)
    mandatory |= _weakest(described["model"])
    frequent = _most_frequent(described, counts, size, min_count)
    ids = tuple(sorted(closed(described, mandatory | frequent)))
    held_out = _held_out(tokenizer, trim_tokenizer(tokenizer, ids), counts)
    names = tuple(counted.name for counted in counts)
    report = VocabularyReport(
        tokenizer.get_vocab_size(), len(ids), len(ids) - len(frequent - mandatory), names, held_out
    )
    return Kept(ids, report)


def _check_numbers(counts: Sequence[Counted], size: int | None, min_count: int) -> None:
    if not counts:
        raise InputError("vocabulary: nothing was counted; give --languages, such as de,en, or --text, or both")
    for name, number in (("--vocabulary", size), ("--min-count", min_count)):
        if number is not None and number < 1:
            raise InputError(f"{name}: {number} is less than 1; give at least 1")


def _most_frequent(described: Described, counts: Sequence[Counted], size: int | None, min_count: int) -> set[int]:
    seen = np.sum([counted.seen for counted in counts], axis=0)
    shares = np.mean([counted.shares for counted in counts], axis=0)
    if any(counted.of_words for counted in counts):
        seen[_number_like(described)] += min_count
    candidates = np.flatnonzero(seen >= min_count)
    order = np.argsort(-shares[candidates], kind="stable")
    return set(candidates[order][:size].tolist())


def _number_like(described: Described) -> list[int]:
    spelling = Spelling.of(described)
    return [number for piece, number in pieces(described["model"]).items() if is_number_like(spelling.surface(piece))]


def _spelled(described: Described, counts: Sequence[Counted]) -> set[int]:
    """Choose the pieces of one character that a new text may need."""
    spelling, vocabulary = Spelling.of(described), pieces(described["model"])
    seen = np.sum([counted.seen for counted in counts], axis=0)
    by_piece = {piece: spelling.surface(piece) for piece in vocabulary}
    characters = {character for piece, number in vocabulary.items() if seen[number] for character in by_piece[piece]}
    characters |= {character for counted in counts for character in counted.characters}
    if any(counted.of_words for counted in counts):
        characters |= {surface for surface in by_piece.values() if len(surface) == 1 and is_sign(surface)}
    forms = {form for character in characters | ASCII | {""} for form in spelling.forms(character)}
    return {vocabulary[form] for form in forms if form in vocabulary}


def _weakest(model: Mapping[str, Any]) -> set[int]:
    """Choose the least likely piece of a Unigram model: what an unknown character costs is reckoned from it."""
    if model["type"] != "Unigram":
        return set()
    scores = [score for _, score in model["vocab"]]
    return {scores.index(min(scores))}


def _held_out(before: Tokenizer, after: Tokenizer, counts: Sequence[Counted]) -> tuple[HeldOut, ...]:
    return tuple(_measured(before, after, counted) for counted in counts if counted.held_out)


def _measured(before: Tokenizer, after: Tokenizer, counted: Counted) -> HeldOut:
    texts = counted.held_out
    words = sum(len(text.split()) for text in texts)
    (unknown_before, before_pieces), (unknown_after, after_pieces) = _rates(before, texts), _rates(after, texts)
    per_word = before_pieces / max(words, 1), after_pieces / max(words, 1)
    return HeldOut(counted.name, len(texts), words, unknown_before, unknown_after, *per_word)


def _rates(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[float, int]:
    """Return which share of the pieces is unknown, and how many pieces there are."""
    unknown = unknown_id(described_by(tokenizer)["model"])
    ids = [number for one in tokenizer.encode_batch(list(texts), add_special_tokens=False) for number in one.ids]
    return sum(number == unknown for number in ids) / max(len(ids), 1), len(ids)
