"""Trim a Unigram vocabulary, and the word table with it, to the pieces that some languages use."""

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
from xcompress.errors import InputError
from xcompress.student import Student

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


def kept_pieces(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Choose the pieces to keep, as ascending ids.

    Kept are special tokens, pieces seen in the texts, and each seen character as a piece of its own, so that a new
    word of the same language can always be spelled.
    """
    special = set(tokenizer.get_added_tokens_decoder())
    seen = set(np.flatnonzero(piece_counts(tokenizer, texts, tokenizer.get_vocab_size())).tolist())
    characters = {character for text in texts for character in text}
    singles = {tokenizer.token_to_id(piece) for character in characters for piece in (character, f"\u2581{character}")}
    return sorted(special | seen | (singles - {None}))


def trim_tokenizer(tokenizer: Tokenizer, kept: Sequence[int]) -> Tokenizer:
    """Return a tokenizer of the kept pieces only; piece `kept[i]` gets id i.

    The most likely segmentation of a text stays the most likely one as long as all its pieces are kept, so such a text
    is segmented as before.

    :param kept: ascending ids, special tokens among them.
    :raises InputError: when the tokenizer is not a Unigram model.
    """
    described = json.loads(tokenizer.to_str())
    model = described["model"]
    if model["type"] != "Unigram":
        raise InputError(
            f"vocabulary.method trim: the tokenizer is {model['type']}, only Unigram can be trimmed; set it to keep"
        )
    return rebuilt(described, [model["vocab"][old] for old in kept], {old: new for new, old in enumerate(kept)})


def rebuilt(described: dict[str, Any], vocabulary: Sequence[Any], new_ids: Mapping[int, int]) -> Tokenizer:
    """Return the described Unigram tokenizer with another vocabulary.

    :param described: a tokenizer's JSON.
    :param vocabulary: (piece, score) by new id.
    :param new_ids: new ids by old ones, of the special tokens at least.
    """
    model = described["model"]
    unknown = model["unk_id"]
    model = {**model, "vocab": list(vocabulary), "unk_id": None if unknown is None else new_ids[unknown]}
    added = [{**token, "id": new_ids[token["id"]]} for token in described["added_tokens"]]
    changed = {
        "model": model,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "post_processor": _renumbered(described.get("post_processor"), new_ids),
        "padding": None,  # whoever encodes sets both, and padding would hold an old id
        "truncation": None,
    }
    return Tokenizer.from_str(json.dumps(described | changed, ensure_ascii=False))


def _renumbered(processor: dict[str, Any] | None, new_ids: Mapping[int, int]) -> dict[str, Any] | None:
    if processor is None:
        return None
    if processor["type"] == "Sequence":
        return {**processor, "processors": [_renumbered(part, new_ids) for part in processor["processors"]]}
    if processor["type"] == "TemplateProcessing":
        named = processor["special_tokens"].items()
        tokens = {name: {**token, "ids": [new_ids[old] for old in token["ids"]]} for name, token in named}
        return {**processor, "special_tokens": tokens}
    pairs = {name: [processor[name][0], new_ids[processor[name][1]]] for name in ("cls", "sep") if name in processor}
    return processor | pairs


def trim(student: Student, tokenizer: Tokenizer, kept: Sequence[int]) -> tuple[Student, Tokenizer]:
    """Return the same encoder with only the kept rows of its word table, and the tokenizer that goes with it."""
    trimmed_tokenizer = trim_tokenizer(tokenizer, kept)
    rows = student.embeddings.word.weight.detach()[torch.tensor(list(kept))]
    return with_table(student, rows, list(kept).index(student.config.pad_token_id)), trimmed_tokenizer


def with_table(student: Student, table: Tensor, pad_token_id: int) -> Student:
    """Return the same encoder with another word table, (V', H)."""
    changed = Student(replace(student.config, vocab_size=len(table), pad_token_id=pad_token_id))
    changed.load_state_dict(student.state_dict() | {"embeddings.word.weight": table})
    return changed.eval()
