import numpy as np
import pytest

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence
from xcompress.distillation.data.targets import Sentences, VectorTable, distinct
from xcompress.distillation.teachers.vectors import Vectors

PAIRS = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]


def lengths(texts: list[str]) -> Vectors:
    return Vectors([np.array([[len(text)] for text in texts], dtype=np.float16)])


def test_a_side_is_read_pair_by_pair() -> None:
    side = Sentences(PAIRS, "target", np.array([2, 0, 2]))
    assert list(side) == ["bb", "b", "bb"] and side[1:] == ["b", "bb"]
    with pytest.raises(IndexError):
        side[3]


def test_joined_parts_read_as_one_sequence() -> None:
    joined = ConcatSequence([["a"], [], ["b", "c"]])
    assert list(joined) == ["a", "b", "c"] and joined[-1] == "c" and len(joined) == 3


def test_distinct_texts_come_once_and_every_text_finds_its_own() -> None:
    texts = ["x", "y", "x", "z", "y"]
    found, places = distinct(texts)
    assert sorted(found) == ["x", "y", "z"]
    assert [found[place] for place in places] == texts


def test_goals_stand_in_the_order_of_the_pairs_and_no_sentence_is_encoded_twice() -> None:
    asked: list[str] = []

    def encode(texts: list[str]) -> Vectors:
        asked.extend(texts)
        return lengths(texts)

    groups = {side: Sentences(PAIRS, side) for side in ("source", "target")}
    table = VectorTable(groups, encode)
    assert sorted(asked) == ["a", "aa", "b", "bb", "bbb"]
    assert table.goal("source").take([0, 1, 2]).ravel().tolist() == [2, 1, 2]
    assert table.goal("target").take([2, 1]).ravel().tolist() == [2, 3]
    assert table.by_text("source")(["a", "aa"]).ravel().tolist() == [1, 2]


def test_vectors_can_be_changed_before_they_are_learned() -> None:
    table = VectorTable({"all": ["a", "bb"]}, lengths)
    table.change = lambda vectors: 10 * vectors
    assert table.goal("all").take([1]).tolist() == [[20]]
    assert table.by_text("all")(["a"]).tolist() == [[10]]
