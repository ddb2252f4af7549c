"""Text in, vectors out, with only numpy, tokenizers and onnxruntime."""

import ctypes
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.bundle.integrity import check_bundle, external_files, graphs_of, inside, read_manifest
from xcompress.bundle.released import DEFAULT, released_folder
from xcompress.errors import InputError

Precision = Literal["auto", "int8", "int4", "fp16", "fp32"]
Vectors = NDArray[np.float32]

_BEST_FIRST = ("int8", "int4", "fp16", "fp32")
"""What `auto` opens where the manifest does not say."""
_ONE_THREAD = ("mobile", "wasm")
"""Targets on which an encoder should leave the other cores alone."""
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OUTPUT = "sentence_embedding"
_BATCH_TOKENS = 32 * 128
"""Most tokens of a batch, padding included: memory grows with them."""
_TEXTS_AT_ONCE = 10_000
"""How many texts are tokens at the same time."""
_CHARACTERS_PER_TOKEN = 8
_LONGEST = 100_000
"""Characters of a text that are read if its words do not fill the sequence before: more of it is no sentence."""


class Encoder:
    """A bundle, opened for encoding.

    :param path: the bundle's folder.
    :param precision: which graph to open; `auto` takes the one that the manifest names, else int8 where there is one.
    :param threads: threads inside one product; None leaves the choice to onnxruntime, or is 1 if the bundle was made
        for phones or browsers.
    :param check: compare the bundle with the hashes in its manifest first. Either way nothing outside the folder is
        read.
    :raises InputError: when the folder is no bundle, was changed, or lacks the precision.
    """

    def __init__(
        self, path: str | Path, *, precision: Precision = "auto", threads: int | None = None, check: bool = True
    ) -> None:
        folder = Path(path)
        self._manifest = read_manifest(folder)
        self.precision, graph = _choose(folder, self._manifest, precision)
        if check:
            check_bundle(folder, self._manifest, graph)
        else:
            external_files(folder, graph)
        self._tokenizer = _open_tokenizer(inside(folder, "tokenizer.json"), self._manifest)
        self.session = _open_graph(folder / graph, _options(self._manifest.get("target", "cpu"), threads))
        _check_graph(folder / graph, self.session, self.dimension)
        self._inputs = {entry.name for entry in self.session.get_inputs()}
        _return_memory()

    @classmethod
    def released(
        cls, name: str = DEFAULT, *, precision: Precision = "auto", threads: int | None = None, check: bool = True
    ) -> Self:
        """Open a model that comes with xcompress.

        :param name: one of `released_names()`.
        :raises InputError: when there is none of that name, with those that there are.
        """
        return cls(released_folder(name), precision=precision, threads=threads, check=check)

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What manifest.json says, read-only."""
        return MappingProxyType(self._manifest)

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return int(self._manifest["dimension"])

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages that the encoder was made for, as ISO 639 codes."""
        return tuple(self._manifest.get("languages", ()))

    def encode(self, texts: Sequence[str] | NDArray[Any] | str, batch_size: int = 32) -> Vectors:
        """Encode texts; texts of like length share a batch.

        Any text will do: empty, very long, in any script. Half of a surrogate pair, which is no character, counts as ?.

        :param texts: sentences, in anything that can be iterated; one string counts as a list of one.
        :param batch_size: the most texts that go through the graph at once; of long ones it takes fewer.
        :returns: vectors in the order of `texts`, float32 (n, D).
        :raises InputError: when something else than strings comes in, or batch_size is not positive.
        """
        listed = _checked([texts] if isinstance(texts, str) else texts)
        if batch_size < 1:
            raise InputError(f"encode: batch_size is {batch_size}; it must be 1 or more")
        vectors = np.empty((len(listed), self.dimension), dtype=np.float32)
        for start in range(0, len(listed), _TEXTS_AT_ONCE):
            sequences = self.token_ids(listed[start : start + _TEXTS_AT_ONCE])
            for rows in _batches([len(ids) for ids in sequences], batch_size):
                vectors[[start + row for row in rows]] = self._run([sequences[row] for row in rows])
        return vectors

    def similarity(self, left: Vectors, right: Vectors) -> Vectors:
        """Return the cosines between rows, (n, D) and (m, D) to (n, m)."""
        return _unit(left) @ _unit(right).T

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, prefix and special tokens included, cut to what the graph takes.

        The start of each text is tokenised, and more of it only where that start does not fill the sequence.
        """
        pad, prefix, most = (self._manifest[key] for key in ("pad_token_id", "prefix", "max_tokens"))
        sequences: list[list[int]] = [[]] * len(texts)
        waiting, width = list(range(len(texts))), most * _CHARACTERS_PER_TOKEN
        while waiting:
            heads = [_head(texts[row], width) for row in waiting]
            encodings = self._tokenizer.encode_batch_fast([prefix + clean(head) for head in heads])
            short = []
            for row, head, encoding in zip(waiting, heads, encodings, strict=True):
                sequences[row] = encoding.ids or [pad]
                if len(sequences[row]) < most and len(head) < min(len(texts[row]), _LONGEST):
                    short.append(row)
            waiting, width = short, 8 * width
        return sequences

    def _run(self, sequences: list[list[int]]) -> Vectors:
        shape = (len(sequences), max(map(len, sequences)))
        input_ids = np.full(shape, self._manifest["pad_token_id"], dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        for row, ids in enumerate(sequences):
            input_ids[row, : len(ids)] = ids
            attention_mask[row, : len(ids)] = 1
        feeds = dict(zip(_INPUTS, (input_ids, attention_mask, np.zeros_like(input_ids)), strict=True))
        wanted = {name: feeds[name] for name in self._inputs}
        vectors: Vectors = self.session.run([_OUTPUT], wanted)[0]
        return vectors


def top_k(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.int64]:
    """Return the columns of the k highest scores of each row, the best first, and the first of equal ones.

    :param scores: (n, m), or (m,) for one row.
    :returns: (n, k) or (k,); fewer than k columns where there are fewer.
    """
    return np.argsort(-scores, axis=-1, kind="stable")[..., : max(k, 0)]


def clean(text: str) -> str:
    """Replace what no encoding of text allows, halves of surrogate pairs, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _head(text: str, width: int) -> str:
    """Cut a text that is longer than `width` between a letter or digit and a space; take nothing where it has none.

    A word's pieces depend on that word alone: tokenizers of sentence encoders part text at spaces, or have no piece
    that goes on after one, and what normalises characters looks at a character and its marks only. So the pieces of
    the head are the first pieces of the whole text, and if they fill the sequence, the rest cannot have changed it.
    Other characters than letters and digits may become spaces, and several spaces one piece.
    """
    if len(text) <= width or width >= _LONGEST:
        return text[:_LONGEST]
    end = text.rfind(" ", 0, width + 1)
    while end > 0 and not text[end - 1].isalnum():
        end = text.rfind(" ", 0, end)
    return text[: max(end, 0)]


