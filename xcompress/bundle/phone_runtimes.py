"""Open the files of phones' runtimes on this machine, in the runtimes' own Python packages."""

import io
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from xcompress.bundle.integrity import state_of
from xcompress.bundle.manifest import OUTPUT
from xcompress.errors import InputError
from xcompress.metrics import Vectors

LEAST_TOKENS = 2
"""Shorter inputs are padded: exporters take a length of 1 for a constant."""
LITERT_SIGNATURE = "encode_"
"""In front of the number of tokens in the name of each signature of a .tflite file."""
_HIDING = threading.RLock()
"""Held while the error stream is hidden: another thread would take the hidden stream for the true one."""

Text: TypeAlias = NDArray[np.int64]
"""Token ids and mask of one text, (2, L)."""
_EMPTY: Text = np.zeros((2, 1), dtype=np.int64)
"""What a file encodes first."""


class Port(NamedTuple):
    """An input or output of a graph."""

    name: str
    shape: tuple[int | str, ...]
    """Sizes; text where any size will do."""


class PhoneSession(ABC):
    """An open file of a runtime, with the methods of `onnxruntime.InferenceSession` that xcompress calls.

    The file takes one text per call, so a batch is as many calls. Padding on the right is cut off before.
    """

    runtime: ClassVar[str]
    _dimension: int

    def get_inputs(self) -> Sequence[Port]:
        """Return the inputs of the file."""
        return [Port(name, ("batch", "length")) for name in ("input_ids", "attention_mask")]

    def get_outputs(self) -> Sequence[Port]:
        """Return the output of the file."""
        return [Port(OUTPUT, ("batch", self._dimension))]

    def run(self, outputs: Sequence[str], feeds: Mapping[str, NDArray[np.int64]]) -> list[Vectors]:
        """Encode the rows of a batch one by one; return the sentence vectors (N, D)."""
        texts = []
        for ids, mask in zip(feeds["input_ids"], feeds["attention_mask"], strict=True):
            length = int(mask.nonzero()[0][-1]) + 1 if mask.any() else len(ids)
            texts.append(np.stack([ids[:length], mask[:length]]))
        return [np.concatenate(self._encode(texts))]

    @abstractmethod
    def _encode(self, texts: Sequence[Text]) -> Sequence[Vectors]:
        """Return the vector (1, D) of each text."""


class ExecuTorchSession(PhoneSession):
    """A .pte file that is open in ExecuTorch.

    :param file: a file that `--target executorch` wrote.
    :param threads: threads within an operator; 0 leaves the number to ExecuTorch. Where other sessions are open, theirs
        is used.
    """

    runtime = "executorch"
    _opened: ClassVar[WeakSet["ExecuTorchSession"]] = WeakSet()
    """The sessions that are open in this process. They share its threads, which must not change below them."""

    def __init__(self, file: Path, threads: int) -> None:
        self._lock = threading.Lock()  # a method runs one call at a time
        # it says there what its libraries lack, and in a first call what processor it finds
        with native_stderr_hidden():
            from executorch.extension.pybindings import portable_lib
            from executorch.runtime import Runtime

            if threads and not self._opened:
                with redirect_stderr(io.StringIO()):  # it says that it does
                    portable_lib._unsafe_reset_threadpool(threads)
            self._opened.add(self)
            # a program must live as long as its methods
            self._program: Any = Runtime.get().load_program(file)
            self._method: Any = self._program.load_method("forward")
            self._dimension = self._encode([_EMPTY])[0].shape[1]

    def _encode(self, texts: Sequence[Text]) -> Sequence[Vectors]:
        import torch

        rows = [torch.from_numpy(_padded(text, LEAST_TOKENS)) for text in texts]
        with self._lock:
            return [self._method.execute(list(row))[0].numpy().copy() for row in rows]


class LiteRtSession(PhoneSession):
    """A .tflite file that is open in LiteRT.

    :param file: a file that `--target litert` wrote.
    :param threads: threads for one text; 0 leaves the number to LiteRT. The texts of a batch have a thread each: that
        is faster than several for one text, and takes the memory of the open file once more for each.
    """

    runtime = "litert"

    def __init__(self, file: Path, threads: int) -> None:
        self._file, self._threads, self._state = file, threads, state_of(file.parent)
        self._open()
        self._dimension = self._for_one.dimension

    def _open(self) -> None:
        self._for_one = _OpenTflite(self._file, self._threads)
        self._pool = ThreadPoolExecutor(self._threads) if self._threads > 1 else None
        self._of_thread = threading.local()
        self._process = os.getpid()  # last: until then, other threads of a forked process open the file, too

    def _encode(self, texts: Sequence[Text]) -> Sequence[Vectors]:
        if self._pool is None:
            return [self._for_one.encode(text) for text in texts]
        is_changed = state_of(self._file.parent) != self._state
        if os.getpid() != self._process:  # the threads have stayed in the process from which this one was forked
            if is_changed:
                raise InputError(f"{self._file}: was changed since it was opened; open the encoder again")
            self._open()
        if is_changed or len(texts) == 1:
            return [self._for_one.encode(text) for text in texts]
        return list(self._pool.map(self._encode_in_thread, texts))

    def _encode_in_thread(self, text: Text) -> Vectors:
        """Encode a text in an interpreter that this thread has for itself."""
        if not hasattr(self._of_thread, "opened"):
            self._of_thread.opened = _OpenTflite(self._file, 1)
        vector: Vectors = self._of_thread.opened.encode(text)
        return vector


class _OpenTflite:
    """A .tflite file in one interpreter of LiteRT.

    The file has a signature for each of some numbers of tokens, and each text is padded to the next of them.
    """

    def __init__(self, file: Path, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._lock = threading.Lock()  # an interpreter runs one call at a time
        with native_stderr_hidden():  # it says there, in a first call, too, that it uses XNNPACK
            self._interpreter: Any = Interpreter(str(file), num_threads=threads or None)
            signatures = [name.removeprefix(LITERT_SIGNATURE) for name in self._interpreter.get_signature_list()]
            self._lengths = sorted(map(int, signatures))
            self._runners: dict[int, Any] = {}
            self.dimension = self.encode(_EMPTY).shape[1]

    def encode(self, text: Text) -> Vectors:
        """Return the vector (1, D) of a text."""
        length = next(least for least in self._lengths if least >= text.shape[1])
        ids, mask = _padded(text, length).astype(np.int32)
        with self._lock:
            if length not in self._runners:
                self._runners[length] = self._interpreter.get_signature_runner(f"{LITERT_SIGNATURE}{length}")
            vector: Vectors = self._runners[length](input_ids=ids, attention_mask=mask)[OUTPUT]
        return vector


def _padded(text: Text, length: int) -> NDArray[np.int64]:
    """Return token ids and mask (2, L) as (2, 1, `length`), with 0 on the right; a longer text stays as it is."""
    return np.pad(text, ((0, 0), (0, max(length - text.shape[1], 0))))[:, None]


@contextmanager
def native_stderr_hidden() -> Iterator[None]:
    """Discard what C++ libraries write to the error stream, which Python's streams do not see."""
    with _HIDING:
        stream = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(stream, 2)
            os.close(nowhere)
            os.close(stream)


def open_phone_session(runtime: str, file: Path, threads: int) -> PhoneSession:
    """Open a file in its runtime.

    :param threads: threads within an operator; 0 leaves the number to the runtime.
    """
    return (LiteRtSession if runtime == "litert" else ExecuTorchSession)(file, threads)
