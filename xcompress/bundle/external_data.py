"""Find the external data files of an ONNX graph, and refuse one with functions of its own, without loading it.

A graph is a protobuf message. A tensor whose values lie in another file has entries of a key and a value; the key
`location` holds the file's name. This reader decodes the framing of protobuf and follows only the messages that lead to
tensors. It skips the values, so that a graph of any size takes milliseconds.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path

from xcompress.errors import InputError

_CHILDREN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
"""Per message type of onnx.proto: the field numbers to follow, and the message type of each field."""
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protobuf."""
_KEY, _VALUE = 1, 2
"""Fields of an entry of `external_data`."""
_MAX_VARINT_BYTES = 10
_TAG_BITS = 32
_MOST_FIELDS = 1_000_000
"""Fields of all messages; the released models have 6,500. In a file of nothing else, each would take 200 bytes."""

Span = tuple[int, int]
"""Offsets of the first byte, and of the byte after the last."""


class _MalformedError(Exception):
    """The bytes are not a protobuf message."""


class _TooManyFieldsError(Exception):
    """There are more than `_MOST_FIELDS`."""


def external_locations(graph: Path) -> set[str]:
    """Return the locations of a graph's external data, as written in the graph.

    All tensors count: weights, sparse weights, attributes of nodes, and those of subgraphs. A graph in another format
    (.ort, .pte, .tflite) contains all of its weights.

    :raises InputError: when the file cannot be read, is not an ONNX graph, has too many fields, or defines functions.
        No export writes any: where each of thirty calls the next one twice, onnxruntime does not open a file of 2 kB
        within a minute.
    """
    if graph.suffix in (".ort", ".pte", ".tflite"):
        return set()
    locations = set()
    left = iter(range(_MOST_FIELDS))
    try:
        with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            pending: list[tuple[str, Span]] = [("model", (0, len(content)))]
            while pending:
                message, span = pending.pop()
                if message == "function":
                    raise InputError(f"{graph}: defines functions, which no export writes; do not use it")
                if message != "entry":
                    children = _CHILDREN[message]
                    pending += [
                        (children[field], inner) for field, inner in _fields(content, span, left) if field in children
                    ]
                    continue
                entry = {field: content[start:end] for field, (start, end) in _fields(content, span, left)}
                if entry.get(_KEY) == b"location":
                    locations.add(entry.get(_VALUE, b"").decode("utf-8", "replace"))
    except (_MalformedError, ValueError) as error:  # mapping an empty file is a ValueError
        raise InputError(f"{graph}: not an ONNX graph; export the bundle again") from error
    except _TooManyFieldsError as error:
        raise InputError(
            f"{graph}: has over {_MOST_FIELDS:,} fields, more than any export writes; do not use it"
        ) from error
    except OSError as error:
        raise InputError(f"{graph}: cannot be read ({error.strerror}); correct its permissions") from error
    return locations - {""}


def _fields(content: mmap.mmap, span: Span, left: Iterator[int]) -> Iterator[tuple[int, Span]]:
    """Yield number and span of the length-delimited fields of a message: strings, messages, packed numbers.

    :param left: has an item for each field that may still be read, in whatever message.
    """
    at, end = span
    while at < end:
        if next(left, None) is None:
            raise _TooManyFieldsError
        tag, at = _read_varint(content, at, end)
        # Protobuf drops the bits above: a larger tag would hide a field from this reader alone.
        if not 8 <= tag < 1 << _TAG_BITS:
            raise _MalformedError
        wire_type = tag & 7
        if wire_type == _VARINT:
            _, stop = _read_varint(content, at, end)
        elif wire_type == _BYTES:
            size, at = _read_varint(content, at, end)
            stop = at + size
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            stop = at + (8 if wire_type == _EIGHT_BYTES else 4)
        else:
            raise _MalformedError
        if stop > end:
            raise _MalformedError
        if wire_type == _BYTES:
            yield tag >> 3, (at, stop)
        at = stop


def _read_varint(content: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    """Read a number of variable length: seven bits a byte, lowest first; return it and the offset behind it."""
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if at + count >= end:
            break
        byte = content[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, at + count + 1
    raise _MalformedError
