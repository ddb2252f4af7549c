from collections import Counter
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from small_student import CONFIG, make_student, make_tokenizer

from xcompress.corpus.pairs import Pair
from xcompress.distill.pairs import Collator, PairDataset, draw
from xcompress.distill.stages import goals_of
from xcompress.distill.targets import VectorCache, vectors_of
from xcompress.distill.trainer import COMPLETE, newest_checkpoint
from xcompress.recipe import Stage
from xcompress.student import encode

PAIRS = [Pair(f"source {n}", f"Ziel {n}", "de", "") for n in range(20)] + [Pair("one", "un", "fr", "")]


def test_every_language_is_drawn_equally_often() -> None:
    drawn = draw(PAIRS, 30, seed=1)
    assert Counter(pair.language for pair in drawn) == {"de": 15, "fr": 15}
    assert len({pair.source for pair in drawn if pair.language == "de"}) == 15


def test_a_draw_depends_on_the_seed_alone() -> None:
    assert draw(PAIRS, 25, seed=1) == draw(PAIRS, 25, seed=1) != draw(PAIRS, 25, seed=2)


def test_a_batch_holds_sources_first_then_targets_with_their_goals() -> None:
    pairs = [Pair("the boat is late", "rain", "de", ""), Pair("rain", "der Zug kommt heute nicht", "de", "")]
    goals = {"teacher_sources": np.arange(6, dtype=np.float32).reshape(2, 3)}
    dataset = PairDataset(pairs, make_tokenizer(), CONFIG, goals)
    batch = Collator(pad_token_id=1)([dataset[0], dataset[1]])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (4, max(dataset.lengths))
    assert batch["attention_mask"].sum(1).tolist() == [7, 4, 4, 8]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 1).all()
    assert torch.equal(batch["teacher_sources"], torch.tensor([[0.0, 1, 2], [3, 4, 5]]))


def test_goals_stand_in_the_order_of_the_pairs() -> None:
    def lengths(texts: list[str]) -> NDArray[np.float32]:
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    pairs = [Pair("aa", "b", "de", ""), Pair("a", "bbb", "de", ""), Pair("aa", "bb", "fr", "")]
    stage = Stage(train="student", objectives={"assistant": 1, "contrast": 1}, steps=1)
    goals = goals_of(stage, pairs, lengths, lengths)
    assert goals["teacher_sources"].ravel().tolist() == [2, 1, 2]
    assert goals["assistant_sources"].ravel().tolist() == [2, 1, 2]
    assert goals["assistant_targets"].ravel().tolist() == [1, 3, 2]
    only_contrast = Stage(train="student", objectives={"contrast": 1}, steps=1)
    assert list(goals_of(only_contrast, pairs, lengths, lengths)) == ["teacher_sources"]


def test_vectors_are_computed_once_per_model_and_texts(tmp_path: Path) -> None:
    calls = []

    def open_model() -> object:
        calls.append(1)
        return lambda texts: np.full((len(texts), 2), len(calls), dtype=np.float32)

    cache = VectorCache(tmp_path)
    first = cache.vectors("teacher", "fingerprint", ["a", "b"], open_model)
    assert (cache.vectors("teacher", "fingerprint", ["a", "b"], open_model) == first).all()
    assert len(calls) == 1
    cache.vectors("teacher", "fingerprint", ["a", "c"], open_model)
    cache.vectors("teacher", "another", ["a", "b"], open_model)
    assert len(calls) == 3
    assert {file.suffix for file in tmp_path.iterdir()} == {".npy", ".json"}


def test_vectors_of_a_model_are_those_of_encode_up_to_its_arithmetic() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    texts = ["the boat is late", "rain"]
    found = vectors_of("student", student, tokenizer)(texts)
    np.testing.assert_allclose(found, encode(student, tokenizer, texts), atol=0.03)


def test_only_complete_checkpoints_count(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    for step, complete in ((4, True), (12, True), (100, True), (200, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if complete:
            (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    assert newest_checkpoint(tmp_path) == str(tmp_path / "checkpoint-100")
