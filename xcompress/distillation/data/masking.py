"""Mask a word of each translation pair, and compute the labels of word prediction: lightweight dual transformer, 3.2.

A sentence is an array of token ids, int32, (L,); every token that is not special is a word. A batch has N pairs, so 2N
sentences, sources first: pair i is sentence i and sentence N + i.

The paper leaves some points open. We predict one distribution over the vocabulary for each sentence, from its pooled
vector, in all tasks; the masked word, too, is not predicted from its own position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from xcompress.recipe import WordTask

TokenRows = Sequence[NDArray[np.int32]]
"""Token ids of sentences."""
Integers = NDArray[np.int64]

SIDE_BIT = np.uint64(63)
"""The highest of 64 random bits chooses the side."""
WORD_BITS = np.uint64(32)
"""This many of the lowest random bits choose the word."""
GAMMA = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class MaskingConfig:
    """The tokens that are words, the token that masks them, and the seed of their choice."""

    mask_id: int
    special: frozenset[int]
    """Token ids that are not words."""
    seed: int


@dataclass(frozen=True)
class MaskedWord:
    """The word w_t of a pair."""

    side: int
    """0 for the source, 1 for the target."""
    position: int
    """Position in its sentence, special tokens included."""
    word: int
    """Token id."""


def choose_words(
    sources: TokenRows, targets: TokenRows, numbers: Sequence[int], config: MaskingConfig
) -> list[MaskedWord | None]:
    """Choose one word of each pair: either side with equal probability, then any of its words with equal probability.

    The choice depends only on the seed, the pair's number and the pair. So it is the same in any batch, and when
    training resumes.

    :param numbers: numbers of the pairs, at least 0, (N,).
    :returns: a word for each pair; None where neither side has one.
    """
    sentences, positions, ids = _find_words([*sources, *targets], config.special)
    counts = np.bincount(sentences, minlength=2 * len(sources))
    bits = _random_bits(config.seed, numbers)
    # choose a sentence of each pair, or the other one if it has no words
    pairs = np.arange(len(bits))
    rows = (bits >> SIDE_BIT).astype(np.int64) * len(bits) + pairs
    rows = np.where(counts[rows] > 0, rows, 2 * pairs + len(bits) - rows)
    # choose a word of that sentence
    lowest = bits & ((np.uint64(1) << WORD_BITS) - np.uint64(1))
    offsets = (lowest * counts[rows].astype(np.uint64)) >> WORD_BITS
    indices = _run_starts(counts)[rows] + offsets.astype(np.int64)
    return [
        MaskedWord(row // len(sources), int(positions[index]), int(ids[index])) if counts[row] else None
        for row, index in zip(rows.tolist(), indices.tolist(), strict=True)
    ]


def mask_words(
    sources: TokenRows, targets: TokenRows, chosen: Sequence[MaskedWord | None], config: MaskingConfig
) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int32]]]:
    """Return both sides with the mask in place of each chosen word; the given arrays stay unchanged."""
    sides = list(sources), list(targets)
    for number, masked in enumerate(chosen):
        if masked:
            sentence = sides[masked.side][number].copy()
            sentence[masked.position] = config.mask_id
            sides[masked.side][number] = sentence
    return sides


def label_distributions(
    task: WordTask, sources: TokenRows, targets: TokenRows, chosen: Sequence[MaskedWord | None], config: MaskingConfig
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the label distribution q of each sentence, as its words and their shares.

    - `masked_word`, eq. 1: q = 1 on w_t, for both sides.
    - `reconstruction`, eq. 3: q is uniform over the distinct words of the other sentence; footnote 3 sets every N_w to
      1, so the length that divides is the number of distinct words.
    - `unified`, eq. 4, for the sentence in which w_t is masked: half on w_t, half as in eq. 3, and their sum where w_t
      is a word of the other sentence, too. The unmasked sentence has eq. 3, w_t among the words of the other. The paper
      names the sentence S_l' in both cases; we read the second as S_l, whose vector predicts.

    :param sources: (N,) sentences before `mask_words`, like `targets`.
    :param chosen: the word w_t of each pair; `reconstruction` does not use it.
    :returns: token ids (2N, K) and their shares (2N, K), padded with id 0 and share 0; no id has a share twice in a
        row. A row sums to 1, or to 0 where there is nothing to predict.
    """
    sentences, pairs = [*sources, *targets], len(sources)
    shape = (2 * pairs, 1 + max(int(ids.max(initial=0)) for ids in sentences))
    masked = [(pair, word) for pair, word in enumerate(chosen) if word]
    word_ids = np.array([word.word for _, word in masked], dtype=np.int64)
    if task == "masked_word":
        rows = np.array([pair for pair, _ in masked], dtype=np.int64)
        of_both = np.concatenate([rows, rows + pairs]), np.tile(word_ids, 2)
        return _to_table(csr_array((np.ones(2 * len(rows)), of_both), shape))

    # Eq. 3: 1 / n on each of the n distinct words of the other sentence.
    rows, _, ids = _find_words(sentences, config.special)
    shares = csr_array((np.ones(len(ids)), ((rows + pairs) % (2 * pairs), ids)), shape)
    counts = np.diff(shares.indptr)
    shares.data = np.repeat(1 / np.maximum(counts, 1), counts)
    if task == "unified":
        # Eq. 4: half on the masked word, or all where the other sentence has no words.
        rows = np.array([word.side * pairs + pair for pair, word in masked], dtype=np.int64)
        of_others = np.ones(2 * pairs)
        of_others[rows] = 0.5
        shares.data *= np.repeat(of_others, counts)
        shares += csr_array((np.where(counts[rows] > 0, 0.5, 1.0), (rows, word_ids)), shape)
    return _to_table(shares)


def _find_words(sentences: TokenRows, special: frozenset[int]) -> tuple[Integers, Integers, Integers]:
    """Return the sentence, the position in it and the id of each word, in order."""
    lengths = np.array([len(sentence) for sentence in sentences])
    ids = np.concatenate(sentences).astype(np.int64)
    rows = np.repeat(np.arange(len(sentences)), lengths)
    positions = np.arange(len(ids)) - _run_starts(lengths)[rows]
    is_word = ~np.isin(ids, np.array(sorted(special), dtype=np.int64))
    return rows[is_word], positions[is_word], ids[is_word]


def _run_starts(lengths: Integers) -> Integers:
    """Return the start of each run, for consecutive runs of these lengths."""
    starts: Integers = np.cumsum(lengths) - lengths
    return starts


def _random_bits(seed: int, numbers: Sequence[int]) -> NDArray[np.uint64]:
    """Return 64 random bits for each number: that element of a SplitMix64 sequence (Steele, Lea and Flood, 2014)."""
    start = _mix(np.array([seed % 2**64], dtype=np.uint64))
    return _mix(start + (np.asarray(numbers, dtype=np.uint64) + np.uint64(1)) * GAMMA)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _to_table(shares: csr_array) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the columns and values of the entries of each row side by side, both (rows, K)."""
    counts = np.diff(shares.indptr)
    rows = np.repeat(np.arange(len(counts)), counts)
    columns = np.arange(len(rows)) - shares.indptr[rows]
    ids = np.zeros((len(counts), max(1, counts.max())), dtype=np.int64)
    values = np.zeros(ids.shape, dtype=np.float32)
    ids[rows, columns] = shares.indices
    values[rows, columns] = shares.data
    return ids, values
