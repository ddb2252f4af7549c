from dataclasses import replace
from pathlib import Path

import numpy as np

from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.labels import VectorTable
from xcompress.distillation.data.sentences import Sentences
from xcompress.distillation.teachers.vectors import StoredVectors

PAIRS = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]


def lengths(texts: list[str]) -> StoredVectors:
    return StoredVectors(np.array([[len(text)] for text in texts], dtype=np.float16))


def test_labels_are_in_the_order_of_the_pairs_and_no_sentence_is_encoded_twice(tmp_path: Path) -> None:
    encoded: list[str] = []

    def encode(texts: list[str]) -> StoredVectors:
        encoded.extend(texts)
        return lengths(texts)

    texts = {side: Sentences(PAIRS, side) for side in ("source", "target")}
    table = VectorTable.compute(texts, encode, tmp_path)
    assert sorted(encoded) == ["a", "aa", "b", "bb", "bbb"]
    assert table.labels("source").take([0, 1, 2]).ravel().tolist() == [2, 1, 2]
    assert table.labels("target").take([2, 1]).ravel().tolist() == [2, 3]
    assert table.by_text("source")(["a", "aa"]).ravel().tolist() == [1, 2]


def test_a_transform_applies_to_labels_and_to_lookups_by_text(tmp_path: Path) -> None:
    table = replace(
        VectorTable.compute({"all": ["a", "bb"]}, lengths, tmp_path), transform=lambda vectors: 10 * vectors
    )
    assert table.labels("all").take([1]).tolist() == [[20]]
    assert table.by_text("all")(["a"]).tolist() == [[10]]
