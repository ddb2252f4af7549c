"""A student or encoder in PyTorch, for a worker."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from xcompress.bench.workers.multiply_adds import MultiplyAdds, count_multiply_adds
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import encode, token_ids


class TorchModel:
    """A student or an encoder, eager, in float32.

    :param source: its folder or file.
    :param precision: always fp32.
    :param device: cpu or cuda.
    :raises InputError: when it cannot be opened.
    """

    def __init__(self, source: str, precision: str, device: str) -> None:
        student, self.tokenizer = import_encoder(Path(source))
        self.student, self.device = student.to(device), device

    def use_threads(self, threads: int) -> None:
        """Set the number of threads."""
        torch.set_num_threads(threads)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return encode(self.student, self.tokenizer, texts, batch_tokens=32 * 32)

    def tokenize(self, texts: Sequence[str]) -> int:
        """Tokenize texts and count their tokens."""
        return sum(map(len, token_ids(self.tokenizer, list(texts), self.student.config)))

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Return a function that runs a batch (N, L) without padding."""
        ids = torch.tensor(input_ids, device=self.device)
        mask = torch.ones_like(ids)

        def run() -> object:
            with torch.inference_mode():
                vectors = self.student(ids, mask)[1]
                return vectors.cpu()  # waits for a device that works asynchronously

        return run

    def multiply_adds(self) -> MultiplyAdds:
        """Count the multiply-adds."""
        config = self.student.config
        sizes = config.depth, config.hidden_size, config.intermediate_size, config.bottleneck or 0
        heads = config.num_attention_heads, config.key_value_heads, config.head_width
        return count_multiply_adds(*sizes, gated=config.gated, heads=heads)
