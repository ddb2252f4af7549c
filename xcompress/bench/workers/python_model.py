"""Python code that maps sentences to vectors, for a worker."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.errors import XCompressError
from xcompress.sources.python_code import open_code


class PythonModel:
    """A function or class named `python:package.module:name`; it takes text only, and keeps its number of threads.

    If the object has an attribute `files`, the paths of its weights, their size is reported.

    :raises InputError: when there is no such code, or it fails.
    """

    def __init__(self, source: str, precision: str, device: str) -> None:
        self.code = open_code(source, source)
        # The code may import what lies beside it when it is called; installed packages come first.
        sys.path.append(str(Path.cwd()))

    @property
    def bytes_on_disk(self) -> int:
        """Size of the files that the object names; 0 if it names none."""
        return sum(Path(file).stat().st_size for file in getattr(self.code.thing, "files", ()))

    def use_threads(self, threads: int) -> None:
        """Do nothing: a class gets its number of threads when it is created, a function chooses it."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return self.code(list(texts))

    def tokenize(self, texts: Sequence[str]) -> None:
        """Return None: the tokens are unknown."""

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Refuse token ids.

        :raises XCompressError: always.
        """
        raise XCompressError("takes text, no token ids")

    def multiply_adds(self) -> None:
        """Return None: the multiply-adds are unknown."""
