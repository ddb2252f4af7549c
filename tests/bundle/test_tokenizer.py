import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from tests.helpers.student import SENTENCES, bundle
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import released_folder
from xcompress.bundle.tokenizer import BundleTokenizer, _head, batches_by_length
from xcompress.errors import InputError

PIECES = st.sampled_from(
    ["the boat", "naïve", "\u0301", " ", "  ", "\n", "\t", "\u00a0", "日本語", "😀", "\u200d", "\u200b", "abc" * 9]
)
MESSY = st.lists(PIECES, max_size=40).map("".join)


def test_token_ids_are_those_of_tokenizer_json_with_the_prefix() -> None:
    texts, manifest = [*SENTENCES, "", " ", "half a pair \ud800", "the boat " * 200], read_manifest(bundle())
    tokenizer = Tokenizer.from_file(str(bundle() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(manifest["max_tokens"])
    expected = [tokenizer.encode(manifest["prefix"] + text.replace("\ud800", "?")).ids for text in texts]
    assert len(expected[-1]) == manifest["max_tokens"]
    assert Encoder(bundle()).token_ids(texts) == expected


def test_sentencepiece_reads_simple_texts_and_tokenizers_the_others(empty_cache: Path) -> None:
    folder = released_folder("tiny")
    texts = ["Where is the station?", "Wo ist der Bahnhof? ", "", "cafe\u0301", "Dov'è la stazione?", "the boat " * 300]
    first = BundleTokenizer(folder, read_manifest(folder))  # makes the SentencePiece model
    (made,) = (empty_cache / "tokenizers").glob("*/tokenizer.model")
    written = made.stat().st_mtime_ns
    second = BundleTokenizer(folder, read_manifest(folder))
    assert second.token_ids(texts[:1]) == [first.tokenizer.encode(texts[0]).ids]
    assert "tokenizer" not in vars(second)  # tokenizer.json was not opened
    assert second.token_ids(texts) == [first.tokenizer.encode(text).ids for text in texts]
    assert "tokenizer" in vars(second)
    assert made.stat().st_mtime_ns == written


def test_another_version_of_xcompress_makes_the_sentencepiece_model_anew(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = released_folder("tiny")
    for version in ("0.1.0", "0.2.0", "0.2.0"):
        monkeypatch.setattr("xcompress.__version__", version)
        BundleTokenizer(folder, read_manifest(folder))
    assert len(list((empty_cache / "tokenizers").glob("*/tokenizer.model"))) == 2


def test_a_damaged_sentencepiece_model_is_made_again(empty_cache: Path) -> None:
    folder = released_folder("tiny")
    expected = BundleTokenizer(folder, read_manifest(folder)).token_ids(SENTENCES)
    (made,) = (empty_cache / "tokenizers").glob("*/tokenizer.model")
    content = bytearray(made.read_bytes())
    content[1000] ^= 1
    made.write_bytes(content)
    assert BundleTokenizer(folder, read_manifest(folder)).token_ids(SENTENCES) == expected
    assert made.read_bytes() != bytes(content)


def test_a_token_that_sentencepiece_refuses_leaves_tokenizers(bundle_copy: Path, empty_cache: Path) -> None:
    description = json.loads((released_folder("tiny") / "tokenizer.json").read_text(encoding="utf-8"))
    description["model"]["vocab"][9][0] = ""
    manifest = read_manifest(released_folder("tiny"))
    (bundle_copy / "tokenizer.json").write_text(json.dumps(description), encoding="utf-8")
    opened = BundleTokenizer(bundle_copy, manifest)
    assert opened.token_ids(SENTENCES) == [opened.tokenizer.encode(text).ids for text in SENTENCES]


def test_a_tokenizer_that_does_not_fit_the_graph_is_refused_with_a_full_cache_too(empty_cache: Path) -> None:
    folder, manifest = released_folder("tiny"), dict(read_manifest(released_folder("tiny")))
    BundleTokenizer(folder, manifest)
    for change in ({"vocab_size": 100}, {"max_tokens": 64}, {"pad_token_id": 7}):
        with pytest.raises(InputError, match="export the bundle again"):
            BundleTokenizer(folder, manifest | change)


@pytest.mark.parametrize("missing", ["sentencepiece", "platformdirs"])
def test_without_sentencepiece_or_cache_the_ids_are_the_same(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = released_folder("tiny")
    expected = BundleTokenizer(folder, read_manifest(folder)).token_ids(SENTENCES)
    monkeypatch.setenv("XCOMPRESS_CACHE", "")
    monkeypatch.setitem(sys.modules, missing, None)
    alone = BundleTokenizer(folder, read_manifest(folder))
    assert alone.token_ids(SENTENCES) == expected


@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer"])
def test_a_text_on_which_a_regular_expression_gives_up_is_refused(part: str, bundle_copy: Path) -> None:
    file = bundle_copy / "tokenizer.json"
    endless, split = {"pattern": {"Regex": "(x+x+)+y"}}, {"type": "Split", "behavior": "Isolated", "invert": False}
    step = {"type": "Replace", "content": "z"} if part == "normalizer" else split
    file.write_text(json.dumps(json.loads(file.read_text()) | {part: step | endless}))
    opened = BundleTokenizer(bundle_copy, read_manifest(bundle_copy))
    assert opened.token_ids(["rain"])
    for encode in (opened.token_ids, opened.windows):
        with pytest.raises(InputError, match=r"tokenizer\.json: cannot tokenize one of the texts \(.+\); leave it out"):
            encode(["rain", "x" * 26 + "😀"])


def test_an_id_around_the_text_that_the_graph_does_not_have_is_refused(bundle_copy: Path) -> None:
    tokenizer = Tokenizer.from_file(str(bundle_copy / "tokenizer.json"))
    tokenizer.post_processor = processors.BertProcessing(("</s>", 99_999), ("<s>", 0))
    tokenizer.save(str(bundle_copy / "tokenizer.json"))
    with pytest.raises(InputError, match=r"has ids up to 99999, manifest\.json says vocab_size"):
        BundleTokenizer(bundle_copy, read_manifest(bundle_copy))


def test_an_id_that_the_graph_does_not_have_is_refused_where_lower_ones_are_left_out(bundle_copy: Path) -> None:
    file = bundle_copy / "tokenizer.json"
    content = json.loads(file.read_text())
    word = next(word for word, number in content["model"]["vocab"].items() if number > 4)
    content["model"]["vocab"][word] = 99_999
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"has ids up to 99999, manifest\.json says vocab_size"):
        BundleTokenizer(bundle_copy, read_manifest(bundle_copy))


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


def reference(encoder: Encoder, text: str) -> np.ndarray:
    """Encode without any cutting but the tokenizer's own."""
    ids = np.array([encoder._tokenizer.tokenizer.encode(encoder.manifest["prefix"] + text).ids])
    return encoder.session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0]


class Recorder:
    """A tokenizer that notes how many characters it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.characters, self.at_once = tokenizer, 0, 0

    def encode_batch_fast(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[Encoding]:
        characters = sum(map(len, texts))
        self.characters, self.at_once = self.characters + characters, max(self.at_once, characters)
        return self.tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("the boat is late " * 60_000, 3_000),
        ("x" * 1_000_000, 120_000),
        (" " * 1_000_000, 120_000),
        ("rain\n" * 200_000, 120_000),
        ("x" * 900 + " the boat is late" * 60_000, 12_000),
    ],
    ids=["words", "one word", "spaces", "lines", "a long word first"],
)
def test_of_a_megabyte_only_what_counts_is_tokenised(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    exact = Encoder(bundle(), precision="fp32", threads=1)
    expected = reference(exact, text)
    recorder = Recorder(exact._tokenizer.tokenizer)
    monkeypatch.setattr(exact._tokenizer, "tokenizer", recorder)
    np.testing.assert_allclose(exact.encode([text]), expected, atol=1e-6)
    assert recorder.characters <= most


def test_of_many_long_texts_few_are_tokenised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of each is blank, so that more of it is needed: 1,000 of 60,000 characters took 2.4 GB."""
    exact, texts = Encoder(bundle(), precision="fp32", threads=1), [" " * 2_000 + "rain " * 1_000] * 20
    expected = exact.token_ids(texts[0]) * 20
    recorder = Recorder(exact._tokenizer.tokenizer)
    monkeypatch.setattr(exact._tokenizer, "tokenizer", recorder)
    monkeypatch.setattr("xcompress.bundle.tokenizer._CHARACTERS_AT_ONCE", 15_000)
    assert exact.token_ids(texts) == expected
    assert 7_000 < recorder.at_once <= 15_000 + 20 * len("query: ")


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
