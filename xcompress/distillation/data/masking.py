"""Which word of a translation pair is hidden, and which words are predicted: lightweight dual transformer, 3.2.

A sentence is its token ids, int32, (L,); every token that is not special is a word. A batch has N pairs, so 2N
sentences, sources first: pair i is sentence i and sentence N + i.

What the paper leaves open is read here as follows. One distribution over the vocabulary is predicted for each
sentence, from its pooled vector, whatever the task; the masked word too is not predicted from its own position.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcompress.recipe import WordTask

Sentences = Sequence[NDArray[np.int32]]
Integers = NDArray[np.int64]

ID_BITS = 32
"""A row and a token id share 64 bits; the id has the lower ones."""
SIDE_BIT = np.uint64(63)
"""Of 64 random bits the highest chooses the side,"""
DRAWN_BITS = np.uint64(32)
"""and the lowest ones the word."""
GAMMA = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Words:
    """What a word is, what hides it, and what it is chosen by."""

    mask_id: int
    special: frozenset[int]
    """Token ids that are no words."""
    seed: int


@dataclass(frozen=True)
class Hidden:
    """The word w_t of a pair."""

    side: int
    """0 for the source, 1 for the target."""
    position: int
    """Of the token in its sentence, special tokens counted."""
    word: int
    """Token id."""


def choose(sources: Sentences, targets: Sentences, numbers: Sequence[int], words: Words) -> list[Hidden | None]:
    """Choose one word of each pair: either side equally often, then any of its words equally often.

    The choice depends on the seed, the pair's number and the pair alone, so that it is the same in any batch, and when
    training goes on after an interruption.

    :param numbers: of the pairs, at least 0, (N,).
    :returns: for each pair its word; None where neither side has one.
    """
    found = _find([*sources, *targets], words.special)
    counts = np.bincount(found.rows, minlength=2 * len(sources))
    bits = _random_bits(words.seed, numbers)
    rows = _rows_to_choose_from(bits, counts)
    drawn = (_lowest(bits) * counts[rows].astype(np.uint64)) >> DRAWN_BITS
    places = _starts(counts)[rows] + drawn.astype(np.int64)
    return [
        Hidden(row // len(sources), int(found.positions[place]), int(found.ids[place])) if counts[row] else None
        for row, place in zip(rows.tolist(), places.tolist(), strict=True)
    ]


def cover(
    sources: Sentences, targets: Sentences, chosen: Sequence[Hidden | None], words: Words
) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
    """Return both sides with the mask in place of each chosen word; what is given stays as it is."""
    sides = list(sources), list(targets)
    for number, hidden in enumerate(chosen):
        if hidden:
            sentence = sides[hidden.side][number].copy()
            sentence[hidden.position] = words.mask_id
            sides[hidden.side][number] = sentence
    return sides


def distributions(
    task: WordTask, sources: Sentences, targets: Sentences, chosen: Sequence[Hidden | None], words: Words
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the label distribution q of each sentence, over the words that have a share in it.

    - `masked_word`, eq. 1: q = 1 on w_t, for both sides.
    - `reconstruction`, eq. 3: q is uniform over the distinct words of the other sentence; footnote 3 sets every N_w to
      1, so the length that divides is the number of distinct words.
    - `unified`, eq. 4, for the sentence in which w_t is masked: half on w_t, half as in eq. 3, and their sum where w_t
      is a word of the other sentence too. The unmasked sentence has eq. 3, w_t among the words of the other. The paper
      names the sentence S_l' in both cases; we read the second as S_l, whose vector predicts.

    :param sources: (N,) sentences as they are before `cover`, like `targets`.
    :param chosen: the word w_t of each pair; `reconstruction` has no use for it.
    :returns: token ids (2N, K) and their shares (2N, K), filled up with id 0 and share 0; no id stands twice in a row
        with a share. A row sums to 1, or to 0 where there is nothing to predict.
    """
    size = 2 * len(sources)
    if task == "masked_word":
        return _table(_on_both_sides(chosen), size)
    others = _words_of_the_other([*sources, *targets], words.special)
    if task == "reconstruction":
        return _table(others, size)
    return _table(_unified(others, _where_hidden(chosen), size), size)


@dataclass(frozen=True)
class _Found:
    """All words of all sentences, one after the other: three arrays of the same length."""

    rows: Integers
    """Sentences that they are in."""
    positions: Integers
    ids: Integers


@dataclass(frozen=True)
class _Shares:
    """Entries of a matrix with a row for each sentence and a column for each token id; equal places add up."""

    rows: Integers
    ids: Integers
    values: NDArray[np.float64]


