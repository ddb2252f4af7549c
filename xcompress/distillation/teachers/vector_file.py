"""A table of vectors in one file, which several workers fill block by block, with a record of the finished blocks.

One file, because a memory map keeps a descriptor: a file for each block would be over the usual limit of 1,024
descriptors at 16 million texts.
"""

import hashlib
import os
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from xcompress.errors import InputError, first_line
from xcompress.files import explain_write_error, read_json, write_json

INFO = "info.json"
"""Describes the vectors of a folder, and has the hashes of the finished blocks."""
TABLE = "vectors.npy"
HEADER = 4096
"""Bytes before the first vector. Blocks of 16,384 vectors then share no page: hosts may write their own on one disk."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""The table is written in place. A link there, in a run folder of others, could lead to any file of the user."""
DIGITS = 64
"""Hexadecimal digits of a SHA-256."""
_Hashes = dict[int, str]
"""SHA-256 of finished blocks, by number."""


class VectorFile:
    """The file vectors.npy, float16 (N, D), in a folder.

    A finished block is on the disk before a line with its number and hash is added to finished.<worker>.txt; `settle`
    moves these lines to info.json. So a block counts when all of it is there, whenever the process is killed.
    """

    def __init__(self, folder: Path, texts: int, chunk: int) -> None:
        """Describe a table, which may not exist yet.

        :param texts: N, the number of its vectors.
        :param chunk: vectors in a block; the last block may have fewer.
        """
        self.folder, self.texts, self.chunk = folder, texts, chunk
        self.path = folder / TABLE

    @property
    def blocks(self) -> range:
        """The numbers of all blocks."""
        return range(-(-self.texts // self.chunk))

    def rows(self, number: int) -> range:
        """Return the rows of a block."""
        return range(self.texts)[number * self.chunk : (number + 1) * self.chunk]

    def missing(self) -> list[int]:
        """Return the numbers of the blocks that are not finished, as `settle` has recorded."""
        finished = self._read_info()[0]
        return [number for number in self.blocks if number not in finished]

    def write(self, number: int, vectors: NDArray[np.float16], worker: int) -> None:
        """Write a block, and record that it is finished.

        :raises InputError: when it cannot be written.
        """
        data = np.ascontiguousarray(vectors).tobytes()
        header = _header(self.texts, vectors.shape[1])
        with explain_write_error(self.path, every=True):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
            with os.fdopen(descriptor, "r+b", buffering=0) as stream:
                for start, content in ((0, header), (self._start(number, vectors.shape[1]), data)):
                    stream.seek(start)
                    view = memoryview(content)
                    while view:
                        view = view[stream.write(view) :]
                os.fsync(descriptor)
            with (self.folder / f"finished.{worker}.txt").open("a", encoding="ascii") as lines:
                lines.write(f"{number} {hashlib.sha256(data).hexdigest()}\n")

    def settle(self, model: str, fingerprint: str, *, check: bool = False) -> dict[str, str]:
        """Record the blocks that all workers have finished in info.json. Only one process may call it at a time.

        :param check: compare the blocks with their hashes, unless the file is as it was recorded, and forget those that
            differ.
        :returns: what is wrong, by block, or for the whole file.
        """
        (finished, recorded), by_workers = self._read_info(), sorted(self.folder.glob("finished.*.txt"))
        finished |= _read_lines(by_workers)
        damage: dict[str, str] = {}
        if check and finished and (by_workers or recorded != self._status()):
            damage = self._find_damage(finished)
            finished = {number: digest for number, digest in finished.items() if _name(number) not in damage}
        if TABLE in damage:
            finished = {}
            self.path.unlink(missing_ok=True)
        if damage or by_workers or recorded != self._status() or not (self.folder / INFO).exists():
            description = {
                "model": model,
                "fingerprint": fingerprint,
                "texts": self.texts,
                "texts_per_block": self.chunk,
                "file": self._status(),
                "blocks": {str(number): finished[number] for number in sorted(finished)},
            }
            write_json(self.folder / INFO, description)
        for file in by_workers:
            file.unlink()
        return damage

    def open(self) -> NDArray[np.float16]:
        """Map the table.

        :raises InputError: when a block is missing, or the file cannot be read.
        """
        if not self.texts:
            return np.empty((0, 0), np.float16)
        if missing := self.missing():
            raise InputError(
                f"{self.path}: {_name(missing[0])} is missing after all workers finished; "
                "use one run folder for all workers"
            )
        try:
            table: NDArray[np.float16] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError(f"{self.path}: damaged ({first_line(error)}); delete it and run again") from error
        return table

    def _start(self, number: int, width: int) -> int:
        """Return the position of the first byte of a block."""
        return HEADER + number * self.chunk * width * 2

    def _status(self) -> list[int] | None:
        """Return the size in bytes and the time of the last change of the file; None where there is none."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        return [status.st_size, status.st_mtime_ns]

    def _read_info(self) -> tuple[_Hashes, list[int] | None]:
        """Return the recorded hashes, and size and time of the file when they were recorded."""
        try:
            info = read_json(self.folder / INFO)
            return {int(number): str(digest) for number, digest in info["blocks"].items()}, info["file"]
        except (InputError, KeyError, TypeError, AttributeError, ValueError):
            return {}, None

    def _find_damage(self, finished: _Hashes) -> dict[str, str]:
        """Return what is wrong with finished blocks, or with the whole file."""
        damage = {}
        try:
            with self.path.open("rb") as stream:
                width = _read_width(stream, self.texts)
                for number, digest in finished.items():
                    length = self._start(number, width) + len(self.rows(number)) * width * 2
                    stream.seek(self._start(number, width))
                    data = stream.read(length - stream.tell())
                    if stream.tell() < length:
                        damage[_name(number)] = "is cut off"
                    elif hashlib.sha256(data).hexdigest() != digest:
                        damage[_name(number)] = "has other content than written"
        except FileNotFoundError:
            return {TABLE: "is missing"}
        except (OSError, ValueError, EOFError) as error:
            return {TABLE: f"is damaged ({first_line(error)})"}
        return damage


def _name(number: int) -> str:
    """Return the name of a block in messages."""
    return f"block {number}"


def _header(texts: int, width: int) -> bytes:
    """Return the first `HEADER` bytes of an .npy of float16 (texts, width)."""
    stream = BytesIO()
    npy.write_array_header_1_0(
        stream, {"descr": npy.dtype_to_descr(np.dtype(np.float16)), "fortran_order": False, "shape": (texts, width)}
    )
    prefix = len(npy.magic(1, 0)) + 2  # and the length of the header, which ends with a line break after spaces
    text = stream.getvalue()[prefix:].rstrip().ljust(HEADER - prefix - 1) + b"\n"
    return npy.magic(1, 0) + len(text).to_bytes(2, "little") + text


def _read_width(stream: IO[bytes], texts: int) -> int:
    """Read D from the header.

    :raises ValueError: when it is not the header of a table of that many texts.
    """
    start = stream.read(HEADER)
    shape, _, _ = npy.read_array_header_1_0(BytesIO(start[len(npy.magic(1, 0)) :]))
    width = shape[-1]
    if start != _header(texts, width):
        raise ValueError(f"its header does not name {texts} vectors")
    return int(width)


def _read_lines(files: Iterable[Path]) -> _Hashes:
    """Read the numbers and hashes of blocks; the last line of a killed worker may be half written."""
    lines = [line.split() for file in files for line in file.read_text(encoding="ascii", errors="replace").split("\n")]
    return {int(line[0]): line[1] for line in lines if len(line) == 2 and len(line[1]) == DIGITS}
