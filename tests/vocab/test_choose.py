from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from tests.helpers.student import make_tokenizer
from tests.helpers.vocabularies import GERMAN, make, sentences, text_file
from tests.vocab.watched import WatchedTokenizer
from xcompress.errors import InputError
from xcompress.vocab.choose import choose_tokens
from xcompress.vocab.count import TokenCounts, count_file, count_words
from xcompress.vocab.student import trim_tokenizer

pytestmark = pytest.mark.usefixtures("word_lists")
KINDS = ["unigram", "wordpiece", "byte_level", "byte_fallback", "marked_ends"]


def count_of(tokenizer: Tokenizer, texts: list[str], held_out: tuple[str, ...] = ()) -> TokenCounts:
    ids = [number for text in texts for number in tokenizer.encode(text, add_special_tokens=False).ids]
    seen = np.bincount(ids, minlength=tokenizer.get_vocab_size())
    return TokenCounts("text", seen, seen / seen.sum(), held_out)


@pytest.mark.parametrize("kind", KINDS)
def test_counted_text_is_read_as_before(kind: str, tmp_path: Path) -> None:
    tokenizer = make(kind)
    counts = [count_words(tokenizer, "de"), count_file(tokenizer, text_file(tmp_path, GERMAN))]
    kept = choose_tokens(tokenizer, counts)
    trimmed = trim_tokenizer(tokenizer, kept.ids)
    assert list(kept.ids) == sorted(set(kept.ids))
    assert kept.report.pieces_before == tokenizer.get_vocab_size() > kept.report.pieces_after == len(kept.ids)
    for text in [*GERMAN, "der Zug", "Hafen"]:
        assert trimmed.encode(text).tokens == tokenizer.encode(text).tokens


@pytest.mark.parametrize("kind", KINDS)
def test_new_words_numbers_and_punctuation_can_be_segmented(kind: str) -> None:
    tokenizer = make(kind)
    trimmed = trim_tokenizer(tokenizer, choose_tokens(tokenizer, [count_words(tokenizer, "de")]).ids)
    known = [character for character in "unterm 5, Turm (sacht?) - nie: ein Ende." if _is_known(tokenizer, character)]
    text = "".join(known)
    assert len(text) > 20
    assert not {"<unk>", "[UNK]"} & set(trimmed.encode(text).tokens)


def _is_known(tokenizer: Tokenizer, character: str) -> bool:
    return not {"<unk>", "[UNK]"} & set(tokenizer.encode(f"{character} e{character}").tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_a_size_keeps_the_most_frequent_tokens(kind: str) -> None:
    tokenizer = make(kind)
    counted = count_of(tokenizer, [*["the boat"] * 30, *sentences()])
    small, smaller = (choose_tokens(tokenizer, [counted], size=size) for size in (300, 60))
    whole = choose_tokens(tokenizer, [counted])
    assert set(smaller.ids) < set(small.ids) < set(whole.ids)
    assert small.report.pieces_after - small.report.needed <= 300
    frequent = set(np.argsort(-counted.shares, kind="stable")[:60].tolist())
    assert frequent <= set(smaller.ids)


def test_each_text_weighs_the_same_however_long() -> None:
    tokenizer = make("wordpiece")
    long, short = count_of(tokenizer, sentences()), count_of(tokenizer, ["der Zug kommt nicht"])
    kept = choose_tokens(tokenizer, [long, short], size=12).ids
    assert {tokenizer.token_to_id(word) for word in ("der", "nicht")} <= set(kept)
    assert tokenizer.token_to_id("nicht") not in choose_tokens(tokenizer, [long], size=12).ids


def test_rare_tokens_go_with_a_minimum_count() -> None:
    tokenizer = make("wordpiece")
    counted = count_of(tokenizer, ["nicht", "der", "der"])
    kept = set(choose_tokens(tokenizer, [counted], min_count=2).ids)
    assert tokenizer.token_to_id("der") in kept
    assert tokenizer.token_to_id("nicht") not in kept
    assert tokenizer.token_to_id("##t") in kept


def test_needed_ids_and_special_tokens_stay() -> None:
    tokenizer = make("wordpiece")
    unused = tokenizer.token_to_id("[unused3]")
    counted = count_of(tokenizer, GERMAN)
    assert unused not in choose_tokens(tokenizer, [counted]).ids
    assert unused in choose_tokens(tokenizer, [counted], needed=[unused]).ids
    assert tokenizer.token_to_id("[MASK]") in choose_tokens(tokenizer, [counted], size=1).ids


def test_the_report_measures_held_out_text() -> None:
    tokenizer = make("wordpiece")
    counted = count_of(tokenizer, ["der Zug"], held_out=("der Hafen", "€ der"))
    report = choose_tokens(tokenizer, [counted], size=3).report
    (measured,) = report.held_out
    trimmed = trim_tokenizer(tokenizer, choose_tokens(tokenizer, [counted], size=3).ids)
    tokens = [token for text in counted.held_out for token in trimmed.encode(text, add_special_tokens=False).tokens]
    assert (measured.texts, measured.words) == (2, 4)
    assert measured.unknown_after == tokens.count("[UNK]") / len(tokens) > 0
    assert measured.pieces_per_word_after == len(tokens) / 4
    assert report.counted == ("text",)


def test_long_held_out_texts_are_tokenized_a_few_at_a_time_and_measured_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = WatchedTokenizer(make("wordpiece"))
    counted = count_of(make("wordpiece"), ["der Zug"], held_out=("der Hafen", "€ der") * 20)
    whole = choose_tokens(make("wordpiece"), [counted], size=3).report
    monkeypatch.setattr("xcompress.vocab.student.CHUNK_CHARACTERS", 50)
    assert choose_tokens(tokenizer, [counted], size=3).report == whole  # type: ignore[arg-type]
    assert max(tokenizer.characters) <= 50 < sum(tokenizer.characters)


def test_unknown_characters_cost_the_same_as_before() -> None:
    vocabulary = [("<unk>", 0.0), ("abc", -20.0), ("def", -20.0), ("bcdef", -1.0), ("x", -100.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    assert tokenizer.encode("abcdef").tokens == ["abc", "def"]
    counted = count_of(tokenizer, ["abcdef", "bcdef"])
    trimmed = trim_tokenizer(tokenizer, choose_tokens(tokenizer, [counted]).ids)
    assert trimmed.encode("abcdef").tokens == ["abc", "def"]
    without = trim_tokenizer(tokenizer, [0, 1, 2, 3])
    assert without.encode("abcdef").tokens != ["abc", "def"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"size": 0}, "--vocabulary: 0 is less than 1"), ({"min_count": -1}, "--min-count: -1 is less than 1")],
)
def test_bad_numbers_are_refused(arguments: dict[str, int], message: str) -> None:
    tokenizer = make("wordpiece")
    with pytest.raises(InputError, match=message):
        choose_tokens(tokenizer, [count_of(tokenizer, GERMAN)], **arguments)


def test_other_kinds_are_refused() -> None:
    with pytest.raises(InputError, match="tokenizer is WordLevel, only Unigram, WordPiece, BPE"):
        choose_tokens(make_tokenizer(), [])
