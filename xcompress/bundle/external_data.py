"""Which files an ONNX graph wants read beside itself, found without loading it.

A graph is a protobuf message. Of that format only the framing is read here, and of the messages only those that lead
to tensors: a tensor whose values lie in another file says so in entries of a key and a value, where the key `location`
names the file. Values themselves are stepped over, so that a graph of any size costs milliseconds.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from xcompress.errors import InputError

_INSIDE = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Field numbers of onnx.proto by kind of message, and the kind that the field holds."""
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_KEY, _VALUE = 1, 2
_LONGEST_NUMBER = 10

Span = tuple[int, int]
"""First byte, and the one after the last."""


class _BrokenError(Exception):
    """The bytes are no protobuf message."""


def external_locations(graph: Path) -> set[str]:
    """Return the files that the tensors of a graph name, as they are written there.

    Every tensor is looked at: weights, sparse weights, attributes of nodes, and those of subgraphs and functions. A
    graph in the ORT format (.ort) holds all of its weights itself.

    :raises InputError: when the file cannot be read or is no ONNX graph.
    """
    if graph.suffix == ".ort":
        return set()
    try:
        with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return {_location(content, entry) for entry in _entries(content)} - {""}
    except (_BrokenError, ValueError) as error:  # an empty file cannot be mapped: ValueError
        raise InputError(f"{graph}: not an ONNX graph; export the bundle again") from error
    except OSError as error:
        raise InputError(f"{graph}: cannot be read ({error.strerror}); correct its permissions") from error


def _entries(content: mmap.mmap) -> Iterator[Span]:
    """Yield where the entries of all tensors lie."""
    waiting: list[tuple[str, Span]] = [("model", (0, len(content)))]
    while waiting:
        kind, span = waiting.pop()
        if kind == "entry":
            yield span
            continue
        inside = _INSIDE[kind]
        waiting += [(inside[number], part) for number, part in _fields(content, span) if number in inside]


def _location(content: mmap.mmap, entry: Span) -> str:
    """Return the value of an entry if its key is `location`, else nothing."""
    parts = {number: content[start:end] for number, (start, end) in _fields(content, entry)}
    if parts.get(_KEY) != b"location":
        return ""
    return parts.get(_VALUE, b"").decode("utf-8", "replace")


def _fields(content: mmap.mmap, span: Span) -> Iterator[tuple[int, Span]]:
    """Yield number and place of the fields of a message that are bytes: strings, messages, packed numbers."""
    at, end = span
    while at < end:
        tag, at = _number(content, at, end)
        kind = tag & 7
        if kind == _VARINT:
            _, stop = _number(content, at, end)
        elif kind == _BYTES:
            size, at = _number(content, at, end)
            stop = at + size
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            stop = at + (8 if kind == _EIGHT_BYTES else 4)
        else:
            raise _BrokenError
        if stop > end:
            raise _BrokenError
        if kind == _BYTES:
            yield tag >> 3, (at, stop)
        at = stop


def _number(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """Read a number of variable length, seven bits a byte, the lowest first; return it and where it ends."""
    value = 0
    for count in range(_LONGEST_NUMBER):
        if at + count >= end:
            break
        byte = content[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise _BrokenError
