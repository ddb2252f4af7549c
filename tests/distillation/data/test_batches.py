from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.student import CONFIG, make_tokenizer
from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.batches import (
    BatchesByKind,
    PairBatches,
    draw,
)
from xcompress.distillation.data.labels import ScalarLabels, VectorLabels
from xcompress.distillation.data.tokens import write_tokens
from xcompress.distillation.teachers.vectors import StoredVectors
from xcompress.modeling.student import pad, token_ids

PAIRS = [
    Pair("the boat is late", "rain", "de", ""),
    Pair("rain", "der Zug kommt heute nicht", "de", ""),
    Pair("the train", "le train", "fr", ""),
]

LANGUAGES = [np.arange(20), np.array([20])]


def batches(folder: Path, rows: list[int]) -> PairBatches:
    write_tokens(folder / "tokens", PAIRS, np.array(rows), make_tokenizer(), CONFIG)
    vectors = StoredVectors(np.arange(6, dtype=np.float16).reshape(2, 3))
    labels = {"teacher_sources": VectorLabels(vectors, np.array([1, 0, 1]))}
    return PairBatches(folder / "tokens", labels, pad_token_id=1, rows=np.arange(len(rows)))


class Numbers:
    """Batches that return their pair numbers."""

    def __init__(self, count: int, group_size: int = 1) -> None:
        self.count = count
        self.group_size = group_size

    def __len__(self) -> int:
        return self.count

    def __call__(self, rows: list[int]) -> list[int]:
        return rows


def test_every_pair_comes_with_its_own_of_the_other_kinds() -> None:
    kinds = {"translations": Numbers(3), "monolingual": Numbers(6)}
    both = BatchesByKind(kinds)
    assert len(both) == 3
    assert both([1]) == {"translations": [1], "monolingual": [2, 3]}
    assert both([2, 0]) == {"translations": [2, 0], "monolingual": [4, 5, 0, 1]}


@pytest.mark.parametrize("workers", [1, 2])
def test_groups_stay_whole_and_are_the_same_for_any_number_of_workers(workers: int) -> None:
    both = BatchesByKind({"translations": Numbers(16), "groups": Numbers(32, group_size=8)})
    rows = [9, 15, 2, 0, 4, 11, 7, 12]
    shares = [rows[start : start + 8 // workers] for start in range(0, 8, 8 // workers)]
    pairs = [pair for share in shares for pair in both(share)["groups"]]
    assert [pair // 8 for pair in pairs[::8]] == [2, 1], "of pairs 9 and 4: two in 16 pairs for 8"
    assert pairs == [*range(16, 24), *range(8, 16)]


def test_every_language_is_drawn_equally_often() -> None:
    drawn = draw(LANGUAGES, 30, seed=1)
    assert Counter(int(row) // 20 for row in drawn) == {0: 15, 1: 15}
    assert len(set(drawn.tolist())) == 16, "no pair comes twice before all of its language have come"
    assert (drawn[1::2] == 20).all(), "languages take turns"
    first, second = draw(LANGUAGES[:1], 40, seed=1).reshape(2, 20).tolist()
    assert first != second and sorted(first) == sorted(second), "pairs come again in another order"


def test_a_draw_depends_on_the_seed_alone() -> None:
    first, again, other = (draw(LANGUAGES, 25, seed=seed).tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_a_batch_holds_sources_first_then_targets_with_their_labels(tmp_path: Path) -> None:
    made = batches(tmp_path, [0, 1, 2])
    batch = made([0, 1])
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (4, 8)
    assert batch["attention_mask"].sum(1).tolist() == [7, 4, 4, 8]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 1).all()
    assert torch.equal(batch["teacher_sources"], torch.tensor([[3.0, 4, 5], [0, 1, 2]]))


def test_a_batch_has_the_tokens_of_its_pairs_wherever_these_are_in_the_files(tmp_path: Path) -> None:
    folder, labels = tmp_path / "tokens", {"teacher_sources": ScalarLabels(np.arange(4, dtype=np.float32))}
    write_tokens(folder, PAIRS, np.arange(3), make_tokenizer(), CONFIG)
    made = PairBatches(folder, labels, pad_token_id=1, rows=np.array([2, 0, 0, 1]))
    batch, texts = made([3, 0]), [PAIRS[1].source, PAIRS[2].source, PAIRS[1].target, PAIRS[2].target]
    input_ids, attention_mask = pad(token_ids(make_tokenizer(), texts, CONFIG), 1)
    assert torch.equal(batch["input_ids"], input_ids) and torch.equal(batch["attention_mask"], attention_mask)
    assert batch["teacher_sources"].tolist() == [3, 0]
    assert len(made) == 4
