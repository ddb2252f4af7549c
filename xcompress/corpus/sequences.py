"""Sequences whose items are made on access, so that they need not be in memory."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.columns import ColumnFile, Rows, part_bits, partition
from xcompress.files import explain_write_error, scratch_folder

AT_ONCE = 1 << 18
"""Texts that `DistinctTexts.blocks` has in memory at a time, about."""

Item = TypeVar("Item")


class LazySequence(Sequence[Item]):
    """A sequence whose items are made on access."""

    @abstractmethod
    def item(self, number: int) -> Item:
        """Return one item; 0 <= number < len."""

    def places(self, rows: Rows) -> Rows:
        """Return where the items of some rows lie: read in the order of these numbers, no file is read backwards."""
        return rows

    def extent(self) -> int:
        """Return a number above all places."""
        return len(self)

    def at(self, place: int) -> Item:
        """Return the item that lies at a place."""
        return self.item(place)

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
        self.first_places = [0, *accumulate(as_lazy(part).extent() for part in self.parts)]

    def __len__(self) -> int:
        """Return the number of items of all parts."""
        return self.starts[-1]

    def rows_of_parts(self) -> list[Rows]:
        """Return the rows of each part; an empty part has none, and is left out."""
        return [np.arange(start, end) for start, end in pairwise(self.starts)]

    def item(self, number: int) -> Item:
        """Return one item."""
        part = bisect_right(self.starts, number) - 1
        return self.parts[part][number - self.starts[part]]

    def places(self, rows: Rows) -> Rows:
        """Return the places of the items: those of each part follow those of the part before."""
        places = np.empty_like(rows)
        part_of_row = np.searchsorted(self.starts, rows, side="right") - 1
        for number, part in enumerate(self.parts):
            in_part = part_of_row == number
            places[in_part] = self.first_places[number] + as_lazy(part).places(rows[in_part] - self.starts[number])
        return places

    def extent(self) -> int:
        """Return a number above all places."""
        return self.first_places[-1]

    def at(self, place: int) -> Item:
        """Return the item that lies at a place."""
        part = bisect_right(self.first_places, place) - 1
        return as_lazy(self.parts[part]).at(place - self.first_places[part])


class _InMemory(LazySequence[Item]):
    """The items of a list."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def item(self, number: int) -> Item:
        return self.items[number]


def as_lazy(items: Sequence[Item]) -> LazySequence[Item]:
    """Return a sequence that knows where its items lie."""
    return items if isinstance(items, LazySequence) else _InMemory(items)


class Selection(LazySequence[Item]):
    """Some items of another sequence, by row, each as a function maps it."""

    def __init__(self, items: Sequence[Any], rows: Rows, convert: Callable[[Any], Item]) -> None:
        self.items, self.rows, self.convert = as_lazy(items), rows, convert

    def __len__(self) -> int:
        """Return the number of selected items."""
        return len(self.rows)

    def item(self, number: int) -> Item:
        """Return one selected item."""
        return self.convert(self.items[int(self.rows[number])])

    def places(self, rows: Rows) -> Rows:
        """Return the places in the other sequence."""
        return self.items.places(np.asarray(self.rows[rows]))

    def extent(self) -> int:
        """Return a number above all places."""
        return self.items.extent()

    def at(self, place: int) -> Item:
        """Return the item that lies at a place."""
        return self.convert(self.items.at(place))


class DistinctTexts(Selection[str]):
    """Selected texts, with a hash of all of them: whoever needs it need not read them."""

    def __init__(self, texts: Sequence[str], rows: Rows, digest: str) -> None:
        """Select texts by row number.

        :param digest: a hash of the selected texts in their order.
        """
        super().__init__(texts, rows, str)
        self.digest = digest

    def blocks(self, blocks: Sequence[range], scratch: Path) -> Generator[list[str]]:
        """Yield the texts of blocks of rows, a list for each block.

        The texts lie on disk in another order than in the blocks. If they are many, they are read as they lie and
        brought into the order of the blocks by temporary files, in a time in proportion to their number.

        :param blocks: in ascending order, all of the same length except for the last one.
        :param scratch: a temporary folder: 32 bytes a text, and the text.
        :raises InputError: when the temporary files cannot be written.
        """
        count = sum(map(len, blocks))
        if count <= AT_ONCE:
            yield from ([self.item(row) for row in block] for block in blocks)
            return
        with scratch_folder(scratch) as folder, explain_write_error(scratch):
            yield from self._in_order_of_blocks(blocks, count, folder)

    def _in_order_of_blocks(self, blocks: Sequence[range], count: int, folder: Path) -> Iterator[list[str]]:
        length = len(blocks[0])
        blocks_of_file = max(AT_ONCE // length, 1)
        files = [_TextFile(folder / str(number)) for number in range(-(-len(blocks) // blocks_of_file))]
        spread = np.uint64(2**64 // self.extent())

        def spread_places() -> Iterator[NDArray[np.uint64]]:
            for block in blocks:
                yield self.places(np.arange(block.start, block.stop)).astype(np.uint64) * spread

        # Read the texts as they lie, and write each to the file of its block.
        for places, positions in partition(spread_places, part_bits(count), folder / "places"):
            as_they_lie = np.argsort(places)
            for start in range(0, len(places), AT_ONCE):
                some = as_they_lie[start : start + AT_ONCE]
                texts = [self.at(place).encode("utf-8", "surrogatepass") for place in (places[some] // spread).tolist()]
                file_of_text = positions[some] // (length * blocks_of_file)
                order = np.argsort(file_of_text, kind="stable")
                numbers, first = np.unique(file_of_text[order], return_index=True)
                for number, chosen in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
                    files[number].append(positions[some[chosen]], [texts[text] for text in chosen.tolist()])

        # Read the files, each in the order of its blocks.
        for number, file in enumerate(files):
            in_order = iter(file.read_and_remove())
            for block in blocks[number * blocks_of_file : (number + 1) * blocks_of_file]:
                yield list(islice(in_order, len(block)))


class _TextFile:
    """Texts with a number each, appended in any order and read in that of the numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = ColumnFile(path.with_suffix(".entries"), np.dtype([("number", "<i8"), ("bytes", "<i8")]))

    def append(self, numbers: Rows, texts: Sequence[bytes]) -> None:
        entries = np.empty(len(texts), self.entries.dtype)
        entries["number"], entries["bytes"] = numbers, [len(text) for text in texts]
        self.entries.append(entries)
        with self.path.open("ab") as stream:
            stream.write(b"".join(texts))

    def read_and_remove(self) -> list[str]:
        entries, data = np.concatenate(list(self.entries.blocks())), self.path.read_bytes()
        ends = np.cumsum(entries["bytes"])
        order = np.argsort(entries["number"])
        bounds = zip((ends - entries["bytes"])[order].tolist(), ends[order].tolist(), strict=True)
        self.path.unlink()
        self.entries.path.unlink()
        return [data[start:end].decode("utf-8", "surrogatepass") for start, end in bounds]
