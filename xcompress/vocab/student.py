"""Trim the vocabulary of a student, and its token embeddings with it."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from xcompress.console import bar
from xcompress.modeling.student import Student, reconfigured
from xcompress.tokenizer_file import encode_batch, id_range, tokenizer_to_json
from xcompress.vocab.tokenizer_json import (
    add_merge_steps,
    check_trimmable,
    ids_of_characters,
    renumber,
    required_ids,
    round_scores,
)

CHUNK = 20_000
"""Texts that are tokenized at a time, at most."""
CHUNK_CHARACTERS = 2_000_000
"""Their characters, at most: a token takes about 100 bytes until its id is read."""


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str], rows: int) -> NDArray[np.int64]:
    """Count the occurrences of each token in texts.

    :param rows: V, the length of the result; a model may have more token embeddings than its tokenizer has tokens.
    """
    counts = np.zeros(rows, dtype=np.int64)
    with bar("vocabulary: tokens counted", len(texts)) as ticker:
        for chunk in split_chunks(texts):
            ids, _ = encode_ids(tokenizer, chunk)
            counts += np.bincount(ids, minlength=rows)
            ticker.advance(len(chunk))
    return counts


def split_chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield texts in lists that can be tokenized at a time, with `CHUNK` texts and `CHUNK_CHARACTERS` at most.

    A longer text is a list of its own.
    """
    chunk, characters = list[str](), 0
    for text in texts:
        if chunk and (len(chunk) == CHUNK or characters + len(text) > CHUNK_CHARACTERS):
            yield chunk
            chunk, characters = [], 0
        chunk.append(text)
        characters += len(text)
    if chunk:
        yield chunk


def encode_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the token ids of texts without special tokens, one text after the other, and the tokens of each text.

    Padding and truncation of the tokenizer are turned off.

    :returns: ids (N,), and the number of tokens of each of n texts (n,), whose sum is N.
    """
    tokenizer.no_padding()
    tokenizer.no_truncation()
    encodings = encode_batch(tokenizer, list(texts), add_special_tokens=False)
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int64, int(lengths.sum()))
    return ids, lengths


def seen_tokens(tokenizer: Tokenizer, texts: Sequence[str], size: int | None = None) -> list[int]:
    """Choose the tokens to keep for some texts, as ascending ids.

    These are the special tokens, the tokens seen in the texts, and every seen character as a token, so that new words
    can be spelled; with BPE also the tokens through which merges form the others.

    Unlike `choose_tokens`, this does not keep the lowest-scored token of Unigram where no text has it, so an unknown
    character may cost less, see `trim_tokenizer`. A student is trained on its own tokens afterwards. Of the tokens of
    minilm_ru3, one has a character that is no token itself: "3⁄4". In 400,000 texts made with it, no segmentation
    depended on that.

    :param size: keep at most this many of the tokens seen, the most frequent ones; default: all.
    """
    tokenizer_json = tokenizer_to_json(tokenizer)
    check_trimmable(tokenizer_json)
    counts = count_tokens(tokenizer, texts, id_range(tokenizer))
    seen = set(np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)][:size].tolist())
    characters = ids_of_characters(tokenizer_json, {character for text in texts for character in text})
    return sorted(add_merge_steps(tokenizer_json, required_ids(tokenizer_json) | seen | characters))


def trim_tokenizer(tokenizer: Tokenizer, kept: Sequence[int]) -> Tokenizer:
    """Return a tokenizer of the kept tokens only; token `kept[i]` gets id i.

    A text without unknown tokens is tokenized as before if all its tokens are kept. Unigram takes the most likely
    segmentation, which remains the most likely of fewer; if a character of the text is no token itself, the
    lowest-scored token has to be kept, too: where that goes, such a character may become unknown, as that costs less.
    WordPiece takes the longest token that fits, and longer ones did not fit before either. BPE also needs the tokens
    through which its merges go: see `add_merge_steps`.

    :param kept: ascending ids, special tokens among them.
    :raises InputError: when the vocabulary cannot be trimmed, or lacks a token that the tokenizer needs.
    """
    new_ids = {old: new for new, old in enumerate(kept)}
    trimmed = open_without_limits(renumber(tokenizer_to_json(tokenizer), new_ids))
    trimmed.encode_special_tokens = tokenizer.encode_special_tokens  # no tokenizer.json holds it
    return trimmed


def open_without_limits(tokenizer_json: Mapping[str, Any]) -> Tokenizer:
    """Open a tokenizer without padding and truncation, which `token_ids` and `pad` do."""
    return Tokenizer.from_str(json.dumps({**tokenizer_json, "padding": None, "truncation": None}, ensure_ascii=False))


def trim_student(student: Student, tokenizer: Tokenizer, kept: Sequence[int]) -> tuple[Student, Tokenizer]:
    """Return the student with only the kept rows of its token embeddings, and its tokenizer.

    Scores of Unigram are rounded, see `SCORE_STEPS`.

    :param kept: ascending ids, special tokens among them.
    """
    trimmed_tokenizer = open_without_limits(round_scores(tokenizer_to_json(trim_tokenizer(tokenizer, kept))))
    rows = student.embeddings.word.weight.detach()[torch.tensor(list(kept))]
    return replace_token_embeddings(student, rows, list(kept).index(student.config.pad_token_id)), trimmed_tokenizer


def replace_token_embeddings(student: Student, embeddings: Tensor, pad_token_id: int) -> Student:
    """Return the student with other token embeddings.

    :param embeddings: (V', B), in front of the student's projection; or (V', H), in place of embeddings and projection.
    """
    width = student.config.bottleneck if embeddings.shape[1] == student.config.bottleneck else None
    config = replace(student.config, vocab_size=len(embeddings), pad_token_id=pad_token_id, bottleneck=width)
    return reconfigured(student, config, {"embeddings.word.weight": embeddings})
