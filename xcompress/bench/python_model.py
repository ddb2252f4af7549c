"""Any Python code that maps sentences to vectors, as a worker uses it."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from xcompress.distill.functions import open_function
from xcompress.errors import XCompressError
from xcompress.recipe import Teacher


class PythonModel:
    """A function or class named `python:package.module:name`; its tokens and threads are its own affair.

    :raises InputError: when there is no such code, or it fails.
    """

    def __init__(self, source: str, precision: str, device: str) -> None:
        self.function = open_function(Teacher(source=source), "reference")

    def use_threads(self, threads: int) -> None:
        """Leave the number of threads as it is."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return np.asarray(self.function(list(texts)), dtype=np.float32)

    def tokenize(self, texts: Sequence[str]) -> None:
        """Say that its tokens are not known."""

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Refuse: it takes text.

        :raises XCompressError: always.
        """
        raise XCompressError("takes text, no token ids")

    def work(self) -> None:
        """Say that its products are not known."""
