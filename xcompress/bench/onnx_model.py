"""A bundle in ONNX Runtime, as a worker uses it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from xcompress.runtime import Encoder


class OnnxModel:
    """A bundle's graph, on the CPU.

    :param precision: fp32 or int8.
    :param threads: how many threads an operator may use; another number opens the session anew.
    """

    def __init__(self, folder: Path, precision: str, threads: int) -> None:
        self.folder = folder
        self.precision = cast(Literal["fp32", "int8"], precision)
        self.use_threads(threads)

    def use_threads(self, threads: int) -> None:
        """Open the session with that many threads."""
        self.encoder = Encoder(self.folder, precision=self.precision, threads=threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return self.encoder.encode(texts)

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Prepare a batch without padding, (N, L); the result runs it once."""
        ids = np.asarray(input_ids, dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        session = self.encoder.session
        return lambda: session.run(["sentence_embedding"], feed)
