"""Translation pairs as the trainer sees them: which ones, in which order, as token ids with their goals.

Everything that grows with the corpus is an array on disk or eight bytes a pair.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import Sampler

from xcompress.corpus.pairs import Pair
from xcompress.distillation.data.masking import Words, choose, cover, distributions
from xcompress.distillation.data.targets import Rows, ScalarTargets, Sentences, VectorTargets
from xcompress.files import release, whole_folder
from xcompress.modeling.student import StudentConfig, pad, token_ids
from xcompress.recipe import WordTask

Ids = NDArray[np.int32]
"""Token ids of one sentence."""
CHUNK = 16_384
BATCHES_SORTED_TOGETHER = 50
BATCHES_PER_RELEASE = 500


def draw(languages: Sequence[Rows], count: int, seed: int) -> Rows:
    """Draw `count` pairs, language by language in turn, so that every language stands equally often.

    A language with too few pairs starts again, in a new order.

    :param languages: the rows that may be drawn, language by language.
    :returns: rows, (count,).
    """
    generator = np.random.default_rng(seed)
    share = -(-count // len(languages))
    columns = [rows[_shuffled(len(rows), share, generator)] for rows in languages]
    return np.stack(columns, axis=1).ravel()[:count]


def _shuffled(size: int, count: int, generator: np.random.Generator) -> Rows:
    rounds = -(-count // size)
    order: Rows = np.concatenate([generator.permutation(size) for _ in range(rounds)])
    return order[:count]


class TokenFile:
    """Sequences of token ids, one after the other in a memory-mapped file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.ids = np.load(folder / f"{name}.npy", mmap_mode="r")
        self.ends = np.load(folder / f"{name}.ends.npy")

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        """Return the ids of one sequence."""
        start = self.ends[row - 1] if row else 0
        return np.asarray(self.ids[start : self.ends[row]])

    def release(self) -> None:
        """Give back the memory of what was read."""
        release(self.ids)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence, (N,)."""
        lengths: NDArray[np.int64] = np.diff(self.ends, prepend=0)
        return lengths

    @staticmethod
    def write(folder: Path, name: str, texts: Sequence[str], tokenizer: Tokenizer, config: StudentConfig) -> None:
        """Tokenise texts into a folder."""
        lengths = []
        raw = folder / f"{name}.ids"
        with raw.open("wb") as stream:
            for start in range(0, len(texts), CHUNK):
                for ids in token_ids(tokenizer, texts[start : start + CHUNK], config):
                    np.array(ids, dtype=np.int32).tofile(stream)
                    lengths.append(len(ids))
        np.save(folder / f"{name}.ends.npy", np.cumsum(lengths, dtype=np.int64))
        np.save(folder / f"{name}.npy", np.memmap(raw, dtype=np.int32, mode="r"))
        raw.unlink()


@dataclass(frozen=True)
class WordGoals:
    """The words that a stage predicts, and for which objectives."""

    words: Words
    tasks: tuple[WordTask, ...]

    def __call__(
        self, sources: Sequence[Ids], targets: Sequence[Ids], rows: Sequence[int]
    ) -> tuple[list[Ids], dict[str, Tensor]]:
        """Return 2N sentences as the model reads them, and label distributions for each task.

        One word of each pair is masked, unless all that is asked for is reconstruction. The distributions are
        `<task>_ids` and `<task>_weights`, both (2N, K).
        """
        chosen = choose(sources, targets, rows, self.words)
        labels: dict[str, Tensor] = {}
        for task in self.tasks:
            ids, weights = distributions(task, sources, targets, chosen, self.words)
            labels |= {f"{task}_ids": torch.from_numpy(ids), f"{task}_weights": torch.from_numpy(weights)}
        if self.tasks != ("reconstruction",):
            sources, targets = cover(sources, targets, chosen, self.words)
        return [*sources, *targets], labels


class PairBatches:
    """Makes batches: from N pair numbers to 2N sentences, sources first, with the goals of each pair."""

    def __init__(
        self,
        folder: Path,
        goals: Mapping[str, VectorTargets | ScalarTargets],
        pad_token_id: int,
        words: WordGoals | None = None,
    ) -> None:
        self.sources = TokenFile(folder, "sources")
        self.targets = TokenFile(folder, "targets")
        self.goals = goals
        self.pad_token_id = pad_token_id
        self.words = words
        self._made = 0

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.sources.ends)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The longer side of each pair, in tokens: what a batch is padded to."""
        return np.maximum(self.sources.lengths, self.targets.lengths)

    def __call__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return input_ids and attention_mask, (2N, L), and each goal as (N, D), or (N,) of a column."""
        sources, targets = ([side[row] for row in rows] for side in (self.sources, self.targets))
        sides, labels = self.words(sources, targets, rows) if self.words else ([*sources, *targets], {})
        input_ids, attention_mask = pad(sides, self.pad_token_id)  # type: ignore[arg-type]
        goals = {name: torch.from_numpy(goal.take(rows)) for name, goal in self.goals.items()}
        self._release_now_and_then()
        return {"input_ids": input_ids, "attention_mask": attention_mask, **goals, **labels}

    def _release_now_and_then(self) -> None:
        self._made += 1
        if self._made % BATCHES_PER_RELEASE == 0:
            self.sources.release()
            self.targets.release()
            for goal in self.goals.values():
                goal.release()


class Feeds:
    """Batches of several kinds of pairs, side by side: a step sees one of each."""

    def __init__(self, feeds: Mapping[str, PairBatches]) -> None:
        self.feeds = feeds
        self._first = next(iter(feeds.values()))

    def __len__(self) -> int:
        """Return the number of pairs, which is the same for all."""
        return len(self._first)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """What pairs of the first kind are padded to; it is they that stand in batches of like length."""
        return self._first.lengths

    def __call__(self, rows: Sequence[int]) -> dict[str, dict[str, Tensor]]:
        """Return the batch of each kind, by its name."""
        return {name: batches(rows) for name, batches in self.feeds.items()}


def write_tokens(folder: Path, pairs: Sequence[Pair], rows: Rows, tokenizer: Tokenizer, config: StudentConfig) -> None:
    """Tokenise both sides of the chosen pairs into a folder, unless they are there."""
    if not folder.exists():
        with whole_folder(folder) as temporary:
            TokenFile.write(temporary, "sources", Sentences(pairs, "source", rows), tokenizer, config)
            TokenFile.write(temporary, "targets", Sentences(pairs, "target", rows), tokenizer, config)


class LikeLengths(Sampler[int]):
    """A random order in which the pairs of a batch have like lengths, so that little is padded.

    The pairs are shuffled; every 50 batches of them are sorted by length, cut into batches, and the batches shuffled.
    """

    def __init__(self, lengths: NDArray[np.int64], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        """Yield pair numbers."""
        generator = np.random.default_rng(self.seed)
        order = generator.permutation(len(self.lengths))
        for start in range(0, len(order), BATCHES_SORTED_TOGETHER * self.batch_size):
            together = order[start : start + BATCHES_SORTED_TOGETHER * self.batch_size]
            by_length = together[np.argsort(self.lengths[together], kind="stable")]
            batches = np.split(by_length, range(self.batch_size, len(by_length), self.batch_size))
            for number in _full_ones_first(batches, generator):
                yield from batches[number].tolist()


def _full_ones_first(batches: Sequence[Rows], generator: np.random.Generator) -> list[int]:
    """Shuffle the batches but leave one that is not full at the end, where it shifts no other."""
    full = len(batches) - (len(batches[-1]) < len(batches[0]))
    return [*generator.permutation(full).tolist(), *range(full, len(batches))]
