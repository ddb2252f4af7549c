from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from tests.helpers.student import SENTENCES, bundle
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.tokenizer import BundleTokenizer, _head, batches_by_length

PIECES = st.sampled_from(
    ["the boat", "naïve", "\u0301", " ", "  ", "\n", "\t", "\u00a0", "日本語", "😀", "\u200d", "\u200b", "abc" * 9]
)
MESSY = st.lists(PIECES, max_size=40).map("".join)


def test_tokens_are_those_of_the_encoder() -> None:
    texts = [*SENTENCES, "", " ", "half a pair \ud800", "the boat " * 200]
    encoder = Encoder(bundle())
    assert BundleTokenizer(bundle(), read_manifest(bundle())).token_ids(texts) == encoder.token_ids(texts)


def unigram() -> Tokenizer:
    """Make one like XLM-R's: what has no width becomes a space, several spaces become one, words are parted at them."""
    words = [("<unk>", 0.0), ("▁", -3.0), *((f"▁{word}", -4.0) for word in ("the", "boat", "waits", "naïve"))]
    tokenizer = Tokenizer(models.Unigram([*words, *((letter, -6.0) for letter in "abcehiotw日本")], unk_id=0))
    spaces = [normalizers.Replace("\u200b", " "), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return tokenizer


def wordpiece() -> Tokenizer:
    """Make one like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"]))
    return tokenizer


def byte_pairs() -> Tokenizer:
    """Make one like RoBERTa's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(SENTENCES, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    return tokenizer


@pytest.mark.parametrize("make", [unigram, wordpiece, byte_pairs])
def test_the_head_of_a_text_has_its_first_tokens(make: Callable[[], Tokenizer]) -> None:
    tokenizer = make()

    @settings(max_examples=150, deadline=None)
    @given(text=MESSY, width=st.integers(1, 80))
    @example(text="the boat\u200b waits for the tide", width=12)
    @example(text="the boat   waits for the tide", width=10)
    def check(text: str, width: int) -> None:
        head = tokenizer.encode(_head(text, width)).ids
        assert tokenizer.encode(text).ids[: len(head)] == head

    check()


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 5000), max_size=60), batch_size=st.integers(1, 40))
def test_batches_hold_every_row_once_and_little_at_a_time(lengths: list[int], batch_size: int) -> None:
    batches = list(batches_by_length(lengths, batch_size))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= batch_size
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 1024


def test_batches_hold_rows_of_like_length() -> None:
    lengths = [5, 1, 3, 4000, 2]
    assert list(batches_by_length(lengths, 2)) == [[1, 4], [2, 0], [3]]
    assert list(batches_by_length(lengths[:3] * 2, 100)) == [[1, 4, 2, 5, 0, 3]]
    assert list(batches_by_length([512] * 3, 32)) == [[0, 1], [2]]
    assert list(batches_by_length([], 2)) == []
