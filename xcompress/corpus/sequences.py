"""Sequences whose items are made when they are asked for, so that what they stand for need not be in memory."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


class LazySequence(Sequence[Item]):
    """A sequence whose items are made when they are asked for."""

    @abstractmethod
    def item(self, number: int) -> Item:
        """Return one item; 0 <= number < len."""

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        """Return an item, or a list of items."""
        if isinstance(index, slice):
            return [self.item(number) for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return self.item(index % len(self))


class ConcatSequence(LazySequence[Item]):
    """Sequences one after the other."""

    def __init__(self, parts: Sequence[Sequence[Item]]) -> None:
        self.parts = [part for part in parts if len(part)]
        self.starts = [0, *accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        """Return how many items all parts have."""
        return self.starts[-1]

    def item(self, number: int) -> Item:
        """Return an item of the part that holds it."""
        part = bisect_right(self.starts, number) - 1
        return self.parts[part][number - self.starts[part]]


class SubsetSequence(LazySequence[Item]):
    """Some items of a sequence, by number."""

    def __init__(self, items: Sequence[Item], rows: NDArray[np.int64]) -> None:
        self.items = items
        self.rows = rows

    def __len__(self) -> int:
        """Return how many were picked."""
        return len(self.rows)

    def item(self, number: int) -> Item:
        """Return one of them."""
        return self.items[int(self.rows[number])]
