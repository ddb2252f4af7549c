"""Pairs on disk: a tab-separated file per language, and where each of its lines starts."""

import mmap
from array import array
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.pairs import Pair
from xcompress.corpus.sequences import LazySequence
from xcompress.errors import InputError
from xcompress.files import drop_pages, whole_file

_ROWS_PER_RELEASE = 2000
_CHUNK = 1 << 24


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines, and beside them `<name>.offsets.npy`: int64 (N + 1), the start of each line and the file's size.

    :param lines: each as `as_line` gives it, with its line break.
    """
    offsets = array("q", [0])
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        for line in lines:
            stream.write(line)
            offsets.append(offsets[-1] + len(line))
    _save_offsets(path, np.frombuffer(offsets, np.int64))


def offsets_path(path: Path) -> Path:
    """Return the place of a file's offsets."""
    return path.with_name(f"{path.name}.offsets.npy")


class PairFile(LazySequence[Pair]):
    """Random access to the pairs of a file that `write_lines` wrote; nothing is read before it is asked for.

    The file is mapped into memory, and what was read is given back to the system every so often: neither the length
    of the file nor the number of reads shows in the memory of the process. It can be pickled and shared with workers.
    """

    def __init__(self, path: Path, language: str) -> None:
        self.path, self.language = path, language
        self._reads = 0

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def item(self, number: int) -> Pair:
        """Read one pair."""
        return self._pair(self._line(number), number)

    def __iter__(self) -> Iterator[Pair]:
        with self.path.open("rb") as stream:
            for row, line in enumerate(stream):
                yield self._pair(line, row)

    def __reduce__(self) -> tuple[type["PairFile"], tuple[Path, str]]:
        return PairFile, (self.path, self.language)

    def _line(self, row: int) -> bytes:
        self._reads += 1
        if self._reads % _ROWS_PER_RELEASE == 0:
            drop_pages(self._map)
        return self._map[self._offsets[row] : self._offsets[row + 1]]

    def _pair(self, line: bytes, row: int) -> Pair:
        try:
            source, target = line.decode().rstrip("\n").split("\t")
        except ValueError as error:
            raise InputError(
                f"{self.path}:{row + 1}: not english<TAB>translation; delete {self.path.parent} and run again"
            ) from error
        return Pair(source, target, self.language, self.path.name)

    @cached_property
    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        try:
            saved = _saved_offsets(self.path)
            return _rebuilt_offsets(self.path) if saved is None else saved
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror}); run again without it") from error


def _save_offsets(path: Path, offsets: NDArray[np.int64]) -> None:
    with whole_file(offsets_path(path)) as temporary, temporary.open("wb") as stream:
        np.save(stream, offsets)


def _saved_offsets(path: Path) -> NDArray[np.int64] | None:
    """Map a file's offsets, unless they are missing, unreadable or those of another file."""
    size = path.stat().st_size
    try:
        offsets = _mapped_offsets(path)
    except (OSError, ValueError, EOFError):
        return None
    return offsets if offsets.dtype == np.int64 and offsets.ndim == 1 and offsets[-1:] == [size] else None


def _mapped_offsets(path: Path) -> NDArray[np.int64]:
    offsets: NDArray[np.int64] = np.load(offsets_path(path), mmap_mode="r")
    return offsets.view(np.ndarray)


def _rebuilt_offsets(path: Path) -> NDArray[np.int64]:
    starts, read = [np.zeros(1, np.int64)], 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            starts.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (read + 1))
            read += len(chunk)
    offsets = np.concatenate(starts)
    _save_offsets(path, offsets if offsets[-1] == read else np.append(offsets, read))
    return _mapped_offsets(path)
