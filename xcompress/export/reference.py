"""Real text as token ids, and what PyTorch makes of it: what exported graphs are compared with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice, zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.export.sentences import packaged_text
from xcompress.student import Student, StudentConfig, pad, token_ids

SHAPES = ((1, 1), (1, 7), (8, 33), (32, 128))
"""(batch, tokens) of batches whose rows are between half full and full."""
MIXED_ROWS = 16
"""Rows of one more batch, of 1 token up to as many as the student takes."""
BATCH = 16
"""Sentences per batch, in PyTorch and in the graphs."""

Vectors = NDArray[np.float32]
Batch = list[list[int]]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Reference:
    """Sentences and batches of several shapes, with PyTorch's vectors (n, D) of them."""

    sentences: dict[str, Batch]
    """By language."""
    vectors: dict[str, Vectors]
    batches: dict[str, Batch]
    """By shape, such as `8x33`: those of `SHAPES`, and one of mixed lengths."""
    batch_vectors: dict[str, Vectors]
    pad_token_id: int

    @property
    def flat(self) -> Batch:
        """All sentences, language by language."""
        return list(chain.from_iterable(self.sentences.values()))

    @property
    def flat_vectors(self) -> Vectors:
        """The vectors of all sentences, in the same order."""
        return np.concatenate(list(self.vectors.values()))

    def by_language(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Take apart what was computed for each of all sentences."""
        return _taken_apart(values, self.sentences)


def reference_of(
    student: Student,
    tokenizer: Tokenizer,
    text: Mapping[str, Sequence[str]] | None = None,
    advance: Advance | None = None,
) -> Reference:
    """Encode real text with PyTorch, once: sentences among others of like length, and batches of several shapes.

    :param text: sentences by language; by default those of the package.
    :param advance: told how many sentences are done after every batch.
    """
    given = {language: list(found) for language, found in (text or {}).items() if found} or packaged_text()
    config = student.config

    def encode(batch: Batch) -> Vectors:
        with torch.inference_mode():
            vectors: Vectors = student(*pad(batch, config.pad_token_id))[1].float().numpy()
        return vectors

    sentences = {language: token_ids(tokenizer, found, config) for language, found in given.items()}
    vectors = in_batches(encode, list(chain.from_iterable(sentences.values())), BATCH, advance)
    batches = _shaped(tokenizer, config, in_turn(given))
    shaped = {shape: encode(batch) for shape, batch in batches.items()}
    return Reference(sentences, _taken_apart(vectors, sentences), batches, shaped, config.pad_token_id)


def in_batches(
    encode: Callable[[Batch], Vectors], sequences: Batch, size: int, advance: Advance | None = None
) -> Vectors:
    """Encode rows of token ids, those of like length together.

    :param advance: told how many rows are done after every batch.
    :returns: vectors (N, D) in the order of `sequences`.
    """
    order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
    found = []
    for start in range(0, len(order), size):
        found.append(encode([sequences[row] for row in order[start : start + size]]))
        if advance:
            advance(len(found[-1]))
    vectors = np.concatenate(found)
    return vectors[np.argsort(order)]


def in_turn(text: Mapping[str, Sequence[str]]) -> list[str]:
    """List sentences by language in one sequence: the first of each language, the second of each, ..."""
    return [sentence for row in zip_longest(*text.values()) for sentence in row if sentence is not None]


def _taken_apart(values: NDArray[Any], sentences: Mapping[str, Batch]) -> dict[str, NDArray[Any]]:
    ends = np.cumsum([len(rows) for rows in sentences.values()])
    return dict(zip(sentences, np.split(values, ends[:-1]), strict=True))


def _shaped(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str]) -> dict[str, Batch]:
    """Fill batches of every shape with text, with no more tokens than the student takes.

    In those of `SHAPES` the first row is full and the others have fewer and fewer tokens, down to half.
    """
    most = config.max_tokens
    lengths = [[max(1, tokens - row * tokens // (2 * rows)) for row in range(rows)] for rows, tokens in _within(most)]
    lengths.append([1 + row * (most - 1) // (MIXED_ROWS - 1) for row in range(MIXED_ROWS)])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    batches = [
        [_exactly(tokenizer, config, [*sentences[row:], *sentences[:row]], count) for row, count in enumerate(counts)]
        for counts in lengths
    ]
    names = [f"{rows}x{tokens}" for rows, tokens in _within(most)]
    return dict(zip([*names, f"{MIXED_ROWS}x{most} mixed"], batches, strict=True))


def _within(most: int) -> list[tuple[int, int]]:
    return [(rows, min(tokens, most)) for rows, tokens in SHAPES]


def _exactly(tokenizer: Tokenizer, config: StudentConfig, sentences: Sequence[str], tokens: int) -> list[int]:
    """Join sentences until there are enough tokens; cut in the middle, so that the closing token stays.

    A single token is one of a word: no client sends a special token alone.
    """
    if tokens == 1:
        return tokenizer.encode(sentences[0], add_special_tokens=False).ids[:1] or [config.pad_token_id]
    ids: list[int] = []
    joined = 1
    while len(ids) < tokens and joined <= 4 * tokens:
        ids = tokenizer.encode(config.prefix + " ".join(islice(cycle(sentences), joined))).ids
        joined *= 4
    ids = ids or [config.pad_token_id]
    enough = ids * (1 + tokens // len(ids))  # of text that a tokenizer makes next to nothing of
    return [*enough[: tokens - 1], ids[-1]]
