"""A student folder in PyTorch, as a worker uses it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xcompress.student import Student, encode


class TorchModel:
    """A student, eager, in float32.

    :param precision: always fp32.
    :param threads: how many threads a product of matrices may use.
    """

    def __init__(self, folder: Path, precision: str, threads: int) -> None:
        self.use_threads(threads)
        self.student, self.tokenizer = Student.load(folder)

    def use_threads(self, threads: int) -> None:
        """Set the number of threads."""
        torch.set_num_threads(threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return encode(self.student, self.tokenizer, texts, batch_size=32)

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Prepare a batch without padding, (N, L); the result runs it once."""
        ids = torch.tensor(input_ids)
        mask = torch.ones_like(ids)

        def run() -> object:
            with torch.inference_mode():
                return self.student(ids, mask)

        return run
