"""Train a Unigram vocabulary on text: a new one, or one that replaces another and takes over its embeddings."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from xcompress import console
from xcompress.corpus.sequences import ConcatSequence
from xcompress.errors import InputError
from xcompress.modeling.student import Student
from xcompress.tokenizer_file import SPACE, steps_of, tokenizer_to_json
from xcompress.vocab.student import open_without_limits, replace_token_embeddings
from xcompress.vocab.tokenizer_json import ASCII, TokenizerJson, replace_model

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special tokens of a new vocabulary, by id."""
_LETTERS = Regex(rf"{SPACE}?[\p{{L}}\p{{M}}]+")
"""A word, or the part of it between signs and digits."""
_COVERAGE = 0.99999
"""Share of a text's characters that a new vocabulary can spell; the rarest are left out.

SentencePiece covers 0.9995, which loses whole letters of a language, such as those of loan words and names.
"""
_PENALTY = 1e-4
_DECIMALS = 3


def check_trainable(tokenizer_json: TokenizerJson) -> None:
    """Refuse a tokenizer whose vocabulary cannot be trained anew.

    :raises InputError: when it is not Unigram with Metaspace.
    """
    model = tokenizer_json["model"].get("type")
    kinds = [step["type"] for step in steps_of(tokenizer_json["pre_tokenizer"])]
    if model != "Unigram" or "Metaspace" not in kinds:
        raise InputError(
            f"vocabulary.method train: the tokenizer is {model} with {' and '.join(kinds) or 'no'} pre-tokenizer, only "
            "Unigram with Metaspace can be trained anew; set it to keep"
        )


def train_tokenizer(old: Tokenizer, texts: Sequence[str], size: int) -> Tokenizer:
    """Train a Unigram vocabulary on texts; special tokens come first, everything else is as in the old tokenizer.

    Every character of the texts that the old vocabulary knows becomes a token, in upper and lower case, and so does
    printable ASCII: text of such characters alone has no unknown token. The same texts give the same tokenizer.

    :param texts: read twice, so they need not be in memory.
    :param size: maximum number of tokens, special tokens included.
    :raises InputError: when the old tokenizer is not Unigram with Metaspace, there is no text, or the size is too
        small for its characters.
    """
    tokenizer_json = tokenizer_to_json(old)
    check_trainable(tokenizer_json)
    normalizer = old.normalizer

    def normalized() -> Iterator[str]:
        return (normalizer.normalize_str(text) for text in texts) if normalizer else iter(texts)

    characters = set(chain.from_iterable(normalized()))
    wanted = _both_cases(characters) | ASCII
    alphabet = {character for character in wanted if old.token_to_id(character) is not None} | {SPACE}
    _check_size(size, tokenizer_json, alphabet, bool(characters))
    spaced = _replace_by_spaces(normalized(), characters - alphabet)
    return _train_model(tokenizer_json, spaced, alphabet, old.pre_tokenizer, size)


def train_new_tokenizer(texts: Sequence[str], size: int) -> Tokenizer:
    """Train a Unigram vocabulary on texts alone, as SentencePiece does (Kudo, 2018).

    Text is normalised to NFKC, and spaces are collapsed; a marker represents the space in front of a word. No token
    joins letters with signs or digits, so that a word has the same tokens in front of a comma. Ids 0 ... 4 are
    `SPECIAL`; a sentence is between `<s>` and `</s>`. The tokens are the characters of the texts except the rarest, in
    upper and lower case, printable ASCII, and those that training finds. The same texts give the same tokenizer.

    :param texts: read twice, so they need not be in memory.
    :param size: maximum number of tokens, special tokens included.
    :raises InputError: when there is no text, or the size is too small for its characters.
    """
    # a tokenizer without tokens
    blank = Tokenizer(models.Unigram([(token, 0.0) for token in SPECIAL], unk_id=SPECIAL.index("<unk>")))
    blank.normalizer = normalizers.NFKC()
    blank.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    blank.decoder = decoders.Metaspace()
    blank.add_special_tokens(list(SPECIAL))
    around = [(token, SPECIAL.index(token)) for token in ("<s>", "</s>")]
    blank.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=around)
    tokenizer_json = tokenizer_to_json(blank)

    def normalized() -> Iterator[str]:
        return (" ".join(blank.normalizer.normalize_str(text).split()) for text in texts)

    # the most frequent characters, until they make up the coverage
    counts = Counter(chain.from_iterable(normalized()))
    remaining = _COVERAGE * sum(counts.values())
    common: set[str] = set()
    for character, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        if remaining <= 0:
            break
        common.add(character)
        remaining -= count
    alphabet = _both_cases(common - {" "}) | ASCII | {SPACE}
    _check_size(size, tokenizer_json, alphabet, bool(counts))
    splitter = pre_tokenizers.Sequence([blank.pre_tokenizer, pre_tokenizers.Split(_LETTERS, "isolated")])
    spaced = _replace_by_spaces(normalized(), counts.keys() - alphabet)
    return _train_model(tokenizer_json, spaced, alphabet, splitter, size)


def retrain(student: Student, tokenizer: Tokenizer, texts: Sequence[str], size: int) -> tuple[Student, Tokenizer]:
    """Return the student with a vocabulary trained on texts and composed token embeddings, and its tokenizer.

    :param size: maximum number of tokens.
    :raises InputError: as `train_tokenizer`.
    """
    trained = train_tokenizer(tokenizer, ConcatSequence([[student.config.prefix], texts]), size)
    embeddings = compose_embeddings(tokenizer, trained, student.embeddings.word.weight)
    padding = trained.token_to_id(tokenizer.id_to_token(student.config.pad_token_id))
    return replace_token_embeddings(student, embeddings, padding), trained


