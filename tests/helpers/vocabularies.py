"""Small tokenizers of every kind that can be trimmed, trained on graded sentences."""

import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgpack
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.helpers import GRADED
from tests.helpers.files import made_once
from xcompress.corpus.graded import read_folder

GERMAN = ["Der Zug kommt heute nicht.", "Im Hafen liegt ein rotes Boot.", "Es regnet seit gestern ohne Pause."]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def sentences() -> list[str]:
    return [*read_folder(GRADED).sentences(), *GERMAN]


@cache
def tokenizer_json(kind: str) -> str:
    return made_once(f"{kind}.json", lambda file: file.write_text(MAKERS[kind]().to_str(), "utf-8")).read_text("utf-8")


def make(kind: str) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_json(kind))


def _unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(sentences(), trainer)
    return _with_template(tokenizer)


def _wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = [f"[unused{number}]" for number in range(7)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=900, special_tokens=["[PAD]", *special, *BERT_SPECIAL[1:]], show_progress=False
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = processors.BertProcessing(*ids)
    return _only_added(tokenizer, BERT_SPECIAL)


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    ids = [(token, tokenizer.token_to_id(token)) for token in ("</s>", "<s>")]
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), processors.RobertaProcessing(*ids, add_prefix_space=False)]
    )
    return tokenizer


def _byte_fallback() -> Tokenizer:
    """Make BPE as converted from SentencePiece: every split of a token into two tokens is a merge."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    source = make("unigram").get_vocab()
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [*SPECIAL, *fallback, *(piece for piece in sorted(source, key=source.__getitem__) if piece not in SPECIAL)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    splits = [(piece[:cut], piece[cut:]) for piece in vocabulary for cut in range(1, len(piece))]
    merges = [pair for pair in splits if pair[0] in vocabulary and pair[1] in vocabulary]
    tokenizer.model = models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer.add_special_tokens(SPECIAL)
    return _with_template(tokenizer)


def _marked_ends() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>", continuing_subword_prefix="~"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=SPECIAL,
        end_of_word_suffix="</w>",
        continuing_subword_prefix="~",
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    return _with_template(tokenizer)


def _whole_words() -> Tokenizer:
    """Make byte-level BPE that ignores merges for words that are tokens."""
    text = _byte_level().to_str().replace('"ignore_merges":false', '"ignore_merges":true')
    assert '"ignore_merges":true' in text
    return Tokenizer.from_str(text)


def _with_template(tokenizer: Tokenizer) -> Tokenizer:
    ids = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=ids
    )
    return tokenizer


def _only_added(tokenizer: Tokenizer, tokens: list[str]) -> Tokenizer:
    """Make the unused tokens ordinary tokens, as in BERT."""
    text = json.loads(tokenizer.to_str())
    text["added_tokens"] = [token for token in text["added_tokens"] if token["content"] in tokens]
    return Tokenizer.from_str(json.dumps(text))


MAKERS = {
    "unigram": _unigram,
    "wordpiece": _wordpiece,
    "byte_level": _byte_level,
    "byte_fallback": _byte_fallback,
    "marked_ends": _marked_ends,
    "whole_words": _whole_words,
}


def write_word_lists(cache: Path, words: Mapping[str, Sequence[str]]) -> None:
    """Write lists of frequent words to the cache folder of the wordfreq wheel."""
    folder = cache / "wheels" / "wordfreq-3.1.1" / "wordfreq" / "data"
    folder.mkdir(parents=True)
    for language, ranked in words.items():
        packed = msgpack.packb([{"format": "cB", "version": 1}, [], list(ranked)])
        (folder / f"small_{language}.msgpack.gz").write_bytes(gzip.compress(packed))


def text_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