def _find(sentences: Sentences, special: frozenset[int]) -> _Found:
    lengths = np.array([len(sentence) for sentence in sentences])
    ids = np.concatenate(sentences).astype(np.int64)
    rows = np.repeat(np.arange(len(sentences)), lengths)
    positions = np.arange(len(ids)) - _starts(lengths)[rows]
    words = ~np.isin(ids, np.array(sorted(special), dtype=np.int64))
    return _Found(rows[words], positions[words], ids[words])


def _starts(counts: Integers) -> Integers:
    """Return where each run begins when runs of these lengths follow one another."""
    starts: Integers = np.cumsum(counts) - counts
    return starts


def _rows_to_choose_from(bits: NDArray[np.uint64], counts: Integers) -> Integers:
    """Draw one sentence of each pair, (N,): the one with words where the other has none."""
    pairs = np.arange(len(bits))
    rows = (bits >> SIDE_BIT).astype(np.int64) * len(bits) + pairs
    others = 2 * pairs + len(bits) - rows
    return np.where(counts[rows] > 0, rows, others)


def _lowest(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return bits & ((np.uint64(1) << DRAWN_BITS) - np.uint64(1))


def _random_bits(seed: int, numbers: Sequence[int]) -> NDArray[np.uint64]:
    """Return 64 random bits for each number: SplitMix64 (Steele, Lea and Flood, 2014) at that place of its sequence."""
    start = _mixed(np.array([seed % 2**64], dtype=np.uint64))
    return _mixed(start + (np.asarray(numbers, dtype=np.uint64) + np.uint64(1)) * GAMMA)


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _words_of_the_other(sentences: Sentences, special: frozenset[int]) -> _Shares:
    """Eq. 3: for each sentence, 1 / n on each of the n distinct words of its translation."""
    found = _find(sentences, special)
    rows, ids = _unpacked(np.unique(_packed(found.rows, found.ids)))
    counts = np.bincount(rows, minlength=len(sentences))
    half = len(sentences) // 2
    return _Shares((rows + half) % len(sentences), ids, 1 / counts[rows])


def _on_both_sides(chosen: Sequence[Hidden | None]) -> _Shares:
    """Eq. 1: all on w_t, in the sentence that it is hidden in and in the other."""
    hidden = [(pair, found.word) for pair, found in enumerate(chosen) if found]
    pairs, ids = _columns(hidden)
    return _Shares(np.concatenate([pairs, pairs + len(chosen)]), np.tile(ids, 2), np.ones(2 * len(hidden)))


def _where_hidden(chosen: Sequence[Hidden | None]) -> tuple[Integers, Integers]:
    """Return the sentences that a word is hidden in, and those words."""
    return _columns((found.side * len(chosen) + pair, found.word) for pair, found in enumerate(chosen) if found)


def _unified(others: _Shares, hidden: tuple[Integers, Integers], size: int) -> _Shares:
    """Eq. 4 for the sentences that a word is hidden in: half on it, or all where the other sentence has no words."""
    rows, ids = hidden
    halved = np.isin(others.rows, rows)
    values = np.where(np.bincount(others.rows, minlength=size)[rows] > 0, 0.5, 1.0)
    return _Shares(
        np.concatenate([others.rows, rows]),
        np.concatenate([others.ids, ids]),
        np.concatenate([np.where(halved, others.values / 2, others.values), values]),
    )


def _table(shares: _Shares, size: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Write the entries of each row side by side: ids and values, both (size, K)."""
    packed, places = np.unique(_packed(shares.rows, shares.ids), return_inverse=True)
    rows, found = _unpacked(packed)
    counts = np.bincount(rows, minlength=size)
    columns = np.arange(len(rows)) - _starts(counts)[rows]
    ids = np.zeros((size, max(1, counts.max())), dtype=np.int64)
    values = np.zeros(ids.shape, dtype=np.float32)
    ids[rows, columns] = found
    values[rows, columns] = np.bincount(places, weights=shares.values, minlength=len(rows))
    return ids, values


def _packed(rows: Integers, ids: Integers) -> Integers:
    """Return rows and token ids as one number each, in the order of rows and then of ids."""
    return rows << ID_BITS | ids


def _unpacked(packed: Integers) -> tuple[Integers, Integers]:
    return packed >> ID_BITS, packed & (2**ID_BITS - 1)


def _columns(pairs: Iterable[tuple[int, int]]) -> tuple[Integers, Integers]:
    both = np.array(list(pairs), dtype=np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
