"""Time one graph in one engine; export_speed.py calls this in a fresh process for each figure."""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from xcompress.bundle.engines import OpenVinoSession, Session, open_in_onnxruntime
from xcompress.bundle.phone_runtimes import LiteRtSession

WARM_UP = 5
MOST_CALLS = 400


def time_calls(engine: str, file: str, batch: int, tokens: int, threads: int, vocabulary: int, seconds: float) -> float:
    """Open a model, and return the median seconds of a call.

    :param engine: pytorch (`file` is a model that `xcompress export` reads), onnxruntime, openvino (in the precision
        that it chooses), openvino-float32 or litert.
    :param vocabulary: batches are random token ids below this number, without padding.
    :param seconds: measure for so long.
    """
    run = open_model(engine, file, threads, (batch, tokens), vocabulary)
    for _ in range(WARM_UP):
        run()
    times: list[float] = []
    end = perf_counter() + seconds
    while len(times) < WARM_UP or (perf_counter() < end and len(times) < MOST_CALLS):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def open_model(engine: str, file: str, threads: int, shape: tuple[int, int], vocabulary: int) -> Callable[[], object]:
    """Open a model; return a function that runs one batch."""
    ids = np.random.default_rng(0).integers(5, vocabulary, shape)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    if engine == "pytorch":
        return _open_in_pytorch(file, threads, feeds)
    session = open_session(engine, Path(file), threads)
    outputs = [port.name for port in session.get_outputs()]
    wanted = ["sentence_embedding" if "sentence_embedding" in outputs else outputs[0]]
    inputs = {port.name: feeds[port.name] for port in session.get_inputs()}
    return lambda: session.run(wanted, inputs)


def open_session(engine: str, file: Path, threads: int) -> Session:
    """Open a graph in an engine other than PyTorch; 0 threads leave the number to the engine."""
    if engine.startswith("openvino"):
        return OpenVinoSession(file, threads, exact=engine == "openvino-float32")
    return LiteRtSession(file, threads) if engine == "litert" else open_in_onnxruntime(file, "cpu", threads)


def _open_in_pytorch(model: str, threads: int, feeds: dict[str, np.ndarray]) -> Callable[[], object]:
    import torch

    from xcompress.export.source import find_source

    torch.set_num_threads(threads)
    student, _ = find_source(model).open()
    batch = [torch.from_numpy(feeds[name]) for name in ("input_ids", "attention_mask")]

    def run() -> object:
        with torch.inference_mode():
            return student(*batch)

    return run
