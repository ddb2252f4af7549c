"""Text in, vectors out, with only numpy, tokenizers and onnxruntime."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.errors import InputError
from xcompress.files import read_json

Precision = Literal["auto", "int8", "fp32"]
Vectors = NDArray[np.float32]

FORMAT = 1
"""Newest manifest format this module reads."""
GRAPHS = {"int8": "onnx/model_quantized.onnx", "fp32": "onnx/model.onnx"}


class Encoder:
    """A bundle, opened for encoding.

    :param path: the bundle's folder.
    :param precision: which graph to open; `auto` takes int8 where there is one.
    :param threads: threads inside one product; None leaves the choice to onnxruntime.
    :raises InputError: when the folder is no bundle or lacks the precision.
    """

    def __init__(self, path: str | Path, *, precision: Precision = "auto", threads: int | None = None) -> None:
        folder = Path(path)
        self.manifest: dict[str, Any] = _read_manifest(folder)
        self.precision = _choose(folder, precision)
        self._tokenizer = _open_tokenizer(folder / "tokenizer.json", self.manifest["max_tokens"])
        self.session = _open_graph(folder / GRAPHS[self.precision], threads)

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""
        return int(self.manifest["dimension"])

    def encode(self, texts: Sequence[str] | str, batch_size: int = 32) -> Vectors:
        """Encode texts; texts of like length share a batch.

        :param texts: sentences; one string counts as a list of one.
        :param batch_size: how many texts go through the graph at once.
        :returns: vectors in the order of `texts`, float32 (n, D).
        :raises InputError: when something else than strings comes in, or batch_size is not positive.
        """
        sequences = self._token_ids(_checked([texts] if isinstance(texts, str) else texts))
        if batch_size < 1:
            raise InputError(f"encode: batch_size is {batch_size}; it must be 1 or more")
        order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
        vectors = np.empty((len(sequences), self.dimension), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            vectors[rows] = self._run([sequences[row] for row in rows])
        return vectors

    def similarity(self, left: Vectors, right: Vectors) -> Vectors:
        """Return the cosines between rows, (n, D) and (m, D) to (n, m)."""
        return _unit(left) @ _unit(right).T

    def _token_ids(self, texts: list[str]) -> list[list[int]]:
        pad = self.manifest["pad_token_id"]
        encodings = self._tokenizer.encode_batch([self.manifest["prefix"] + text for text in texts])
        return [encoding.ids or [pad] for encoding in encodings]

    def _run(self, sequences: list[list[int]]) -> Vectors:
        shape = (len(sequences), max(map(len, sequences)))
        input_ids = np.full(shape, self.manifest["pad_token_id"], dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        for row, ids in enumerate(sequences):
            input_ids[row, : len(ids)] = ids
            attention_mask[row, : len(ids)] = 1
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask}
        vectors: Vectors = self.session.run(["sentence_embedding"], feeds)[0]
        return vectors


def _checked(texts: Sequence[str]) -> list[str]:
    try:
        listed = list(texts)
    except TypeError:
        raise InputError(f"encode: texts are {type(texts).__name__}; give a string or a list of strings") from None
    for number, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(f"encode: item {number} is {type(text).__name__}, not str; give a list of strings")
    return listed


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a bundle that `xcompress export` made")
    file = folder / "manifest.json"
    if not file.is_file():
        raise InputError(f"{folder}: no manifest.json here; give a bundle that `xcompress export` made")
    manifest = read_json(file)
    needed = ("format", "dimension", "prefix", "max_tokens", "pad_token_id")
    missing = [key for key in needed if key not in manifest] if isinstance(manifest, dict) else list(needed)
    if missing:
        raise InputError(f"{file}: lacks {', '.join(missing)}; export the bundle again")
    if manifest["format"] > FORMAT:
        raise InputError(f"{file}: format {manifest['format']}, this version reads {FORMAT}; upgrade xcompress")
    return dict(manifest)


def _choose(folder: Path, precision: str) -> str:
    if precision not in ("auto", *GRAPHS):
        raise InputError(f"Encoder: precision is {precision!r}; choose auto, int8 or fp32")
    wanted = list(GRAPHS) if precision == "auto" else [precision]
    for name in wanted:
        if (folder / GRAPHS[name]).is_file():
            return name
    raise InputError(f"{folder}: no {' or '.join(GRAPHS[name] for name in wanted)}; export again with that precision")


def _open_tokenizer(file: Path, max_tokens: int) -> Tokenizer:
    if not file.is_file():
        raise InputError(f"{file}: no such file; export the bundle again")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more precise
        raise InputError(f"{file}: not a tokenizer ({error}); export the bundle again") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer


def _open_graph(file: Path, threads: int | None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base class below Exception
        raise InputError(
            f"{file}: onnxruntime cannot open it ({_first_line(error)}); export the bundle again"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _unit(vectors: Vectors) -> Vectors:
    rows = np.atleast_2d(np.asarray(vectors, dtype=np.float32))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
