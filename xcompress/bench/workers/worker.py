"""A worker process: reads requests on standard input and writes replies on standard output, one JSON object per line.

Until the memory of the bare interpreter is measured, only the standard library is imported. Standard output carries
replies only: whatever libraries print goes to standard error.
"""

import _thread
import base64
import importlib
import json
import os
import select
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from xcompress.bench import memory
from xcompress.errors import InputError, XCompressError, with_class
from xcompress.packages import install_command

Reply = dict[str, Any]
MODELS = {
    "pytorch": ("xcompress.bench.workers.torch_model", "TorchModel"),
    "python": ("xcompress.bench.workers.python_model", "PythonModel"),
}
"""By kind of subject, the module and class of its model; all other kinds are bundles in some engine."""
SINGLE = 16
"""Texts of a throughput that are also encoded one by one."""


class Model(Protocol):
    """A model that a worker can measure; it is made from a source, a precision and the name of a device."""

    def use_threads(self, threads: int) -> None:
        """Set the number of threads."""

    def encode(self, texts: Sequence[str]) -> Any:  # noqa: ANN401 - an array, but numpy is not imported here
        """Encode texts to vectors (n, D)."""

    def tokenize(self, texts: Sequence[str]) -> int | None:
        """Tokenize texts as `encode` does; return the number of tokens, or None if it is unknown."""

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Return a function that runs a batch (N, L)."""

    def multiply_adds(self) -> tuple[int, int] | None:
        """Return the multiply-adds for each token and for each pair of tokens, or None if they are unknown."""


class RequestHandler:
    """The state of a worker: the bare interpreter's memory and, once loaded, the model."""

    model: Model

    def __init__(self) -> None:
        self.bare = memory.resident()

    def answer(self, request: Reply) -> Reply:
        """Answer a request with the method that its `do` names."""
        method: Callable[..., Reply] = getattr(self, f"do_{request.pop('do')}")
        return method(**request)

    def do_limit(self, bytes: int) -> Reply:
        """Limit this process to this many bytes over its present memory."""
        memory.limit(bytes)
        return {}

    def do_import(self, modules: list[str]) -> Reply:
        """Import modules that do not count as the model's: memory is then measured over the process with these."""
        for module in modules:
            importlib.import_module(module)
        memory.reset_peak()
        self.bare = memory.resident()
        return {}

    def do_load(
        self,
        kind: str,
        source: str,
        precision: str,
        sentence: str,
        input_ids: list[list[int]] | None = None,
        device: str = "cpu",
    ) -> Reply:
        """Import, load, encode a first sentence and run a short batch; return the seconds of each, and the memory."""
        start = perf_counter()
        module, name = MODELS.get(kind, ("xcompress.bench.workers.onnx_model", "OnnxModel"))
        engine = {} if kind in MODELS else {"engine": "onnxruntime" if kind == "onnx" else kind}
        try:
            build = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            if kind != "pytorch":
                raise
            raise InputError(f"needs {error.name}; {install_command('export')}") from error
        imported = perf_counter()
        self.model = build(source, precision, device, **engine)
        self.model.use_threads(1)
        loaded = perf_counter()
        self.model.encode([sentence])
        first = perf_counter()
        if input_ids:
            self.do_time(input_ids, calls=3, warm=False)
        return {
            "seconds": {"import": imported - start, "model": loaded - imported, "first_vector": first - loaded},
            "multiply_adds": self.model.multiply_adds(),
            "disk": getattr(self.model, "bytes_on_disk", 0),
            **self.do_memory(),
        }

    def do_tokenizer(self, file: str, in_bundle: bool) -> Reply:
        """Load a tokenizer in a worker without a model; return the resident bytes that it adds."""
        from xcompress.bundle.manifest import read_manifest
        from xcompress.bundle.tokenizer import BundleTokenizer

        path, tokenizers = Path(file), importlib.import_module("tokenizers")
        before = memory.resident()
        if in_bundle:
            BundleTokenizer(path.parent, read_manifest(path.parent)).token_ids(["one"])
        else:  # as the model's users open it: checking it, which was done before, takes memory of its own
            tokenizers.Tokenizer.from_file(file).encode("one")
        return {"resident": memory.resident() - before}

    def do_machine(self) -> Reply:
        """Describe the machine that this process runs on."""
        from dataclasses import asdict

        from xcompress.bench.machine import describe

        return asdict(describe())

    def do_memory(self) -> Reply:
        """Return the resident and peak memory in bytes, over the bare interpreter."""
        return {"bare": self.bare, "resident": memory.resident() - self.bare, "peak": memory.peak() - self.bare}

    def do_threads(self, count: int) -> Reply:
        """Set the number of threads."""
        self.model.use_threads(count)
        return {}

    def do_time(self, input_ids: list[list[int]], calls: int, warm: bool) -> Reply:
        """Time single calls, after an untimed one if `warm`."""
        run = self.model.call(input_ids)
        if warm:
            run()
        return {"seconds": [_time(run) for _ in range(calls)]}

    def do_throughput(self, texts: list[str]) -> Reply:
        """Time the texts from text to vectors, their tokenizer alone, and some of them one by one."""
        seconds = _time(lambda: self.model.encode(texts))
        start = perf_counter()
        tokens = self.model.tokenize(texts)
        tokenizer = None if tokens is None else perf_counter() - start
        single = [_time(lambda: self.model.encode([text])) for text in texts[:SINGLE]]  # noqa: B023 - called at once
        return {"seconds": seconds, "tokenizer": tokenizer, "tokens": tokens, "single": single}

    def do_encode(self, texts: list[str]) -> Reply:
        """Return the vectors (n, D) as base64 of little-endian float32."""
        vectors = self.model.encode(texts).astype("<f4")
        return {"vectors": base64.b64encode(vectors.tobytes()).decode("ascii"), "shape": list(vectors.shape)}

    def do_peak(self, graph: str, threads: int, calls: int) -> Reply:
        """Return the least seconds that a graph takes, given in base64, with one input of a fixed shape."""
        from xcompress.bench.workers.onnx_model import open_for_timing

        run = open_for_timing(base64.b64decode(graph), threads)
        return {"seconds": min(_time(run) for _ in range(calls))}


def _time(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _end_with_parent() -> None:
    """End this process when standard input is closed, even during a request: its parent is gone."""
    poll = select.poll()
    poll.register(0, 0)  # reports the end alone
    poll.poll()
    os._exit(1)


def main() -> None:
    """Answer requests until standard input is closed."""
    if hasattr(select, "poll"):  # Windows has none; there, a worker ends after the request
        _thread.start_new_thread(_end_with_parent, ())
    handler = RequestHandler()
    # Keep standard output for replies; send what libraries print to standard error.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = handler.answer(json.loads(line))
        except XCompressError as error:
            reply = {"error": str(error)}
        except BaseException as error:  # whatever it is, the parent has to receive it in one line
            reply = {"error": with_class(error)}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
