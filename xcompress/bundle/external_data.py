"""Find the external data files of an ONNX graph, and refuse one with functions or endless loops, without loading it.

A graph is a protobuf message. A tensor whose values lie in another file has entries of a key and a value; the key
`location` holds the file's name. This reader decodes the framing of protobuf and follows only the messages that lead to
tensors and loops. It skips the values, so that a graph of any size takes milliseconds.
"""

import mmap
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path

from xcompress.errors import InputError

_CHILDREN = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "body", 2: "body"},
    "graph": {1: "node", 5: "initializer", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "body", 10: "tensor", 11: "body", 22: "sparse", 23: "sparse"},
    "body": {1: "inner node", 5: "tensor", 15: "sparse"},
    "inner node": {5: "inner attribute"},
    "inner attribute": {5: "tensor", 6: "nested", 10: "tensor", 11: "nested", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
    "initializer": {13: "entry"},
}
"""Per message type of onnx.proto: the field numbers to follow, and the message type of each field.

An initializer is a tensor of the outermost graph. A body is a graph inside a node, which has names of its own.
"""
_REFUSED = {"function": "defines functions", "nested": "has a graph in a graph in a graph"}
"""Message types that no export writes."""
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types of protobuf."""
_KEY, _VALUE = 1, 2
"""Fields of an entry of `external_data`."""
_INPUT, _OUTPUT, _OPERATOR = 1, 2, 4
"""Fields of a node."""
_NAME, _RAW = 8, 9
"""Fields of a tensor."""
_READ = {"entry": (_KEY, _VALUE), "node": (_INPUT, _OUTPUT, _OPERATOR), "initializer": (_NAME, _RAW)}
"""Per message type, the fields whose content is read: of a node the first input, of an initializer a single number."""
_NUMBER_BYTES = 8
_MOST_TURNS = 1000
"""Turns of a loop: the most recurrences that a student may have."""
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

    :raises InputError: when the file cannot be read, is not an ONNX graph, has too many fields, or has what no export
        writes: functions, as where each of thirty calls the next one twice, onnxruntime does not open a file of 2 kB
        within a minute; and loops whose number of turns is large or computed, as a run of the graph may never end.
    """
    if graph.suffix in (".ort", ".pte", ".tflite"):
        return set()
    locations: set[str] = set()
    loops: set[bytes] = set()
    numbers: dict[bytes, float] = {}
    left = iter(range(_MOST_FIELDS))
    try:
        with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            pending: list[tuple[str, Span]] = [("model", (0, len(content)))]
            while pending:
                message, span = pending.pop()
                if message in _REFUSED:
                    raise InputError(f"{graph}: {_REFUSED[message]}, which no export writes; do not use it")
                values, inner = _read_message(content, message, span, left)
                pending += inner
                if values.get(_KEY) == b"location":
                    locations.add(values.get(_VALUE, b"").decode("utf-8", "replace"))
                if message == "node" and values.get(_OPERATOR) == b"Loop":
                    loops.add(values.get(_INPUT, b""))
                elif message in ("node", "initializer"):
                    _note_number(values, numbers, is_inside=not inner)
    except (_MalformedError, ValueError) as error:  # mapping an empty file is a ValueError
        raise InputError(f"{graph}: not an ONNX graph; export the bundle again") from error
    except _TooManyFieldsError as error:
        raise InputError(
            f"{graph}: has over {_MOST_FIELDS:,} fields, more than any export writes; do not use it"
        ) from error
    except OSError as error:
        raise InputError(f"{graph}: cannot be read ({error.strerror}); correct its permissions") from error
    _check_loops(graph, loops, numbers)
    return locations - {""}


def _check_loops(graph: Path, loops: set[bytes], numbers: Mapping[bytes, float]) -> None:
    """Check that the graph itself says how often each of its loops turns.

    :param loops: the names of their numbers of turns; empty where a loop has none.
    :param numbers: see `_note_number`.
    """
    if any(not name or numbers.get(name, inf) > _MOST_TURNS for name in loops):
        raise InputError(
            f"{graph}: has a loop of over {_MOST_TURNS:,} turns, or of as many as it computes, which no export writes; "
            "do not use it"
        )


def _note_number(values: Mapping[int, bytes], numbers: dict[bytes, float], *, is_inside: bool) -> None:
    """Note the number that a weight holds by the weight's name, infinity where it may be any.

    :param values: of a weight; or of a node, as onnxruntime takes a constant in place of a weight of the same name.
    :param is_inside: whether no other file holds what the weight does.
    """
    name, raw = values.get(_NAME) or values.get(_OUTPUT, b""), values.get(_RAW, b"")
    number = int.from_bytes(raw, "little") if len(raw) == _NUMBER_BYTES and is_inside else inf
    numbers[name] = max(number, numbers.get(name, 0))


def _read_message(
    content: mmap.mmap, message: str, span: Span, left: Iterator[int]
) -> tuple[dict[int, bytes], list[tuple[str, Span]]]:
    """Return what `_READ` names of a message, by field, and its inner messages to follow, each with its type."""
    children, read = _CHILDREN.get(message, {}), _READ.get(message, ())
    values: dict[int, bytes] = {}
    inner = []
    for field, (start, end) in _fields(content, span, left):
        if field in children:
            inner.append((children[field], (start, end)))
        elif field not in read or (field == _RAW and end - start > _NUMBER_BYTES):
            continue
        elif field not in values or (message, field) != ("node", _INPUT):
            values[field] = content[start:end]  # of several, protobuf takes the last; the first input is wanted
    return values, inner


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
