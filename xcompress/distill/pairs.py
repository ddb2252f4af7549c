"""Translation pairs as the trainer sees them: token ids, and the goals that go with each pair."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import Dataset

from xcompress.corpus.pairs import Pair
from xcompress.student import StudentConfig, pad, token_ids

Goals = Mapping[str, NDArray[np.float32]]
"""Arrays with a row per pair: teacher_sources, assistant_sources, assistant_targets; those that the objectives need."""


def draw(pairs: Sequence[Pair], count: int, seed: int) -> list[Pair]:
    """Draw `count` pairs, language by language in turn, so that every language stands equally often.

    A language with too few pairs starts again, in a new order.
    """
    generator = np.random.default_rng(seed)
    by_language: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_language.setdefault(pair.language, []).append(pair)
    share = -(-count // len(by_language))
    columns = [_shuffled(own, share, generator) for own in by_language.values()]
    return [pair for row in zip(*columns, strict=True) for pair in row][:count]


def _shuffled(pairs: Sequence[Pair], count: int, generator: np.random.Generator) -> list[Pair]:
    rounds = -(-count // len(pairs))
    order = np.concatenate([generator.permutation(len(pairs)) for _ in range(rounds)])
    return [pairs[row] for row in order[:count]]


class PairDataset(Dataset[dict[str, object]]):
    """Token ids of both sides of each pair, with the pair's goals."""

    def __init__(self, pairs: Sequence[Pair], tokenizer: Tokenizer, config: StudentConfig, goals: Goals) -> None:
        self.sources = token_ids(tokenizer, [pair.source for pair in pairs], config)
        self.targets = token_ids(tokenizer, [pair.target for pair in pairs], config)
        self.goals = goals

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, row: int) -> dict[str, object]:
        goals = {name: array[row] for name, array in self.goals.items()}
        return {"source": self.sources[row], "target": self.targets[row], "goals": goals}

    @property
    def lengths(self) -> list[int]:
        """The longer side of each pair, in tokens: what a batch is padded to."""
        return [max(len(source), len(target)) for source, target in zip(self.sources, self.targets, strict=True)]


@dataclass(frozen=True)
class Collator:
    """Stacks N pairs into one batch of 2N sentences, sources first."""

    pad_token_id: int

    def __call__(self, items: Sequence[Mapping[str, object]]) -> dict[str, Tensor]:
        """Return input_ids and attention_mask, (2N, L), and each goal as (N, D)."""
        sides = [item[side] for side in ("source", "target") for item in items]
        input_ids, attention_mask = pad(sides, self.pad_token_id)  # type: ignore[arg-type]
        stacked = {name: np.stack([item["goals"][name] for item in items]) for name in items[0]["goals"]}  # type: ignore[index,attr-defined]
        goals = {name: torch.from_numpy(array) for name, array in stacked.items()}
        return {"input_ids": input_ids, "attention_mask": attention_mask, **goals}
