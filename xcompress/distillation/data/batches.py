"""Batches of sentence pairs for the trainer: draw pairs, and collate their tokens with their labels.

Everything that grows with the corpus is an array on disk, or eight bytes a pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from xcompress.corpus.columns import Rows
from xcompress.distillation.data.labels import Labels, VectorLabels
from xcompress.distillation.data.masking import MaskingConfig, choose_words, label_distributions, mask_words
from xcompress.distillation.data.tokens import Ids, TokenFile
from xcompress.errors import InputError
from xcompress.modeling.packing import token_positions
from xcompress.modeling.student import pad_joined
from xcompress.recipe import ON_WORDS, Stage, WordTask
from xcompress.tokenizer_file import MASK_TOKENS

BATCHES_PER_RELEASE = 500

Batch = Mapping[str, Tensor]
"""What a training step reads of one kind of pairs, by name."""


def draw(languages: Sequence[Rows], count: int, seed: int) -> Rows:
    """Draw `count` pairs from the languages in turn, so that all languages are drawn equally often.

    A language with too few pairs is drawn again, in a new order.

    :param languages: the rows of each language.
    :returns: rows, (count,).
    """
    generator = np.random.default_rng(seed)
    per_language = -(-count // len(languages))
    columns = []
    for rows in languages:
        rounds = -(-per_language // len(rows))
        order = np.concatenate([generator.permutation(len(rows)) for _ in range(rounds)])
        columns.append(rows[order[:per_language]])
    return np.stack(columns, axis=1).ravel()[:count]


@dataclass(frozen=True)
class WordLabels:
    """The word prediction tasks of a stage: mask words, and compute the label distributions."""

    masking: MaskingConfig
    tasks: tuple[WordTask, ...]

    def __call__(
        self, sources: Sequence[Ids], targets: Sequence[Ids], rows: Sequence[int]
    ) -> tuple[list[Ids], dict[str, Tensor]]:
        """Return the 2N sentences that the model reads, and the label distributions of each task.

        One word of each pair is masked, unless reconstruction is the only task. The distributions are `<task>_ids` and
        `<task>_weights`, both (2N, K).
        """
        chosen = choose_words(sources, targets, rows, self.masking)
        labels: dict[str, Tensor] = {}
        for task in self.tasks:
            ids, weights = label_distributions(task, sources, targets, chosen, self.masking)
            labels |= {f"{task}_ids": torch.from_numpy(ids), f"{task}_weights": torch.from_numpy(weights)}
        if self.tasks != ("reconstruction",):
            sources, targets = mask_words(sources, targets, chosen, self.masking)
        return [*sources, *targets], labels


def word_labels(name: str, stage: Stage, tokenizer: Tokenizer, seed: int) -> WordLabels | None:
    """Return the masking of a stage that predicts words; None for other stages.

    :raises InputError: when the vocabulary has no mask token.
    """
    tasks = tuple(task for task in ON_WORDS if task in stage.objectives)
    if not tasks:
        return None
    special = {token.content: token_id for token_id, token in tokenizer.get_added_tokens_decoder().items()}
    mask = next((token_id for token, token_id in special.items() if token in MASK_TOKENS), None)
    if mask is None:
        raise InputError(
            f"stages.{name}.objectives: {tasks[0]} masks words, but the vocabulary has none of "
            f"{', '.join(MASK_TOKENS)}; choose an assistant whose tokenizer has one, or leave the objective out"
        )
    return WordLabels(MaskingConfig(mask, frozenset(special.values()), seed), tasks)


class PairBatches:
    """Collate N pairs to a batch of 2N sentences, sources first, with the labels of each pair."""

    def __init__(
        self,
        folder: Path,
        labels: Mapping[str, Labels],
        pad_token_id: int,
        rows: Rows,
        word_labels: WordLabels | None = None,
        group_size: int = 1,
    ) -> None:
        """Open the tokens that `write_tokens` wrote.

        :param labels: what pairs learn, by name.
        :param rows: the row of each pair in the files, (N,).
        :param word_labels: the word prediction tasks, if any.
        :param group_size: number of consecutive pairs that belong together in a step.
        """
        self.sources = TokenFile(folder, "sources")
        self.targets = TokenFile(folder, "targets")
        self.rows = rows
        self.labels = labels
        self.pad_token_id = pad_token_id
        self.word_labels = word_labels
        self.group_size = group_size
        self._batches = 0

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    def __call__(self, pairs: Sequence[int]) -> dict[str, Tensor]:
        """Return input_ids and attention_mask, (2N, L), and each label, (N, D) or (N,).

        Beside them are the results of `token_positions` for all sentences, for the sources and for the targets.
        """
        rows, words = self.rows[list(pairs)], dict[str, Tensor]()
        if self.word_labels:
            sources, targets = ([side[row] for row in rows] for side in (self.sources, self.targets))
            sentences, words = self.word_labels(sources, targets, pairs)
            ids, lengths = np.concatenate(sentences), np.array([len(sentence) for sentence in sentences])
        else:
            taken = [side.take(rows) for side in (self.sources, self.targets)]
            ids, lengths = (np.concatenate(parts) for parts in zip(*taken, strict=True))
        input_ids, attention_mask = pad_joined(ids, lengths, self.pad_token_id)
        of_sources, of_targets = map(token_positions, attention_mask.chunk(2))
        tokens = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_positions": token_positions(attention_mask),
            "source_positions": of_sources,
            "target_positions": of_targets,
        }
        labels = {name: torch.from_numpy(label.take(pairs)) for name, label in self.labels.items()}
        self._batches += 1
        if self._batches % BATCHES_PER_RELEASE == 0:
            self.sources.release()
            self.targets.release()
            for label in self.labels.values():
                if isinstance(label, VectorLabels):
                    label.release()
        return {**tokens, **labels, **words}


class BatchesByKind:
    """Batches of several kinds of pairs side by side: a step sees one of each.

    A step reads some pairs of the first kind. Each of them brings its share of every other kind: with twice as many
    pairs of a kind, pair 3 brings 6 and 7. Of a kind in groups, a step reads as many pairs, but whole groups.
    """

    def __init__(self, by_kind: Mapping[str, PairBatches]) -> None:
        self.by_kind = by_kind
        self._first = next(iter(by_kind.values()))
        self._counts = {kind: len(batches) // len(self._first) for kind, batches in by_kind.items()}

    def __len__(self) -> int:
        """Return the number of pairs of the first kind."""
        return len(self._first)

    def __call__(self, rows: Sequence[int]) -> dict[str, dict[str, Tensor]]:
        """Return the batch of each kind for some pairs of the first kind, by its name."""
        pairs = {}
        for kind, count in self._counts.items():
            size = self.by_kind[kind].group_size
            if size == 1:
                pairs[kind] = [row * count + number for row in rows for number in range(count)]
            else:
                # One group for several pairs: that of the first. Their order is random, so that some groups are read
                # several times, and others never.
                groups = [row * count // size for row in rows[:: size // count]]
                pairs[kind] = [number * size + place for number in groups for place in range(size)]
        return {kind: batches(pairs[kind]) for kind, batches in self.by_kind.items()}
