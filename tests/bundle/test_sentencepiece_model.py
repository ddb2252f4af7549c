"""A Unigram vocabulary as a SentencePiece model: which texts have the same ids, and for which tokenizers."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer

from tests.helpers.student import make_tokenizer
from xcompress.bundle.released import released_folder, released_names
from xcompress.bundle.sentencepiece_model import (
    SentencePieceTokenizer,
    beyond_sentencepiece,
    is_exact,
    write_sentencepiece,
)
from xcompress.corpus.graded import DATA


@pytest.mark.parametrize("name", released_names())
def test_sentencepiece_gives_the_ids_of_the_released_models(name: str, tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    tokenizer = Tokenizer.from_file(str(released_folder(name) / "tokenizer.json"))
    tokenizer.enable_truncation(24)
    lines = [line for file in DATA.glob("sentences.*.txt") for line in file.read_text(encoding="utf-8").splitlines()]
    texts = ["", *(f"query: {line}" for line in lines), "Ω ≈ ½ ﬁ 日本 😀"]
    file = tmp_path / "tokenizer.model"
    write_sentencepiece(tokenizer, file)
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    assert SentencePieceTokenizer(file).token_ids(texts, 24) == expected
    cpp = pytest.importorskip("pytorch_tokenizers", reason="executorch is not installed").CppSPTokenizer()
    cpp.load(str(file))
    tokenizer.no_truncation()
    assert all(list(cpp.encode(text, 1, 1)) == tokenizer.encode(text).ids for text in texts)


@pytest.mark.parametrize(
    ("part", "value", "problem"),
    [
        ("normalizer", {"type": "NFKC"}, "the normalizer NFKC"),
        ("pre_tokenizer", None, "the pre-tokenizer null"),
        ("pre_tokenizer", {"type": "BertPreTokenizer"}, "the pre-tokenizer BertPreTokenizer"),
        ("post_processor", None, "other special tokens than one before and one after a text"),
    ],
)
def test_what_a_sentencepiece_model_cannot_hold_is_named(part: str, value: object, problem: str) -> None:
    description = json.loads((released_folder("tiny") / "tokenizer.json").read_text(encoding="utf-8"))
    assert beyond_sentencepiece(Tokenizer.from_str(json.dumps(description))) is None
    assert beyond_sentencepiece(Tokenizer.from_str(json.dumps(description | {part: value}))) == problem
    assert beyond_sentencepiece(make_tokenizer()) == "a vocabulary of WordLevel"


@pytest.fixture(scope="module", params=["one space", "whitespace split"])
def tiny(request: pytest.FixtureRequest) -> Tokenizer:
    """Return the tokenizer of tiny, as released and with spaces split as in other files of XLM-R's tokenizer."""
    description = json.loads((released_folder("tiny") / "tokenizer.json").read_text(encoding="utf-8"))
    if request.param == "whitespace split":
        description["normalizer"] = description["normalizer"]["normalizers"][0]
        parts = [{"type": "WhitespaceSplit"}, description["pre_tokenizer"]]
        description["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@pytest.fixture(scope="module")
def fast(tiny: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    file = tmp_path_factory.mktemp("tiny") / "tokenizer.model"
    write_sentencepiece(tiny, file)
    return SentencePieceTokenizer(file)


def assert_same_ids(tiny: Tokenizer, fast: SentencePieceTokenizer, texts: list[str]) -> None:
    expected = [encoding.ids for encoding in tiny.encode_batch_fast(texts)]
    found = fast.token_ids(texts, 10_000)
    assert [text for text, old, new in zip(texts, expected, found, strict=True) if old != new] == []


def simple_characters(fast: SentencePieceTokenizer) -> list[str]:
    return [chr(code) for code in range(1, 0x11000) if fast.reads(f"\u0628{chr(code)}\u0628")]


@pytest.mark.parametrize("pattern", ["a{}b", "{}", " {}{} b"])
def test_each_simple_character_has_the_same_ids(tiny: Tokenizer, fast: SentencePieceTokenizer, pattern: str) -> None:
    texts = [pattern.replace("{}", character) for character in simple_characters(fast)]
    read = [text for text in texts if fast.reads(text)]
    assert len(read) > 34_000
    assert_same_ids(tiny, fast, read)


def test_no_simple_character_becomes_more_than_four(tiny: Tokenizer, fast: SentencePieceTokenizer) -> None:
    lengths = [len(tiny.normalizer.normalize_str(character)) for character in simple_characters(fast)]
    assert max(lengths) == 4


def test_ties_between_segmentations_are_broken_alike(tiny: Tokenizer, fast: SentencePieceTokenizer) -> None:
    drawn = random.Random(1)
    parts = ["ha", "a", "!", "...", "0", "00", "no", "in", "la", "\u0660", "te", "ss", "\u4e2d", " "]
    texts = ["".join(drawn.choice(parts) * drawn.randint(1, 9) for _ in range(4)) for _ in range(5000)]
    letters = simple_characters(fast)[:3000]
    texts += ["".join(drawn.choices(letters, k=drawn.randint(1, 40))) for _ in range(5000)]
    read = [text for text in texts if fast.reads(text)]
    assert len(read) > 8000
    assert_same_ids(tiny, fast, read)


@pytest.mark.parametrize(
    "text",
    [
        "rain ",
        "rain\n",
        "\u00a0",
        "e\u0301",
        "a\u064b",
        "<s>",
        "\r\n",
        "\U0001f600",
        "\uff76\uff9e",
        "\u200b",
        "a" * 1051,
    ],
)
def test_other_texts_are_left_to_the_tokenizers_library(fast: SentencePieceTokenizer, text: str) -> None:
    assert not fast.reads(text)


def test_a_long_text_is_truncated_before_the_last_special_token(tiny: Tokenizer, fast: SentencePieceTokenizer) -> None:
    (ids,) = fast.token_ids(["the boat waits for the tide"], 5)
    whole = tiny.encode("the boat waits for the tide").ids
    assert ids == [*whole[:4], whole[-1]]
    assert fast.token_ids([""], 5) == [tiny.encode("").ids]


def test_texts_are_tokenized_where_no_thread_can_start(
    fast: SentencePieceTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, encode = ["the boat waits", "for the tide"], type(fast._processor).encode
    expected = fast.token_ids(texts, 5)

    def encode_one(processor: object, text: str, **_: object) -> list[int]:
        if isinstance(text, list):
            raise RuntimeError("Resource temporarily unavailable")
        ids: list[int] = encode(processor, text)
        return ids

    monkeypatch.setattr(type(fast._processor), "encode", encode_one)
    assert fast.token_ids(texts, 5) == expected


def change_score(description: dict[str, Any]) -> None:
    description["model"]["vocab"][9][1] += 0.001


def lower_score(description: dict[str, Any]) -> None:
    description["model"]["vocab"][9][1] = -30.0


def continue_after_a_space(description: dict[str, Any]) -> None:
    description["model"]["vocab"][9][0] = "of\u2581the"


def add_a_word(description: dict[str, Any]) -> None:
    token = {
        **description["added_tokens"][0],
        "id": 9,
        "content": description["model"]["vocab"][9][0],
        "special": False,
    }
    description["added_tokens"].append(token)


def keep_spaces(description: dict[str, Any]) -> None:
    normalizer, splitter = description["normalizer"], description["pre_tokenizer"]
    description["normalizer"] = normalizer.get("normalizers", [normalizer])[0]
    description["pre_tokenizer"] = splitter.get("pretokenizers", [splitter])[-1]


def fold_case(description: dict[str, Any]) -> None:
    normalizers = description["normalizer"].get("normalizers", [description["normalizer"]])
    description["normalizer"] = {"type": "Sequence", "normalizers": [*normalizers, {"type": "Lowercase"}]}


def take_other_table(description: dict[str, Any]) -> None:
    description["normalizer"] = {"type": "NFKC"}


def end_without_a_token(description: dict[str, Any]) -> None:
    description["post_processor"]["single"].pop()


def end_with_an_id_beyond_the_vocabulary(description: dict[str, Any]) -> None:
    for token in description["post_processor"]["special_tokens"].values():
        token["ids"] = [len(description["model"]["vocab"])]


CHANGES = [
    *(change_score, lower_score, continue_after_a_space, add_a_word),
    *(keep_spaces, fold_case, take_other_table, end_without_a_token, end_with_an_id_beyond_the_vocabulary),
]


def test_the_released_tokenizers_are_exact(tiny: Tokenizer) -> None:
    assert is_exact(tiny)
    assert is_exact(Tokenizer.from_file(str(released_folder("small") / "tokenizer.json")))


def test_a_sequence_inside_of_a_sequence_makes_no_difference(tiny: Tokenizer) -> None:
    description = json.loads(tiny.to_str())
    description["normalizer"] = {"type": "Sequence", "normalizers": [description["normalizer"]]}
    tokenizer = Tokenizer.from_str(json.dumps(description))
    assert is_exact(tokenizer)
    assert beyond_sentencepiece(tokenizer) is None


@pytest.mark.parametrize("change", CHANGES)
def test_a_tokenizer_with_other_ids_somewhere_is_not_exact(
    tiny: Tokenizer, change: Callable[[dict[str, Any]], None]
) -> None:
    description = json.loads(tiny.to_str())
    change(description)
    assert not is_exact(Tokenizer.from_str(json.dumps(description)))


@pytest.mark.parametrize(("content", "normalized"), [("foo ", False), ("\u064bn", False), ("ﬁx", True)])
def test_a_tokenizer_with_an_added_token_of_usual_characters_is_not_exact(
    tiny: Tokenizer, content: str, normalized: bool
) -> None:
    """Texts that SentencePiece reads may hold it: "foo bar", or "fix" where the ligature is normalised."""
    tokenizer = Tokenizer.from_str(tiny.to_str())
    tokenizer.add_tokens([AddedToken(content, normalized=normalized)])
    assert not is_exact(tokenizer)


@pytest.mark.parametrize(("content", "normalized"), [("<foo>", True), ("ﬁx", False)])
def test_an_added_token_that_no_simple_text_holds_makes_no_difference(
    tiny: Tokenizer, content: str, normalized: bool
) -> None:
    tokenizer = Tokenizer.from_str(tiny.to_str())
    tokenizer.add_tokens([AddedToken(content, normalized=normalized)])
    assert is_exact(tokenizer)


def test_other_models_are_not_exact() -> None:
    assert not is_exact(make_tokenizer())
