from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.labels import LiveLabels, VectorLabels, VectorTable, identity
from xcompress.distillation.data.sentences import Sentences
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore

PAIRS = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]


def lengths(texts: list[str], _: VectorStore | None = None) -> StoredVectors:
    return StoredVectors(np.array([[len(text)] for text in texts], dtype=np.float16))


def test_labels_are_in_the_order_of_the_pairs_and_no_sentence_is_encoded_twice(tmp_path: Path) -> None:
    encoded: list[str] = []

    def encode(texts: list[str], _: VectorStore) -> StoredVectors:
        encoded.extend(texts)
        return lengths(texts)

    texts = {side: Sentences(PAIRS, side) for side in ("source", "target")}
    table = VectorTable.compute(texts, encode, VectorStore(tmp_path))
    assert sorted(encoded) == ["a", "aa", "b", "bb", "bbb"]
    assert table.labels("source").take([0, 1, 2]).ravel().tolist() == [2, 1, 2]
    assert table.labels("target").take([2, 1]).ravel().tolist() == [2, 3]
    assert table.by_text("source")(["a", "aa"]).ravel().tolist() == [1, 2]


def test_a_transform_applies_to_labels_and_to_lookups_by_text(tmp_path: Path) -> None:
    table = replace(
        VectorTable.compute({"all": ["a", "bb"]}, lengths, VectorStore(tmp_path)),
        transform=lambda vectors: 10 * vectors,
    )
    assert table.labels("all").take([1]).tolist() == [[20]]
    assert table.by_text("all")(["a"]).tolist() == [[10]]


def by_place(rows: Sequence[object]) -> NDArray[np.float32]:
    """Return vectors that differ by their place, as the last digits of a product do."""
    return np.arange(len(rows), dtype=np.float32)[:, None]


def test_equal_sentences_have_equal_live_vectors() -> None:
    """contrast_bool compares vectors, and those of one text in two batches differ in the last digits."""
    labels = LiveLabels(["a", "b", "a", "c"], by_place, identity)
    assert labels.take([3, 0, 1, 2]).ravel().tolist() == [0, 1, 2, 1]
    assert replace(labels, transform=by_place).take([2, 1, 0]).ravel().tolist() == [0, 1, 0]


def test_equal_sentences_have_equal_stored_vectors_after_a_transform() -> None:
    labels = VectorLabels(lengths(["a", "bb"]), np.array([1, 0, 1]), by_place)
    assert labels.take([0, 1, 2]).ravel().tolist() == [1, 0, 1]
