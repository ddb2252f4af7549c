"""Compressed streams (.gz, .xz) that may come from anyone: bounded in memory, and refused where they swell."""

import gzip
import io
import lzma
from pathlib import Path
from typing import IO, Any

from xcompress.errors import InputError
from xcompress.files import megabytes

ALWAYS = 100_000_000
"""Bytes that any file may unpack to."""
TIMES = 100
"""A file may unpack to `ALWAYS` plus this many times its size. Text reaches 5 to 30; a bomb 1,000 and more."""
_XZ_MEMORY = 300_000_000
"""Bytes for unpacking .xz; `xz -9` needs 65 MB."""
_BLOCK = 1 << 16


def check_growth(packed: int, unpacked: int, where: str) -> None:
    """Check that data does not swell out of proportion.

    :param packed: bytes read of the file.
    :param unpacked: bytes that they became.
    :param where: the file, for error messages.
    :raises InputError: when it does.
    """
    if unpacked > ALWAYS + TIMES * packed:
        raise InputError(
            f"{where}: unpacks to more than {megabytes(ALWAYS)} and {TIMES} times its size; unpack it yourself if you "
            "trust it"
        )


def open_packed(file: IO[bytes], path: Path) -> IO[bytes]:
    """Return a stream of the content of an open file: unpacked if the suffix of its path is .gz or .xz.

    Reading it raises an InputError where it swells out of proportion, and the errors of gzip, zlib and lzma where it is
    damaged.
    """
    if path.suffix not in (".gz", ".xz"):
        return file
    packed = _Packed(file)
    unpacked = gzip.GzipFile(fileobj=packed) if path.suffix == ".gz" else io.BufferedReader(_XzStream(packed), _BLOCK)
    return io.BufferedReader(_Bounded(unpacked, packed, str(path)), _BLOCK)


class _Packed(io.BufferedIOBase):
    """Counts the bytes read of a file; a pipe has no position that would tell."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.count = 0

    def read(self, size: int | None = -1) -> bytes:
        block = self._file.read(-1 if size is None else size)
        self.count += len(block)
        return block


class _Bounded(io.RawIOBase):
    """Compares what comes out with what went in."""

    def __init__(self, stream: io.BufferedIOBase, packed: _Packed, where: str) -> None:
        self._stream, self._packed, self._where = stream, packed, where
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - Python 3.11 has no type for it
        view = memoryview(buffer).cast("B")
        # read1 stops at a fault without losing what came before it
        data = self._stream.read1(len(view))
        view[: len(data)] = data
        self._unpacked += len(data)
        check_growth(self._packed.count, self._unpacked, self._where)
        return len(data)


class _XzStream(io.RawIOBase):
    """Unpacks .xz with a bound on memory, which `lzma.open` lacks: a header may ask for 4 GB."""

    def __init__(self, packed: _Packed) -> None:
        self._packed = packed
        self._decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - Python 3.11 has no type for it
        view = memoryview(buffer).cast("B")
        while True:
            packed = b""
            if self._decompressor.eof:  # another stream may follow, after padding
                packed = self._decompressor.unused_data.lstrip(b"\0")
                while not packed and (block := self._packed.read(_BLOCK)):
                    packed = block.lstrip(b"\0")
                if not packed:
                    return 0
                self._decompressor = lzma.LZMADecompressor(memlimit=_XZ_MEMORY)
            elif self._decompressor.needs_input:
                packed = self._packed.read(_BLOCK)
                if not packed:
                    raise EOFError("it ends before its end marker")
            data = self._decompressor.decompress(packed, len(view))
            if data:
                view[: len(data)] = data
                return len(data)
