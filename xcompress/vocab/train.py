"""Train a Unigram vocabulary on text: from nothing, or in place of an old one, from whose rows its own are composed."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from xcompress import console
from xcompress.errors import InputError
from xcompress.modeling.student import Student
from xcompress.vocab.student import rebuilt, with_table

MARK = "\u2581"
"""Stands for a space in pieces that begin a word."""
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens of a vocabulary from nothing, by id."""
_LETTERS = Regex(rf"{MARK}?[\p{{L}}\p{{M}}]+")
"""A word, or what of it stands between signs and digits."""
_COVERAGE = 0.99999
"""Share of a text's characters that a vocabulary from nothing can spell; the rarest are left out.

SentencePiece covers 0.9995, at which whole letters of a language are lost, such as those of loan words and names.
"""
_ASCII = frozenset(map(chr, range(33, 127)))
_PENALTY = 1e-4
_DECIMALS = 3


def train_tokenizer(old: Tokenizer, texts: Iterable[str], size: int) -> Tokenizer:
    """Train a Unigram vocabulary on the texts; all else is as in the old tokenizer, special tokens stand first.

    Every character of the texts that the old vocabulary knows is a piece, in capitals and small, and so is printable
    ASCII: a text that only has such characters has no unknown piece. The same texts give the same tokenizer.

    :param size: how many pieces there are at most, special tokens among them.
    :raises InputError: when the old tokenizer is no Unigram model that marks words, there is no text, or the size does
        not hold its characters.
    """
    described = json.loads(old.to_str())
    _check_kind(described)
    normalised = _normalised(old, texts)
    characters = set(chain.from_iterable(normalised))
    alphabet = _alphabet(old, characters)
    _check_size(size, described, alphabet, bool(characters))
    return _with_new_pieces(described, _spelled(normalised, characters - alphabet), alphabet, old.pre_tokenizer, size)


def tokenizer_from_nothing(texts: Sequence[str], size: int) -> Tokenizer:
    """Train a Unigram vocabulary on the texts alone, as SentencePiece does (Kudo, 2018).

    Text is brought to NFKC and its spaces are collapsed; a mark stands for the space in front of a word. No piece joins
    letters with signs or digits, so that a word is the same piece in front of a comma. Ids 0 ... 4 are `SPECIAL`, and a
    sentence stands between `<s>` and `</s>`. Pieces are the characters of the texts but the rarest, in capitals and
    small, printable ASCII, and what training finds. The same texts give the same tokenizer.

    :param texts: read twice, so that they need not be in memory.
    :param size: how many pieces there are at most, special tokens among them.
    :raises InputError: when there is no text, or the size does not hold its characters.
    """
    blank = _blank()
    described = json.loads(blank.to_str())
    counts = Counter(chain.from_iterable(_in_words(blank, texts)))
    alphabet = _either_case(_common(counts)) | _ASCII | {MARK}
    _check_size(size, described, alphabet, bool(counts))
    splitter = pre_tokenizers.Sequence([blank.pre_tokenizer, pre_tokenizers.Split(_LETTERS, "isolated")])
    spelled = _spelled(_in_words(blank, texts), counts.keys() - alphabet)
    return _with_new_pieces(described, spelled, alphabet, splitter, size)


