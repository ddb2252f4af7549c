"""Trimmed vocabularies of all kinds tokenize kept text as before."""

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.helpers.vocabularies import GERMAN, MAKERS, make, sentences
from xcompress.errors import InputError
from xcompress.tokenizer_file import tokenizer_to_json
from xcompress.vocab.student import seen_tokens, trim_tokenizer
from xcompress.vocab.tokenizer_json import (
    Merges,
    SurfaceForms,
    add_merge_steps,
    bytes_by_letter,
    is_number_like,
    is_sign,
    renumber,
    required_ids,
)

KINDS = sorted(MAKERS)
WORDS = sorted({word for text in sentences() for word in text.split()})


def trimmed_to(kind: str, texts: list[str]) -> tuple[Tokenizer, Tokenizer, dict[int, int]]:
    """Trim to the tokens of the texts and nothing more than these need: the hardest case."""
    tokenizer = make(kind)
    tokenizer_json = tokenizer_to_json(tokenizer)
    seen = {number for text in texts for number in tokenizer.encode(text).ids}
    kept = sorted(add_merge_steps(tokenizer_json, seen | required_ids(tokenizer_json)))
    return tokenizer, trim_tokenizer(tokenizer, kept), {old: new for new, old in enumerate(kept)}


def unknown(tokenizer: Tokenizer) -> set[int]:
    return {tokenizer.token_to_id(token) for token in ("<unk>", "[UNK]")} - {None}


def shuffled_text(tokenizer: Tokenizer, ids: list[int], seed: int) -> str:
    """Make a text of some tokens in another order: known words, parts of them, and words that never were."""
    shuffled = random.Random(seed).sample(ids, len(ids))
    return str(tokenizer.decode(shuffled, skip_special_tokens=True))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    kept=st.lists(st.sampled_from(WORDS), min_size=1, max_size=25),
    probes=st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), max_size=5),
    strange=st.text(max_size=12),
    seed=st.integers(0, 1000),
)
def test_text_made_of_kept_tokens_has_the_same_ids(
    kind: str, kept: list[str], probes: list[str], strange: str, seed: int
) -> None:
    tokenizer, trimmed, new_ids = trimmed_to(kind, [" ".join(kept)])
    tokens = tokenizer.encode(" ".join(kept), add_special_tokens=False).ids
    texts = [
        *kept,
        " ".join(reversed(kept)),
        shuffled_text(tokenizer, tokens, seed),
        *probes,
        strange,
        *WORDS[seed::100],
    ]
    for text in texts:
        ids = tokenizer.encode(text).ids
        if set(ids) <= new_ids.keys() - unknown(tokenizer):
            assert trimmed.encode(text).ids == [new_ids[old] for old in ids], text


