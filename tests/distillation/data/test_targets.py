from dataclasses import replace

import numpy as np
import pytest

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import ConcatSequence
from xcompress.distillation.data.targets import Sentences, VectorTable, distinct
from xcompress.distillation.teachers.vectors import Vectors

PAIRS = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]


def lengths(texts: list[str]) -> Vectors:
    return Vectors(np.array([[len(text)] for text in texts], dtype=np.float16))


def test_a_side_is_read_pair_by_pair() -> None:
    side = Sentences(PAIRS, "target", np.array([2, 0, 2]))
    assert list(side) == ["bb", "b", "bb"] and side[1:] == ["b", "bb"]
    with pytest.raises(IndexError):
        side[3]


def test_concatenated_sequences_read_as_one() -> None:
    texts = ConcatSequence([["a"], [], ["b", "c"]])
    assert list(texts) == ["a", "b", "c"] and texts[-1] == "c" and len(texts) == 3


def test_distinct_texts_occur_once_and_rows_point_to_them() -> None:
    texts = ["x", "y", "x", "z", "y"]
    unique, rows = distinct(texts)
    assert sorted(unique) == ["x", "y", "z"]
    assert [unique[row] for row in rows] == texts


def test_targets_are_in_the_order_of_the_pairs_and_no_sentence_is_encoded_twice() -> None:
    encoded: list[str] = []

    def encode(texts: list[str]) -> Vectors:
        encoded.extend(texts)
        return lengths(texts)

    groups = {side: Sentences(PAIRS, side) for side in ("source", "target")}
    table = VectorTable.compute(groups, encode)
    assert sorted(encoded) == ["a", "aa", "b", "bb", "bbb"]
    assert table.targets("source").take([0, 1, 2]).ravel().tolist() == [2, 1, 2]
    assert table.targets("target").take([2, 1]).ravel().tolist() == [2, 3]
    assert table.by_text("source")(["a", "aa"]).ravel().tolist() == [1, 2]


def test_a_transform_applies_to_targets_and_to_lookups_by_text() -> None:
    table = replace(VectorTable.compute({"all": ["a", "bb"]}, lengths), transform=lambda vectors: 10 * vectors)
    assert table.targets("all").take([1]).tolist() == [[20]]
    assert table.by_text("all")(["a"]).tolist() == [[10]]
