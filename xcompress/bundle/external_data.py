"""Find the external data files of a graph, and refuse one with functions or endless loops, without loading it.

A graph is a protobuf message. A tensor whose values lie in another file has entries of a key and a value; the key
`location` holds the file's name. This reader decodes the framing of protobuf and follows only the messages that lead to
tensors and loops. It skips the values, so that a graph of any size takes milliseconds. A graph in onnxruntime's own
format (.ort) is a table of FlatBuffers, whose fields are found by their numbers; there, too, only loops are followed.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
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
_NESTED = "has a graph in a graph in a graph, or in another node than Loop or If"
_REFUSED = {"function": "defines functions", "nested": _NESTED}
"""Message types that no export writes."""
_WITH_BODIES = (b"Loop", b"If")
"""Operators that may hold graphs. Scan turns once for each byte of a tensor: a gigabyte takes hours."""
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
_ORT_SIGNATURE = b"ORTM"
_ORT_MODEL, _ORT_GRAPH = 1, 7
"""Fields of the tables of a session and of a model in ort.fbs, which the others below are of, too."""
_ORT_WEIGHTS, _ORT_NODES = 0, 2
"""Fields of a graph."""
_ORT_OPERATOR, _ORT_INPUTS, _ORT_OUTPUTS, _ORT_ATTRIBUTES = 5, 8, 9, 10
"""Fields of a node."""
_ORT_BODY, _ORT_BODIES = 7, 12
"""Fields of an attribute."""
_ORT_NAME, _ORT_RAW = 0, 4
"""Fields of a tensor."""
_LONGEST_NAME = 1000
"""Bytes of a name in a .ort file that are compared."""
_MAX_VARINT_BYTES = 10
_TAG_BITS = 32
_MOST_FIELDS = 1_000_000
"""Fields of all messages; the released models have 6,500. In a file of nothing else, each would take 200 bytes."""

Span = tuple[int, int]
"""Offsets of the first byte, and of the byte after the last."""


class _MalformedError(Exception):
    """The bytes are no protobuf message, or no table of FlatBuffers."""


class _TooManyFieldsError(Exception):
    """There are more than `_MOST_FIELDS`."""


class _RefusedError(Exception):
    """There is what no export writes; the message names it."""


@dataclass(frozen=True)
class _Found:
    """What a graph holds."""

    locations: set[str] = field(default_factory=set)
    loops: set[bytes] = field(default_factory=set)
    """The names of their numbers of turns; empty where a loop has none."""
    numbers: dict[bytes, float] = field(default_factory=dict)
    """By the name of each weight the number that it holds, infinity where it may be any."""

    def note_number(self, name: bytes, raw: bytes) -> None:
        """Note the bytes that a weight holds; of a node none, as onnxruntime takes a constant in place of a weight."""
        number = int.from_bytes(raw, "little") if len(raw) == _NUMBER_BYTES else inf
        self.numbers[name] = max(number, self.numbers.get(name, 0))


def external_locations(graph: Path) -> set[str]:
    """Return the locations of a graph's external data, as written in the graph.

    All tensors count: weights, sparse weights, attributes of nodes, and those of subgraphs. A graph in another format
    (.ort, .pte, .tflite) contains all of its weights. Loops are looked for in ONNX and ORT format.

    :raises InputError: when the file cannot be read, is not a graph, has too many fields, or has what no export
        writes: functions, as where each of thirty calls the next one twice, onnxruntime does not open a file of 2 kB
        within a minute; and loops whose number of turns is large or computed, as a run of the graph may never end.
    """
    if graph.suffix in (".pte", ".tflite"):
        return set()
    found = _Found()
    left = iter(range(_MOST_FIELDS))
    try:
        with graph.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            (_read_ort if graph.suffix == ".ort" else _read_onnx)(content, left, found)
    except (_MalformedError, ValueError) as error:  # mapping an empty file is a ValueError
        raise InputError(f"{graph}: not an ONNX graph; export the bundle again") from error
    except _RefusedError as error:
        raise InputError(f"{graph}: {error}, which no export writes; do not use it") from error
    except _TooManyFieldsError as error:
        raise InputError(
            f"{graph}: has over {_MOST_FIELDS:,} fields, more than any export writes; do not use it"
        ) from error
    except OSError as error:
        raise InputError(f"{graph}: cannot be read ({error.strerror}); correct its permissions") from error
    _check_loops(graph, found)
    return found.locations - {""}


def _read_onnx(content: mmap.mmap, left: Iterator[int], found: _Found) -> None:
    pending: list[tuple[str, Span]] = [("model", (0, len(content)))]
    while pending:
        message, span = pending.pop()
        if message in _REFUSED:
            raise _RefusedError(_REFUSED[message])
        values, inner = _read_message(content, message, span, left)
        if values.get(_KEY) == b"location":
            found.locations.add(values.get(_VALUE, b"").decode("utf-8", "replace"))
        if message == "node" and values.get(_OPERATOR) not in _WITH_BODIES:
            inner = [("inner attribute", attribute) for _, attribute in inner]
        pending += inner
        if message == "node" and values.get(_OPERATOR) == b"Loop":
            found.loops.add(values.get(_INPUT, b""))
        elif message in ("node", "initializer"):
            name, raw = values.get(_NAME) or values.get(_OUTPUT, b""), values.get(_RAW, b"")
            found.note_number(name, b"" if inner else raw)  # an inner message names the file with the number


def _check_loops(graph: Path, found: _Found) -> None:
    """Check that the graph itself says how often each of its loops turns."""
    if any(not name or found.numbers.get(name, inf) > _MOST_TURNS for name in found.loops):
        raise InputError(
            f"{graph}: has a loop of over {_MOST_TURNS:,} turns, or of as many as it computes, which no export writes; "
            "do not use it"
        )


def _read_message(
    content: mmap.mmap, message: str, span: Span, left: Iterator[int]
) -> tuple[dict[int, bytes], list[tuple[str, Span]]]:
    """Return what `_READ` names of a message, by field, and its inner messages to follow, each with its type."""
    children, read = _CHILDREN.get(message, {}), _READ.get(message, ())
    values: dict[int, bytes] = {}
    inner = []
    for number, (start, end) in _fields(content, span, left):
        if number in children:
            inner.append((children[number], (start, end)))
        elif number not in read or (number == _RAW and end - start > _NUMBER_BYTES):
            continue
        elif number not in values or (message, number) != ("node", _INPUT):
            values[number] = content[start:end]  # of several, protobuf takes the last; the first input is wanted
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


def _read_ort(content: mmap.mmap, left: Iterator[int], found: _Found) -> None:
    if content[4:8] != _ORT_SIGNATURE:
        raise _MalformedError
    outermost = _follow(content, _follow(content, _target(content, 0), _ORT_MODEL), _ORT_GRAPH)
    pending = [outermost]
    while pending:
        graph = pending.pop()
        for weight in _items(content, _follow(content, graph, _ORT_WEIGHTS), left):
            raw = _text(content, _follow(content, weight, _ORT_RAW))
            found.note_number(_text(content, _follow(content, weight, _ORT_NAME)), raw)
        for node in _items(content, _follow(content, graph, _ORT_NODES), left):
            operator = _text(content, _follow(content, node, _ORT_OPERATOR))
            bodies = list(_ort_bodies(content, node, left))
            if bodies and (graph != outermost or operator not in _WITH_BODIES):
                raise _RefusedError(_NESTED)
            pending += bodies
            if operator == b"Loop":
                inputs = _items(content, _follow(content, node, _ORT_INPUTS), left)
                found.loops.add(next((_text(content, name) for name in inputs), b""))
            for name in _items(content, _follow(content, node, _ORT_OUTPUTS), left):
                found.note_number(_text(content, name), b"")


def _ort_bodies(content: mmap.mmap, node: int, left: Iterator[int]) -> Iterator[int]:
    """Yield the graphs that the attributes of a node hold."""
    for attribute in _items(content, _follow(content, node, _ORT_ATTRIBUTES), left):
        if body := _follow(content, attribute, _ORT_BODY):
            yield body
        yield from _items(content, _follow(content, attribute, _ORT_BODIES), left)


def _follow(content: mmap.mmap, table: int, number: int) -> int:
    """Return the offset of the table, the list or the text that a field of a table refers to, 0 where it has none."""
    if not table:
        return 0
    places = table - _unpack(content, "<i", table)
    entry = 4 + 2 * number
    place = _unpack(content, "<H", places + entry) if entry < _unpack(content, "<H", places) else 0
    return _target(content, table + place) if place else 0


def _items(content: mmap.mmap, items: int, left: Iterator[int]) -> Iterator[int]:
    """Yield the offsets of the tables or texts in a list; see `_fields` for `left`."""
    for at in range(items + 4, items + 4 + 4 * _unpack(content, "<I", items), 4) if items else ():
        if next(left, None) is None:
            raise _TooManyFieldsError
        yield _target(content, at)


def _text(content: mmap.mmap, at: int) -> bytes:
    """Return the first `_LONGEST_NAME` bytes of a text, or of a list of bytes."""
    return content[at + 4 : at + 4 + min(_unpack(content, "<I", at), _LONGEST_NAME)] if at else b""


def _target(content: mmap.mmap, at: int) -> int:
    return at + _unpack(content, "<I", at)


def _unpack(content: mmap.mmap, kind: str, at: int) -> int:
    if at < 0:  # struct would count from the end
        raise _MalformedError
    try:
        number: int = struct.unpack_from(kind, content, at)[0]
    except struct.error as error:
        raise _MalformedError from error
    return number