@pytest.mark.parametrize("kind", KINDS)
def test_much_text_is_made_of_kept_tokens_and_not_of_all(kind: str) -> None:
    tokenizer, trimmed, new_ids = trimmed_to(kind, sentences()[::2])
    kept = [text for text in WORDS if set(tokenizer.encode(text).ids) <= new_ids.keys()]
    assert len(kept) > len(WORDS) / 2
    assert trimmed.get_vocab_size() == len(new_ids) < tokenizer.get_vocab_size()


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_and_special_tokens_are_as_before(kind: str) -> None:
    tokenizer, trimmed, new_ids = trimmed_to(kind, GERMAN)
    before, after = tokenizer.encode(*GERMAN[:2]), trimmed.encode(*GERMAN[:2])
    assert after.tokens == before.tokens
    assert after.ids == [new_ids[old] for old in before.ids]
    assert (after.type_ids, after.special_tokens_mask) == (before.type_ids, before.special_tokens_mask)
    added = tokenizer.get_added_tokens_decoder()
    assert {new_ids[old]: str(token) for old, token in added.items()} == {
        number: str(token) for number, token in trimmed.get_added_tokens_decoder().items()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_all_but_vocabulary_and_ids_is_unchanged(kind: str) -> None:
    tokenizer, trimmed, _ = trimmed_to(kind, GERMAN)
    before, after = tokenizer_to_json(tokenizer), tokenizer_to_json(trimmed)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        assert after[part] == before[part]
    named = {"vocab", "merges", "unk_id"}
    assert {key: after["model"][key] for key in after["model"].keys() - named} == {
        key: before["model"][key] for key in before["model"].keys() - named
    }


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback", "whole_words"])
def test_bytes_are_always_kept(kind: str) -> None:
    tokenizer, trimmed, _ = trimmed_to(kind, GERMAN)
    assert trimmed.decode(trimmed.encode("ჩემი სახლი 🚲").ids) == tokenizer.decode(
        tokenizer.encode("ჩემი სახლი 🚲").ids
    )
    assert "<unk>" not in trimmed.encode("ჩემი სახლი 🚲").tokens


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback", "marked_ends"])
def test_without_what_merges_go_through_kept_text_would_change(kind: str) -> None:
    tokenizer = make(kind)
    seen = {number for text in GERMAN for number in tokenizer.encode(text).ids}
    unclosed = trim_tokenizer(tokenizer, sorted(seen | required_ids(tokenizer_to_json(tokenizer))))
    assert any(unclosed.encode(text).tokens != tokenizer.encode(text).tokens for text in GERMAN)


def test_merges_go_through_fewer_tokens_than_all_that_could_make_them() -> None:
    tokenizer = make("byte_fallback")
    vocabulary = tokenizer_to_json(tokenizer)["model"]["vocab"]
    made = [token for token in vocabulary if [part.value for part in tokenizer.model.tokenize(token)] == [token]]
    whole = max(made, key=len)
    steps = Merges.from_model(tokenizer_to_json(tokenizer)["model"]).steps(whole)
    assert {*whole, whole} <= steps
    inside = {whole[start:end] for start in range(len(whole)) for end in range(start + 1, len(whole) + 1)}
    assert len(steps) < len(inside & vocabulary.keys())


def test_a_merge_that_a_file_names_twice_has_its_last_rank() -> None:
    merges = [["a", "b"], ["b", "c"], ["a", "b"]]
    tokens = {token: number for number, token in enumerate(("a", "b", "c", "ab", "bc"))}
    library = Tokenizer(models.BPE(tokens, [(left, right) for left, right in merges]))
    assert library.encode("abc").tokens == ["a", "bc"]
    assert Merges.from_model({"merges": merges}).among(tokens) == json.loads(library.to_str())["model"]["merges"]


def test_the_merges_of_a_token_take_a_time_in_proportion_to_its_length() -> None:
    halves = ["x" * 2**power for power in range(17)]
    merges = Merges.from_model({"merges": [[half, half] for half in halves]})
    started = time.process_time()
    assert merges.steps("x" * 2**17) == {*halves, "x" * 2**17}
    assert time.process_time() - started < 30


@settings(max_examples=200, deadline=None)
@given(
    choices=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=25),
    order=st.randoms(use_true_random=False),
    kept=st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=3),
    probes=st.lists(st.text("abc", min_size=1, max_size=12), min_size=20, max_size=20),
)
def test_merges_in_any_order_make_kept_text_alike(
    choices: list[tuple[int, int]], order: random.Random, kept: list[str], probes: list[str]
) -> None:
    tokens, merges = ["a", "b", "c"], []
    for left, right in choices:
        merges.append((tokens[left % len(tokens)], tokens[right % len(tokens)]))
        tokens.append("".join(merges[-1]))
    order.shuffle(merges)  # also a later merge first, as it happens in vocabularies converted from scores
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(dict.fromkeys(tokens))}, merges))
    tokenizer_json = tokenizer_to_json(tokenizer)
    ids = sorted(add_merge_steps(tokenizer_json, {number for text in kept for number in tokenizer.encode(text).ids}))
    trimmed = trim_tokenizer(tokenizer, ids)
    for text in [*kept, *probes]:
        before = tokenizer.encode(text)
        if set(before.ids) <= set(ids):
            assert trimmed.encode(text).tokens == before.tokens


@pytest.mark.parametrize("kind", KINDS)
def test_any_vocabulary_that_holds_the_trimmed_one_reads_kept_text_alike(kind: str) -> None:
    tokenizer = make(kind)
    kept = seen_tokens(tokenizer, GERMAN)
    more = sorted({*kept, *range(0, tokenizer.get_vocab_size(), 3)})
    for ids in (kept, sorted(add_merge_steps(tokenizer_to_json(tokenizer), more))):
        trimmed = trim_tokenizer(tokenizer, ids)
        assert [trimmed.encode(text).tokens for text in GERMAN] == [tokenizer.encode(text).tokens for text in GERMAN]


def test_padding_keeps_its_token() -> None:
    tokenizer = make("wordpiece")
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[MASK]"), pad_token="[MASK]", length=8)
    tokenizer_json = tokenizer_to_json(tokenizer)
    kept = sorted(required_ids(tokenizer_json))
    new = Tokenizer.from_str(json.dumps(renumber(tokenizer_json, {old: number for number, old in enumerate(kept)})))
    assert new.padding["pad_id"] == new.token_to_id("[MASK]") == kept.index(tokenizer.token_to_id("[MASK]"))


def test_ids_that_the_tokenizer_names_cannot_be_dropped() -> None:
    with pytest.raises(InputError, match=r"ids \[.*0.*\] cannot be removed"):
        trim_tokenizer(make("unigram"), [7, 8, 9])


def test_bytes_are_read_back_as_characters() -> None:
    forms = SurfaceForms.from_json(tokenizer_to_json(make("byte_level")))
    assert forms.surface("ĠSchÃ¶n") == "Schön"
    assert forms.tokens("ö") == {"Ã¶", "ĠÃ¶"}
    assert SurfaceForms("##", "", in_bytes=False).surface("##heit") == "heit"


def test_the_letters_of_bytes_are_those_of_the_library() -> None:
    assert set(bytes_by_letter()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(bytes_by_letter().values()) == list(range(256))


@pytest.mark.parametrize(
    ("surface", "expected"),
    [
        ("1999", True),
        ("),", True),
        ("“,", True),
        ("€5", True),
        ("1st", False),
        ("۲۰", False),
        ("é!", False),
        ("", False),
    ],
)
def test_numbers_and_punctuation_are_distinguished_from_words(surface: str, expected: bool) -> None:
    assert is_number_like(surface) is expected


def test_signs_are_of_every_script() -> None:
    assert all(map(is_sign, "?،。€+٣"))
    assert not any(map(is_sign, "aßж中"))
