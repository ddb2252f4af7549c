"""Random access to pairs on disk: a tab-separated file per language, and the offsets of its lines."""

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
    """Write lines, and `<name>.offsets.npy`: int64 (N + 1), the start of each line and the size of the file.

    :param lines: results of `as_line`, with line breaks.
    """
    offsets = array("q", [0])
    with whole_file(path) as temporary, temporary.open("wb") as stream:
        for line in lines:
            stream.write(line)
            offsets.append(offsets[-1] + len(line))
    _save_offsets(path, np.frombuffer(offsets, np.int64))


def offsets_path(path: Path) -> Path:
    """Return the path of the offsets of a file."""
    return path.with_name(f"{path.name}.offsets.npy")


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

    @cached_property
    def _map(self) -> mmap.mmap:
        with self.path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        try:
            saved = _read_offsets(self.path)
            return _rebuild_offsets(self.path) if saved is None else saved
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read ({error.strerror}); run again without it") from error


def _save_offsets(path: Path, offsets: NDArray[np.int64]) -> None:
    with whole_file(offsets_path(path)) as temporary, temporary.open("wb") as stream:
        np.save(stream, offsets)


def _read_offsets(path: Path) -> NDArray[np.int64] | None:
    """Map the offsets of a file; None if they are missing, unreadable or of another file."""
    size = path.stat().st_size
    try:
        offsets = _map_offsets(path)
    except (OSError, ValueError, EOFError):
        return None
    return offsets if offsets.dtype == np.int64 and offsets.ndim == 1 and offsets[-1:] == [size] else None


def _map_offsets(path: Path) -> NDArray[np.int64]:
    offsets: NDArray[np.int64] = np.load(offsets_path(path), mmap_mode="r")
    return offsets.view(np.ndarray)


def _rebuild_offsets(path: Path) -> NDArray[np.int64]:
    starts, read = [np.zeros(1, np.int64)], 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            starts.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + (read + 1))
            read += len(chunk)
    offsets = np.concatenate(starts)
    _save_offsets(path, offsets if offsets[-1] == read else np.append(offsets, read))
    return _map_offsets(path)