def _batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Yield rows of like length, at most `batch_size` of them and `_BATCH_TOKENS` tokens, padding included."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == batch_size or (len(batch) + 1) * lengths[row] > _BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _checked(texts: Sequence[str] | NDArray[Any]) -> list[str]:
    if isinstance(texts, bytes | bytearray | memoryview):
        raise InputError(f"encode: texts are {type(texts).__name__}; decode them first: texts.decode('utf-8')")
    try:
        listed = list(texts)
    except TypeError:
        raise InputError(f"encode: texts are {type(texts).__name__}; give a string or a list of strings") from None
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"encode: item {number} is {type(text).__name__}, not str; give a list of strings")
    return listed


def _choose(folder: Path, manifest: Mapping[str, Any], precision: str) -> tuple[str, str]:
    """Return the precision to open and its graph's path inside the folder."""
    graphs = graphs_of(folder, manifest)
    if not graphs:
        raise InputError(f"{folder}: none of the graphs that manifest.json names is here; export the bundle again")
    if precision != "auto" and precision not in graphs:
        raise InputError(
            f"{folder}: precision is {precision!r}; choose auto or what is here: {', '.join(graphs)}, or export again"
        )
    order = (manifest.get("precision"), *_BEST_FIRST, *graphs) if precision == "auto" else (precision,)
    best = next(name for name in order if name in graphs)
    return best, graphs[best]


def _open_tokenizer(file: Path, manifest: Mapping[str, Any]) -> Tokenizer:
    if not file.is_file():
        raise InputError(f"{file}: no such file; export the bundle again")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more precise
        raise InputError(f"{file}: not a tokenizer ({_first_line(error)}); export the bundle again") from error
    _check_tokenizer(file, tokenizer, manifest)
    tokenizer.no_padding()
    tokenizer.enable_truncation(manifest["max_tokens"])
    return tokenizer


def _check_tokenizer(file: Path, tokenizer: Tokenizer, manifest: Mapping[str, Any]) -> None:
    """Refuse a tokenizer whose ids or lengths the graph cannot take."""
    most, cut = manifest["max_tokens"], (tokenizer.truncation or {}).get("max_length")
    if most > (cut or most) or most <= tokenizer.num_special_tokens_to_add(False):
        raise InputError(f"{file}: cuts at {cut} tokens, manifest.json says max_tokens {most}; export the bundle again")
    pieces, rows = tokenizer.get_vocab_size(), manifest.get("vocab_size")
    if rows is not None and max(pieces, manifest["pad_token_id"] + 1) > rows:
        raise InputError(f"{file}: has {pieces} pieces, manifest.json says vocab_size {rows}; export the bundle again")


def _options(target: str, threads: int | None) -> onnxruntime.SessionOptions:
    """Choose what costs least on the target: see benchmarks/export_memory.py."""
    if threads is not None and threads < 1:
        raise InputError(f"Encoder: threads is {threads}; give 1 or more, or None for onnxruntime's own choice")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads or (1 if target in _ONE_THREAD else 0)
    # The arena keeps what the largest batch needed: on a phone other apps want it back.
    options.enable_cpu_mem_arena = target != "mobile"
    # A plan of memory is kept for every shape that was ever seen, and text has another shape nearly every time.
    options.enable_mem_pattern = False
    # Threads that go on waiting in a loop after a call take the core from the caller: twice the time at 1 x 16.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return options


def _open_graph(file: Path, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base class below Exception
        raise InputError(
            f"{file}: onnxruntime cannot open it ({_first_line(error)}); export the bundle again"
        ) from error


def _check_graph(file: Path, session: onnxruntime.InferenceSession, dimension: int) -> None:
    """Refuse a graph whose inputs or output are not those that the manifest promises."""
    foreign = [entry.name for entry in session.get_inputs() if entry.name not in _INPUTS]
    widths = [entry.shape[-1] for entry in session.get_outputs() if entry.name == _OUTPUT and entry.shape]
    if foreign or not widths:
        what = f"takes an input {foreign[0]!r}" if foreign else f"has no output {_OUTPUT!r}"
        raise InputError(f"{file}: {what}, so it is no sentence encoder; export the bundle again")
    if isinstance(widths[0], int) and widths[0] != dimension:
        raise InputError(
            f"{file}: gives {widths[0]} numbers, manifest.json says dimension {dimension}; export the bundle again"
        )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _return_memory() -> None:
    """Give back to the system what opening a graph took for a while, where the C library can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _unit(vectors: Vectors) -> Vectors:
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