def _blank() -> Tokenizer:
    """Return a tokenizer that is all that one from nothing is, but has no piece."""
    tokenizer = Tokenizer(models.Unigram([(token, 0.0) for token in SPECIAL], unk_id=SPECIAL.index("<unk>")))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(list(SPECIAL))
    around = [(token, SPECIAL.index(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=around)
    return tokenizer


def _in_words(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[str]:
    """Yield each text normalised, with one space between words."""
    for text in texts:
        yield " ".join(tokenizer.normalizer.normalize_str(text).split())


def _common(counts: Mapping[str, int]) -> set[str]:
    """Choose the most frequent characters, until they make up `_COVERAGE` of the text."""
    wanted = _COVERAGE * sum(counts.values())
    chosen: set[str] = set()
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if wanted <= 0:
            break
        chosen.add(character)
        wanted -= count
    return chosen - {" "}


def _spelled(texts: Iterable[str], unknown: AbstractSet[str]) -> Iterator[str]:
    """Yield the texts with a space for each character that is not to be a piece."""
    spaces = {ord(character): " " for character in unknown}
    return (text.translate(spaces) for text in texts)


def _with_new_pieces(
    described: dict[str, Any],
    texts: Iterable[str],
    alphabet: set[str],
    splitter: pre_tokenizers.PreTokenizer,
    size: int,
) -> Tokenizer:
    """Train pieces on the texts, and return the described tokenizer with them behind its special tokens.

    :param splitter: no piece reaches across the parts into which it splits a text.
    """
    special = _special_tokens(described)
    trained = _trained(splitter, texts, _trainer(described, list(special.values()), alphabet, size))
    pieces = _cut(_canonical(trained[len(special) :]), size - len(special))
    new_ids = {old_id: number for number, old_id in enumerate(special)}
    return rebuilt(described, [*trained[: len(special)], *pieces], new_ids)


def _check_kind(described: dict[str, Any]) -> None:
    model, splitter = described["model"]["type"], described["pre_tokenizer"] or {}
    kinds = [part["type"] for part in splitter.get("pretokenizers", [splitter] if splitter else [])]
    if model != "Unigram" or "Metaspace" not in kinds:
        raise InputError(
            f"vocabulary.method train: the tokenizer is {model} with {' and '.join(kinds) or 'no'} pre-tokenizer, only "
            "Unigram with Metaspace can be trained anew; set it to keep"
        )


def _check_size(size: int, described: dict[str, Any], alphabet: set[str], has_text: bool) -> None:
    needed = len(_special_tokens(described)) + len(alphabet)
    if not has_text:
        raise InputError("vocabulary.method train: there is no text to train on; name some under corpus")
    if size < needed:
        raise InputError(
            f"vocabulary.size: {size} is less than the {needed} special tokens and characters of the text; raise it"
        )


def _alphabet(old: Tokenizer, characters: set[str]) -> set[str]:
    """Choose the characters that become pieces: those seen, either case of them, and ASCII, where the old one knows."""
    wanted = _either_case(characters) | _ASCII
    return {character for character in wanted if old.token_to_id(character) is not None} | {MARK}


def _either_case(characters: set[str]) -> set[str]:
    cases = {case for character in characters for case in (character, character.lower(), character.upper())}
    return {case for case in cases if len(case) == 1}


def _special_tokens(described: dict[str, Any]) -> dict[int, str]:
    """Return the special tokens in the order of their ids."""
    added = {token["id"]: token["content"] for token in described["added_tokens"]}
    model = described["model"]
    unknown = {} if model["unk_id"] is None else {model["unk_id"]: model["vocab"][model["unk_id"]][0]}
    return dict(sorted((added | unknown).items()))


def _normalised(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    normalizer = tokenizer.normalizer
    return [normalizer.normalize_str(text) for text in texts] if normalizer else list(texts)


def _trainer(described: dict[str, Any], special: list[str], alphabet: set[str], size: int) -> trainers.UnigramTrainer:
    model = described["model"]
    return trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=special,
        unk_token=None if model["unk_id"] is None else model["vocab"][model["unk_id"]][0],
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )


def _trained(
    splitter: pre_tokenizers.PreTokenizer, texts: Iterable[str], trainer: trainers.UnigramTrainer
) -> list[tuple[str, float]]:
    blank = Tokenizer(models.Unigram())
    blank.pre_tokenizer = splitter
    blank.train_from_iterator(texts, trainer)
    return [(piece, score) for piece, score in json.loads(blank.to_str())["model"]["vocab"]]


def _canonical(pieces: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Undo what differs between two trainings on the same text, and sort by falling score.

    The trainer walks through hash maps in random order. Scores then differ in their last digits, and characters that it
    had dropped come back with the lowest score plus a multiple of a small penalty that depends on the order.
    """
    lowest = min(score for _, score in pieces)
    band = lowest + _PENALTY * sum(len(piece) == 1 for piece, _ in pieces)
    levelled = [(piece, lowest if len(piece) == 1 and score <= band else score) for piece, score in pieces]
    rounded = [(piece, round(score, _DECIMALS)) for piece, score in levelled]
    return sorted(rounded, key=lambda entry: (-entry[1], entry[0]))


def _cut(pieces: list[tuple[str, float]], room: int) -> list[tuple[str, float]]:
    """Drop the least likely pieces beyond `room`, never a character; the trainer goes beyond what it is told."""
    longer = [piece for piece, _ in pieces if len(piece) > 1]
    dropped = set(longer[len(longer) - max(0, len(pieces) - room) :])
    return [entry for entry in pieces if entry[0] not in dropped]


def row_origins(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Tell for each new piece which old rows make it up: its own, or those of the pieces it is segmented into.

    The surface of a piece goes straight to the old model, so that no mark of a word's beginning is added to it.
    """
    unknown = _unknown_id(old)
    origins = []
    for number in range(new.get_vocab_size()):
        piece = new.id_to_token(number)
        own = old.token_to_id(piece)
        parts = [own] if own is not None else [token.id for token in old.model.tokenize(piece)]
        origins.append([part for part in parts if part != unknown] or parts[:1])
    return origins


def compose_rows(old: Tokenizer, new: Tokenizer, table: Tensor) -> Tensor:
    """Make a word table for a new vocabulary from the old one.

    A piece that the old vocabulary has keeps its row; any other gets the mean of the rows of the pieces into which the
    old tokenizer segments it.

    :param table: the old rows, (V, H).
    :returns: the new rows, (V', H).
    """
    origins = row_origins(old, new)
    composed = sum(old.token_to_id(new.id_to_token(number)) is None for number in range(len(origins)))
    console.say(f"vocabulary: {len(origins)} pieces, {len(origins) - composed} rows copied, {composed} composed")
    lengths = torch.tensor([len(parts) for parts in origins])
    flat = torch.tensor(list(chain.from_iterable(origins)))
    return torch.segment_reduce(table.detach()[flat].float(), "mean", lengths=lengths).to(table.dtype)


def retrain(student: Student, tokenizer: Tokenizer, texts: Sequence[str], size: int) -> tuple[Student, Tokenizer]:
    """Return the encoder with a vocabulary trained on the texts and rows composed from its own, and the tokenizer.

    :param size: how many pieces the vocabulary has at most.
    :raises InputError: as `train_tokenizer` does.
    """
    trained = train_tokenizer(tokenizer, [student.config.prefix, *texts], size)
    table = compose_rows(tokenizer, trained, student.embeddings.word.weight)
    padding = trained.token_to_id(tokenizer.id_to_token(student.config.pad_token_id))
    return with_table(student, table, padding), trained


def _unknown_id(tokenizer: Tokenizer) -> int | None:
    return json.loads(tokenizer.to_str())["model"].get("unk_id")  # type: ignore[no-any-return]
