"""Choose the tokens to keep from counts, and measure the effect on text that was not counted."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from xcompress.errors import InputError
from xcompress.tokenizer_file import id_range, tokenizer_to_json
from xcompress.vocab.count import TokenCounts
from xcompress.vocab.student import count_tokens, trim_tokenizer
from xcompress.vocab.tokenizer_json import (
    ASCII,
    SurfaceForms,
    TokenizerJson,
    add_merge_steps,
    check_trimmable,
    ids_of_characters,
    is_number_like,
    is_sign,
    model_vocabulary,
    required_ids,
    unknown_id,
)


@dataclass(frozen=True)
class HeldOut:
    """Tokens of a text that was not counted, before and after trimming; the fields are keys of trim.json."""

    name: str
    """Language code or file name."""
    texts: int
    words: int
    """Number of words, separated by spaces."""
    unknown_before: float
    """Unknown tokens / tokens."""
    unknown_after: float
    pieces_per_word_before: float
    """Tokens / words."""
    pieces_per_word_after: float


@dataclass(frozen=True)
class VocabularyReport:
    """Size of the vocabulary and effect on held-out text; the fields are keys of trim.json and a bundle's manifest."""

    pieces_before: int
    """Number of tokens."""
    pieces_after: int
    needed: int
    """Tokens kept whatever the counts: special tokens, single characters, steps of BPE merges."""
    counted: tuple[str, ...]
    """Languages and files that were counted."""
    held_out: tuple[HeldOut, ...]


@dataclass(frozen=True)
class TokenChoice:
    """The tokens to keep, as ascending ids, and the report on them."""

    ids: tuple[int, ...]
    report: VocabularyReport


def choose_tokens(
    tokenizer: Tokenizer,
    counts: Sequence[TokenCounts],
    *,
    size: int | None = None,
    min_count: int = 1,
    needed: Iterable[int] = (),
) -> TokenChoice:
    """Choose the tokens to keep.

    These are the tokens seen in any of the counted texts (with a size, the most frequent ones), special tokens, every
    seen character as a token, printable ASCII, and the tokens through which BPE merges go. Where words alone were
    counted, also numbers and the punctuation of every script.

    :param counts: from `count_words` and `count_file`, one or more; all weigh the same, whatever the length of their
        text.
    :param size: keep at most this many of the tokens seen, by their mean share of the texts; default: all.
    :param min_count: tokens seen less often, in all texts together, count as not seen.
    :param needed: ids to keep in any case, such as those that a model's configuration names.
    :raises InputError: when the tokenizer cannot be trimmed, or a number is below 1.
    """
    tokenizer_json = tokenizer_to_json(tokenizer)
    check_trimmable(tokenizer_json)
    for name, number in (("--vocabulary", size), ("--min-count", min_count)):
        if number is not None and number < 1:
            raise InputError(f"{name}: {number} is less than 1; give at least 1")
    mandatory = required_ids(tokenizer_json) | set(needed) | _character_ids(tokenizer_json, counts)
    model = tokenizer_json["model"]
    if model["type"] == "Unigram":
        # an unknown character's cost is derived from the lowest score, so its token has to stay: see `trim_tokenizer`
        scores = [score for _, score in model["vocab"]]
        mandatory.add(scores.index(min(scores)))
    frequent = _frequent_ids(tokenizer_json, counts, size, min_count)
    ids = tuple(sorted(add_merge_steps(tokenizer_json, mandatory | frequent)))
    trimmed = trim_tokenizer(tokenizer, ids)
    report = VocabularyReport(
        pieces_before=tokenizer.get_vocab_size(),
        pieces_after=len(ids),
        needed=len(ids) - len(frequent - mandatory),
        counted=tuple(text.name for text in counts),
        held_out=tuple(_measure_held_out(tokenizer, trimmed, text) for text in counts if text.held_out),
    )
    return TokenChoice(ids, report)


def _frequent_ids(
    tokenizer_json: TokenizerJson, counts: Sequence[TokenCounts], size: int | None, min_count: int
) -> set[int]:
    """Choose the tokens that were seen, the most frequent ones where there is a size."""
    seen = np.sum([text.seen for text in counts], axis=0)
    shares = np.mean([text.shares for text in counts], axis=0)
    if any(text.words_only for text in counts):
        forms = SurfaceForms.from_json(tokenizer_json)
        vocabulary = model_vocabulary(tokenizer_json["model"])
        numbers = [number for token, number in vocabulary.items() if is_number_like(forms.surface(token))]
        seen[numbers] += min_count
    candidates = np.flatnonzero(seen >= min_count)
    order = np.argsort(-shares[candidates], kind="stable")
    return set(candidates[order][:size].tolist())


def _character_ids(tokenizer_json: TokenizerJson, counts: Sequence[TokenCounts]) -> set[int]:
    """Choose the tokens of one character that a new text may need."""
    forms, vocabulary = SurfaceForms.from_json(tokenizer_json), model_vocabulary(tokenizer_json["model"])
    seen = np.sum([text.seen for text in counts], axis=0)
    surfaces = {token: forms.surface(token) for token in vocabulary}
    characters = {character for token, number in vocabulary.items() if seen[number] for character in surfaces[token]}
    characters |= {character for text in counts for character in text.characters}
    if any(text.words_only for text in counts):
        characters |= {surface for surface in surfaces.values() if len(surface) == 1 and is_sign(surface)}
    return ids_of_characters(tokenizer_json, characters | ASCII | {""})


def _measure_held_out(before: Tokenizer, after: Tokenizer, counts: TokenCounts) -> HeldOut:
    texts = counts.held_out
    words = sum(len(text.split()) for text in texts)
    unknown_rates, tokens_per_word = [], []
    for tokenizer in (before, after):
        seen = count_tokens(tokenizer, texts, id_range(tokenizer))
        tokens, unknown = int(seen.sum()), unknown_id(tokenizer_to_json(tokenizer)["model"])
        unknown_rates.append(0.0 if unknown is None else int(seen[unknown]) / max(tokens, 1))
        tokens_per_word.append(tokens / max(words, 1))
    return HeldOut(counts.name, len(texts), words, *unknown_rates, *tokens_per_word)
