"""Trim a vocabulary, and the word table with it, to the pieces that some languages use."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from xcompress.console import tracked
from xcompress.modeling.student import Student
from xcompress.vocab.tokenizer_json import Spelling, check_kind, closed, renumbered, required, with_model

CHUNK = 20_000


def piece_counts(tokenizer: Tokenizer, texts: Sequence[str], rows: int) -> NDArray[np.int64]:
    """Count how often each piece of the vocabulary stands in the segmented texts.

    :param rows: V, the length of the result; a model's table may have more rows than its tokenizer has pieces.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    counts = np.zeros(rows, dtype=np.int64)
    for start in tracked(range(0, len(texts), CHUNK), "vocabulary: pieces counted"):
        for encoding in tokenizer.encode_batch(texts[start : start + CHUNK], add_special_tokens=False):
            np.add.at(counts, encoding.ids, 1)
    return counts


def piece_rows(tokenizer: Tokenizer) -> int:
    """Return the highest id of the tokenizer + 1; there may be fewer pieces, as ids may be left out."""
    ids: dict[str, int] = tokenizer.get_vocab()
    return max(ids.values()) + 1


def described_by(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the tokenizer's JSON."""
    return json.loads(tokenizer.to_str())  # type: ignore[no-any-return]


def kept_pieces(tokenizer: Tokenizer, texts: Sequence[str], size: int | None = None) -> list[int]:
    """Choose the pieces to keep, as ascending ids.

    Kept are special tokens, pieces seen in the texts, and each seen character as a piece of its own, so that a new
    word of the same language can always be spelled; with BPE also the pieces that merges go through.

    :param size: of the pieces seen, how many of the most frequent ones are kept at most; None keeps all.
    """
    described = described_by(tokenizer)
    check_kind(described)
    spelling = Spelling.of(described)
    counts = piece_counts(tokenizer, texts, piece_rows(tokenizer))
    seen = set(np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)][:size].tolist())
    characters = {character for text in texts for character in text}
    singles = {tokenizer.token_to_id(form) for character in characters for form in spelling.forms(character)}
    return sorted(closed(described, required(described) | seen | (singles - {None})))


def trim_tokenizer(tokenizer: Tokenizer, kept: Sequence[int]) -> Tokenizer:
    """Return a tokenizer of the kept pieces only; piece `kept[i]` gets id i.

    A text without unknown pieces is segmented as before as long as all its pieces are kept. Unigram takes the most
    likely segmentation, which stays the most likely one among fewer. WordPiece takes the longest piece that fits; the
    ones that are longer were not there before either. BPE also needs the pieces that its merges go through; see
    `xcompress.vocab.tokenizer_json`.

    :param kept: ascending ids, special tokens among them.
    :raises InputError: when the tokenizer's vocabulary is of another kind, or lacks what the tokenizer needs.
    """
    new_ids = {old: new for new, old in enumerate(kept)}
    return _without_lengths(renumbered(described_by(tokenizer), new_ids))


def rebuilt(described: dict[str, Any], vocabulary: Sequence[Any], new_ids: Mapping[int, int]) -> Tokenizer:
    """Return the described Unigram tokenizer with another vocabulary.

    :param described: a tokenizer's JSON.
    :param vocabulary: (piece, score) by new id.
    :param new_ids: new ids by old ones, of the special tokens at least.
    """
    model = described["model"]
    unknown = model["unk_id"]
    model = {**model, "vocab": list(vocabulary), "unk_id": None if unknown is None else new_ids[unknown]}
    return _without_lengths(with_model({**described, "padding": None}, model, new_ids))


def _without_lengths(described: Mapping[str, Any]) -> Tokenizer:
    """Open a tokenizer that neither pads nor cuts: whoever encodes sets both."""
    return Tokenizer.from_str(json.dumps({**described, "padding": None, "truncation": None}, ensure_ascii=False))


def trim(student: Student, tokenizer: Tokenizer, kept: Sequence[int]) -> tuple[Student, Tokenizer]:
    """Return the same encoder with only the kept rows of its word table, and the tokenizer that goes with it."""
    trimmed_tokenizer = trim_tokenizer(tokenizer, kept)
    rows = student.embeddings.word.weight.detach()[torch.tensor(list(kept))]
    return with_table(student, rows, list(kept).index(student.config.pad_token_id)), trimmed_tokenizer


def with_table(student: Student, table: Tensor, pad_token_id: int) -> Student:
    """Return the same encoder with another word table: (V', B) before its projection, or (V', H) in place of both."""
    narrow = table.shape[1] == student.config.bottleneck
    config = replace(student.config, vocab_size=len(table), pad_token_id=pad_token_id)
    changed = Student(config if narrow else replace(config, bottleneck=None))
    others = {name: weight for name, weight in student.state_dict().items() if name in changed.state_dict()}
    changed.load_state_dict(others | {"embeddings.word.weight": table})
    return changed.eval()