def compose_embeddings(old: Tokenizer, new: Tokenizer, embeddings: Tensor) -> Tensor:
    """Compose the token embeddings of a new vocabulary from those of the old one.

    A token of the old vocabulary keeps its embedding. Any other gets the mean embedding of the tokens into which the
    old tokenizer splits it.

    :param embeddings: the old token embeddings, (V, H).
    :returns: the new token embeddings, (V', H).
    """
    source_ids = old_ids_of_tokens(old, new)
    composed = sum(old.token_to_id(new.id_to_token(number)) is None for number in range(len(source_ids)))
    copied = len(source_ids) - composed
    console.say(f"vocabulary: {len(source_ids)} tokens, {copied} embeddings copied, {composed} composed")
    lengths = torch.tensor([len(ids) for ids in source_ids])
    rows = torch.tensor(list(chain.from_iterable(source_ids)))
    means = torch.segment_reduce(embeddings.detach()[rows].float(), "mean", lengths=lengths)
    return means.to(embeddings.dtype)


def old_ids_of_tokens(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Return the old ids for each new token: its own, or those of the tokens into which the old model splits it.

    The token goes directly to the old model, so that no marker of the beginning of a word is added.
    """
    unknown = tokenizer_to_json(old)["model"].get("unk_id")
    old_ids = []
    for number in range(new.get_vocab_size()):
        token = new.id_to_token(number)
        old_id = old.token_to_id(token)
        ids = [old_id] if old_id is not None else [part.id for part in old.model.tokenize(token)]
        old_ids.append([part_id for part_id in ids if part_id != unknown] or ids[:1])
    return old_ids


def _both_cases(characters: set[str]) -> set[str]:
    cases = {case for character in characters for case in (character, character.lower(), character.upper())}
    return {case for case in cases if len(case) == 1}


def _replace_by_spaces(texts: Iterable[str], characters: Iterable[str]) -> Iterator[str]:
    """Yield the texts with spaces in place of characters that must not become tokens."""
    spaces = {ord(character): " " for character in characters}
    return (text.translate(spaces) for text in texts)


def _check_size(size: int, tokenizer_json: TokenizerJson, alphabet: set[str], has_text: bool) -> None:
    needed = len(_special_tokens(tokenizer_json)) + len(alphabet)
    if not has_text:
        raise InputError("vocabulary.method train: no text to train on; add some under corpus")
    if size < needed:
        raise InputError(
            f"vocabulary.size: {size} is less than the {needed} special tokens and characters of the text; raise it"
        )


def _special_tokens(tokenizer_json: TokenizerJson) -> dict[int, str]:
    """Return the special tokens by ascending id."""
    added = {token["id"]: token["content"] for token in tokenizer_json["added_tokens"]}
    model = tokenizer_json["model"]
    unknown = {} if model["unk_id"] is None else {model["unk_id"]: model["vocab"][model["unk_id"]][0]}
    return dict(sorted((added | unknown).items()))


def _train_model(
    tokenizer_json: dict[str, Any],
    texts: Iterable[str],
    alphabet: set[str],
    splitter: pre_tokenizers.PreTokenizer,
    size: int,
) -> Tokenizer:
    """Train a Unigram model on texts, and return the tokenizer with its special tokens and the trained ones.

    :param splitter: splits a text into parts that no token crosses.
    """
    special, model = _special_tokens(tokenizer_json), tokenizer_json["model"]
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=list(special.values()),
        unk_token=special.get(model["unk_id"]),
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    blank = Tokenizer(models.Unigram())
    blank.pre_tokenizer = splitter
    blank.train_from_iterator(texts, trainer)
    trained = [(token, score) for token, score in tokenizer_to_json(blank)["model"]["vocab"]]
    tokens = _sort_reproducibly(trained[len(special) :])
    # the trainer exceeds its size: drop the least likely tokens, but never a character
    longer = [token for token, _ in tokens if len(token) > 1]
    excess = max(0, len(tokens) - (size - len(special)))
    dropped = set(longer[len(longer) - excess :])
    vocabulary = [*trained[: len(special)], *(entry for entry in tokens if entry[0] not in dropped)]
    new_ids = {old_id: number for number, old_id in enumerate(special)}
    new_model = {**model, "vocab": vocabulary, "unk_id": new_ids.get(model["unk_id"])}
    return open_without_limits(replace_model({**tokenizer_json, "padding": None}, new_model, new_ids))


def _sort_reproducibly(tokens: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Sort by falling score, and remove the differences between two trainings on the same text.

    The trainer iterates over hash maps in random order. So scores differ in their last digits, and characters that it
    had dropped come back with the lowest score plus a multiple of a small penalty that depends on the order.
    """
    lowest = min(score for _, score in tokens)
    limit = lowest + _PENALTY * sum(len(token) == 1 for token, _ in tokens)
    levelled = [(token, lowest if len(token) == 1 and score <= limit else score) for token, score in tokens]
    rounded = [(token, round(score, _DECIMALS)) for token, score in levelled]
    return sorted(rounded, key=lambda entry: (-entry[1], entry[0]))
