"""A bundle in onnxruntime, OpenVINO or a runtime of phones, for a worker."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xcompress.bench.workers.multiply_adds import MultiplyAdds, bundle_multiply_adds
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import Engine, open_on_cpu
from xcompress.bundle.manifest import INPUTS, OUTPUT
from xcompress.errors import InputError

_CUDA = "CUDAExecutionProvider"


class OnnxModel:
    """One graph of a bundle, or its file for a runtime of phones.

    :param source: the bundle's folder.
    :param precision: which graph to open, as in `Encoder`.
    :param device: cpu or cuda.
    :param engine: what runs it, as in `Encoder`.
    :raises InputError: when the bundle cannot be opened, or onnxruntime does not support the device.
    """

    encoder: Encoder
    """There once the number of threads is set."""

    def __init__(self, source: str, precision: str, device: str, engine: Engine = "onnxruntime") -> None:
        if device == "cuda" and _CUDA not in onnxruntime.get_available_providers():
            raise InputError(
                f"onnxruntime {onnxruntime.__version__} has no CUDA provider; install onnxruntime-gpu in its place"
            )
        self.folder, self.precision, self.device, self.engine = Path(source), precision, device, engine
        self.threads = 0

    def use_threads(self, threads: int) -> None:
        """Set the number of threads inside an operator; another number opens the session anew."""
        if threads != self.threads:
            if self.threads:
                del self.encoder  # ExecuTorch takes another number only where no file is open
            self.threads = threads
            precision: Any = self.precision
            self.encoder = Encoder(self.folder, precision=precision, engine=self.engine, threads=threads)
            if self.device == "cuda" and isinstance(self.encoder.session, onnxruntime.InferenceSession):
                self.encoder.session.set_providers([_CUDA, "CPUExecutionProvider"])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode texts to vectors (n, D)."""
        return self.encoder.encode(texts)

    def tokenize(self, texts: Sequence[str]) -> int:
        """Tokenize texts and count their tokens."""
        return sum(map(len, self.encoder.token_ids(texts)))

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Return a function that runs a batch (N, L) without padding."""
        ids = np.asarray(input_ids, dtype=np.int64)
        inputs = dict(zip(INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
        session = self.encoder.session
        feeds = {entry.name: inputs[entry.name] for entry in session.get_inputs()}
        return lambda: session.run([OUTPUT], feeds)

    def multiply_adds(self) -> MultiplyAdds | None:
        """Count the multiply-adds."""
        return bundle_multiply_adds(self.folder)


def open_for_timing(graph: bytes, threads: int) -> Callable[[], object]:
    """Open a graph whose one input has a fixed shape, uint8 or float32; return a function that runs it on noise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = open_on_cpu(graph, options)
    entry = session.get_inputs()[0]
    values: NDArray[Any] = np.random.default_rng(0).integers(0, 127, entry.shape)
    feeds = {entry.name: values.astype(np.uint8 if "uint8" in entry.type else np.float32)}
    return lambda: session.run(None, feeds)
