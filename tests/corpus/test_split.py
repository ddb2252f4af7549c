from collections import Counter
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from xcompress.corpus import split as splitting
from xcompress.corpus.columns import ColumnFile
from xcompress.corpus.pairs import Pair
from xcompress.corpus.split import IN_HOLDOUT, IN_TRAIN, is_among, rank, sentence_key

SIDES = np.dtype([("source", "<u8"), ("target", "<u8")])


def split(pairs: Sequence[Pair], holdout_sentences: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split pairs by the hold-out that `xcompress.corpus.split.split` chooses."""
    languages = {name: [pair for pair in pairs if pair.language == name] for name in {pair.language for pair in pairs}}
    parts = {}
    with TemporaryDirectory() as folder:
        files = {name: ColumnFile(Path(folder) / name, SIDES) for name in languages}
        for name, own in languages.items():
            numbers = np.empty(len(own), SIDES)
            for side in ("source", "target"):
                numbers[side] = ranks([getattr(pair, side) for pair in own], seed)
            files[name].append(numbers)
            parts[name] = numbers
        hold_out = splitting.split(files, holdout_sentences, Path(folder))
    parts = {name: hold_out.parts(numbers["source"], numbers["target"]) for name, numbers in parts.items()}
    train = [pair for name, own in languages.items() for pair in compress(own, parts[name] == IN_TRAIN)]
    return train, [pair for name, own in languages.items() for pair in compress(own, parts[name] == IN_HOLDOUT)]


def ranks(texts: Sequence[str], seed: int) -> np.ndarray:
    return np.array([rank(sentence_key(text), seed) for text in texts], np.uint64)


def pairs_of(language: str, numbers: range) -> list[Pair]:
    return [Pair(f"Sentence number {n}.", f"{language} Satz {n}!", language, "o") for n in numbers]


def keys(pairs: list[Pair]) -> set[str]:
    return {sentence_key(side) for pair in pairs for side in (pair.source, pair.target)}


def test_no_sentence_is_on_both_sides() -> None:
    pairs = pairs_of("de", range(200)) + pairs_of("nl", range(200))
    variants = [Pair(p.source.upper().replace(".", " ?!"), "Variante " + p.target, p.language, "o") for p in pairs]
    train, holdout = split(pairs + variants, 40, seed=1)
    assert len({sentence_key(pair.source) for pair in holdout}) == 40
    assert len(train) + len(holdout) == 800
    assert not keys(train) & keys(holdout)


def test_a_translation_in_the_holdout_is_not_trained_on() -> None:
    pairs = pairs_of("de", range(100))
    _, holdout = split(pairs, 20, seed=0)
    as_target = [Pair(f"A different sentence {n}.", pair.target.upper(), "de", "o") for n, pair in enumerate(holdout)]
    as_source = [Pair(pair.target, f"Etwas anderes {n}.", "de", "o") for n, pair in enumerate(holdout)]
    train, again = split([*pairs, *as_target, *as_source], 20, seed=0)
    held = {pair.target.upper() for pair in again}
    for pair in (*as_target, *as_source):
        german = pair.target if pair in as_target else pair.source.upper()
        assert (pair in train) == (pair not in again and german not in held)
    assert 0 < len(set(as_source) & set(train)) < 20


def test_the_order_does_not_matter_but_the_seed_does() -> None:
    pairs = pairs_of("de", range(300))
    chosen = {pair.source for pair in split(pairs, 50, seed=0)[1]}
    assert {pair.source for pair in split(pairs[::-1], 50, seed=0)[1]} == chosen
    assert {pair.source for pair in split(pairs, 50, seed=1)[1]} != chosen


def test_sentences_in_all_languages_come_first() -> None:
    """Those in one language alone are more than are looked at."""
    pairs = pairs_of("de", range(1000)) + pairs_of("ar", range(400, 600)) + pairs_of("ar", range(2000, 2400))
    holdout = split(pairs, 50, seed=0)[1]
    assert Counter(pair.language for pair in holdout) == {"de": 50, "ar": 50}


def test_every_language_gets_its_share() -> None:
    pairs = pairs_of("de", range(4000)) + pairs_of("fr", range(4000)) + pairs_of("ar", range(8000, 8100))
    holdout = Counter(pair.language for pair in split(pairs, 900, seed=0)[1])
    assert holdout["de"] >= 300 and holdout["fr"] >= 300 and holdout["ar"] == 25
    apart = pairs_of("de", range(1000)) + pairs_of("ar", range(2000, 2500))
    assert Counter(pair.language for pair in split(apart, 50, seed=0)[1]) == {"de": 25, "ar": 25}


def test_a_small_corpus_keeps_three_quarters_for_training() -> None:
    train, holdout = split(pairs_of("de", range(8)), 1000, seed=0)
    assert (len(train), len(holdout)) == (6, 2)


def test_none_held_out() -> None:
    assert split(pairs_of("de", range(8)), 0, seed=0)[1] == []
    assert split([], 5, seed=0) == ([], [])


def test_keys_ignore_case_punctuation_and_width() -> None:
    assert sentence_key("Ｔhe “Door”, is OPEN…") == sentence_key("the door is open")
    assert sentence_key("कि") != sentence_key("का")
    assert sentence_key("\ufeffThe sta\u00adtion is he\u200bre.") == sentence_key("the station is here")


def test_ranks_follow_the_key_and_the_seed() -> None:
    assert rank("the door", 1) == rank("the door", 1) != rank("the door", 2)
    assert 0 <= rank("the door", 1) < 2**64


@pytest.mark.parametrize("known", [[], [3], [0, 3, 2**64 - 1]])
def test_membership(known: list[int]) -> None:
    values = [0, 3, 4, 2**64 - 1, 3]
    found = is_among(np.array(values, np.uint64), np.array(known, np.uint64))
    assert found.tolist() == [value in known for value in values]
