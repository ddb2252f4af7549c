"""Time one graph in one engine in this process, and print the median; export_speed.py starts it for each figure.

    python benchmarks/engine_calls.py ENGINE FILE BATCH TOKENS THREADS VOCABULARY SECONDS

ENGINE is pytorch (FILE is a model that `xcompress export` reads), onnxruntime, openvino (in the precision that it
chooses), openvino-float32 or litert. Batches are random token ids below VOCABULARY, without padding. BATCH 0 is for a
graph without token ids: its one input has a fixed shape.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from xcompress.bundle.engines import OpenVinoSession, Session, open_in_onnxruntime
from xcompress.bundle.phone_runtimes import LiteRtSession
from xcompress.console import emit

WARM_UP = 5
MOST_CALLS = 400


def main() -> None:
    """Print the median and the least seconds of a call, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("engine", "file"):
        parser.add_argument(name)
    for name in ("batch", "tokens", "threads", "vocabulary"):
        parser.add_argument(name, type=int)
    parser.add_argument("seconds", type=float, help="measure for so long")
    options = parser.parse_args()
    shape = options.batch, options.tokens
    run = open_model(options.engine, options.file, options.threads, shape, options.vocabulary)
    for _ in range(WARM_UP):
        run()
    seconds: list[float] = []
    end = perf_counter() + options.seconds
    while len(seconds) < WARM_UP or (perf_counter() < end and len(seconds) < MOST_CALLS):
        start = perf_counter()
        run()
        seconds.append(perf_counter() - start)
    emit(json.dumps({"median": median(seconds), "least": min(seconds)}))


def open_model(engine: str, file: str, threads: int, shape: tuple[int, int], vocabulary: int) -> Callable[[], object]:
    """Open a model; return a function that runs one batch."""
    if not shape[0]:
        from xcompress.bench.workers.onnx_model import open_for_timing

        return open_for_timing(Path(file).read_bytes(), threads)
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


if __name__ == "__main__":
    main()
