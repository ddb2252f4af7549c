"""Sequences whose items are made on access, so that they need not be in memory."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar, overload

import numpy as np
from numpy.typing import NDArray

Item = TypeVar("Item")


class LazySequence(Sequence[Item]):
    """A sequence whose items are made on access."""

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
    """The items of several sequences, one after the other."""

    def __init__(self, parts: Sequence[Sequence[Item]]) -> None:
        self.parts = [part for part in parts if len(part)]
        self.starts = [0, *accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        """Return the number of items of all parts."""
        return self.starts[-1]

    def item(self, number: int) -> Item:
        """Return one item."""
        part = bisect_right(self.starts, number) - 1
        return self.parts[part][number - self.starts[part]]


class SubsetSequence(LazySequence[Item]):
    """Selected items of a sequence, by row number."""

    def __init__(self, items: Sequence[Item], rows: NDArray[np.int64]) -> None:
        self.items = items
        self.rows = rows

    def __len__(self) -> int:
        """Return the number of selected items."""
        return len(self.rows)

    def item(self, number: int) -> Item:
        """Return one selected item."""
        return self.items[int(self.rows[number])]


class DistinctTexts(SubsetSequence[str]):
    """Selected texts, with a hash of all of them: whoever needs it need not read them."""

    def __init__(self, texts: Sequence[str], rows: NDArray[np.int64], digest: str) -> None:
        """Select texts by row number.

        :param digest: a hash of the selected texts in their order.
        """
        super().__init__(texts, rows)
        self.digest = digest
