"""Random access to pairs on disk: a tab-separated file per language, and the offsets of its lines."""

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.columns import ColumnFile, growing_npy, write_npy
from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import LazySequence
from xcompress.errors import InputError, first_line
from xcompress.files import drop_pages, whole_file

_ROWS_PER_RELEASE = 2000
_LINES = 1024


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines, and beside them two arrays that are read row by row.

    `<name>.offsets.npy`: int64 (N + 1), the start of each line and the size of the file. `<name>.hashes.npy`: uint64
    (2, N), see `text_hash`, of the sources and the targets.

    :param lines: results of `as_line`, with line breaks; they are not in memory together.
    """
    with (
        whole_file(path) as temporary,
        whole_file(offsets_path(path)) as temporary_offsets,
        whole_file(hashes_path(path)) as temporary_hashes,
    ):
        hashes = [ColumnFile(temporary_hashes.with_name(side), np.dtype("<u8")) for side in ("source", "target")]
        with temporary.open("wb") as stream, growing_npy(temporary_offsets, np.dtype(np.int64)) as append_offsets:
            ends, remaining = np.zeros(1, np.int64), iter(lines)
            append_offsets(ends)
            while block := list(islice(remaining, _LINES)):
                stream.writelines(block)
                ends = ends[-1] + np.cumsum([len(line) for line in block])
                append_offsets(ends)
                sides = zip(*(line.rstrip(b"\n").split(b"\t") for line in block), strict=True)
                for column, texts in zip(hashes, sides, strict=True):
                    column.append(np.frombuffer(b"".join(map(text_hash, texts)), "<u8"))
        blocks = chain.from_iterable(column.blocks() for column in hashes)
        write_npy(temporary_hashes, np.dtype(np.uint64), (2, len(hashes[0])), blocks)


def offsets_path(path: Path) -> Path:
    """Return the path of the offsets of a file."""
    return path.with_name(f"{path.name}.offsets.npy")


def hashes_path(path: Path) -> Path:
    """Return the path of the hashes of the texts in a file."""
    return path.with_name(f"{path.name}.hashes.npy")


def text_hash(text: bytes) -> bytes:
    """Return the hash by which equal texts are found, 8 bytes: a little-endian uint64."""
    return hashlib.blake2b(text, digest_size=8).digest()


class PairFile(LazySequence[Pair]):
    """The pairs of a file that `write_lines` wrote, read on access.

    The file is memory-mapped, and pages are released every so often: neither the length of the file nor the number of
    reads shows in the memory of the process. It can be pickled and shared with workers.
    """

    def __init__(self, path: Path, language: str) -> None:
        self.path, self.language = path, language
        self._reads = 0

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def item(self, number: int) -> Pair:
        """Read one pair."""
        self._reads += 1
        if self._reads % _ROWS_PER_RELEASE == 0:
            drop_pages(self._map)
        return self._parse(self._map[self._offsets[number] : self._offsets[number + 1]], number)

    def __iter__(self) -> Iterator[Pair]:
        with self.path.open("rb") as stream:
            for row, line in enumerate(stream):
                yield self._parse(line, row)

    def __reduce__(self) -> tuple[type["PairFile"], tuple[Path, str]]:
        return PairFile, (self.path, self.language)

    def _parse(self, line: bytes, row: int) -> Pair:
        try:
            source, target = line.decode().rstrip("\n").split("\t")
        except ValueError as error:
            raise InputError(
                f"{self.path}:{row + 1}: not english<TAB>translation; delete {self.path.parent} and run again"
            ) from error
        return Pair(source, target, self.language, self.path.name)

    def hashes(self, side: Literal["source", "target"], rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the hashes (n,) of one side of n pairs, without reading them."""
        hashes = self._indexed(
            hashes_path(self.path), lambda array: array.dtype == np.uint64 and array.shape == (2, len(self))
        )
        found: NDArray[np.uint64] = np.array(hashes[("source", "target").index(side)][rows])
        return found

    @cached_property
    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        def is_ours(array: NDArray[Any]) -> bool:
            return array.dtype == np.int64 and array.ndim == 1 and array[-1:].tolist() == [self.path.stat().st_size]

        return self._indexed(offsets_path(self.path), is_ours).view(np.ndarray)

    def _indexed(self, path: Path, is_ours: Callable[[NDArray[Any]], bool]) -> NDArray[Any]:
        """Map an array of the index.

        :raises InputError: when it is missing, damaged, or of another file.
        """
        try:
            array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
            if is_ours(array):
                return array
            why = f"{path.name} is of another file"
        except (OSError, ValueError, EOFError) as error:
            why = f"{path.name}: {getattr(error, 'strerror', None) or first_line(error)}"
        raise InputError(f"{self.path}: cannot be read ({why}); delete {self.path.parent} and run again")
