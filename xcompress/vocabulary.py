"""Trim a Unigram vocabulary, and the word table with it, to the pieces that some languages use."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

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
            f"vocabulary.trim: the tokenizer is {model['type']}, only Unigram can be trimmed; set it to false"
        )
    new_ids = {old: new for new, old in enumerate(kept)}
    model["vocab"] = [model["vocab"][old] for old in kept]
    model["unk_id"] = new_ids[model["unk_id"]]
    for token in described["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    _renumber_template(described.get("post_processor"), new_ids)
    return Tokenizer.from_str(json.dumps(described, ensure_ascii=False))


def _renumber_template(processor: dict[str, Any] | None, new_ids: dict[int, int]) -> None:
    for part in _template_processors(processor):
        for token in part["special_tokens"].values():
            token["ids"] = [new_ids[old] for old in token["ids"]]


def _template_processors(processor: dict[str, Any] | None) -> Iterable[dict[str, Any]]:
    parts = processor.get("processors", [processor]) if processor else []
    return [part for part in parts if part["type"] == "TemplateProcessing"]


def trim(student: Student, tokenizer: Tokenizer, kept: Sequence[int]) -> tuple[Student, Tokenizer]:
    """Return the same encoder with only the kept rows of its word table, and the tokenizer that goes with it."""
    trimmed_tokenizer = trim_tokenizer(tokenizer, kept)
    state = student.state_dict()
    state["embeddings.word.weight"] = state["embeddings.word.weight"][torch.tensor(list(kept))]
    padding = list(kept).index(student.config.pad_token_id)
    trimmed = Student(replace(student.config, vocab_size=len(kept), pad_token_id=padding))
    trimmed.load_state_dict(state)
    return trimmed.eval(), trimmed_tokenizer
