"""One subject in its own process: requests on standard input, replies on standard output, one JSON object a line.

Only the standard library is imported before the bare interpreter is measured. Libraries that print are sent to standard
error, so that standard output carries replies alone.
"""

import base64
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TextIO

from xcompress.bench import memory
from xcompress.errors import XCompressError

Reply = dict[str, Any]
MODELS = {
    "pytorch": ("xcompress.bench.workers.torch_model", "TorchModel"),
    "onnx": ("xcompress.bench.workers.onnx_model", "OnnxModel"),
    "python": ("xcompress.bench.workers.python_model", "PythonModel"),
}
SINGLE = 16
"""Texts of a throughput that are also encoded one by one."""


class Model(Protocol):
    """What a worker needs of a model; it is made from a source, a precision and the name of a device."""

    def use_threads(self, threads: int) -> None:
        """Set the number of threads."""

    def encode(self, texts: Sequence[str]) -> Any:  # noqa: ANN401 - an array, but numpy is not imported here
        """Encode texts to vectors (n, D)."""

    def tokenize(self, texts: Sequence[str]) -> int | None:
        """Tokenize texts as `encode` does; return how many tokens they have, or None where that is not known."""

    def call(self, input_ids: list[list[int]]) -> Callable[[], object]:
        """Prepare a batch (N, L); the result runs it once."""

    def work(self) -> list[int] | None:
        """Return multiply-adds by token and by pair of tokens, or None where they are not known."""


class Session:
    """The state of a worker: the bare interpreter's memory and, once loaded, the model."""

    model: Model

    def __init__(self) -> None:
        self.bare = memory.resident()

    def answer(self, request: Reply) -> Reply:
        """Do what a request asks for; `do` names the method."""
        method: Callable[..., Reply] = getattr(self, f"do_{request.pop('do')}")
        return method(**request)

    def do_limit(self, bytes: int) -> Reply:
        """Let this process have no more than so many bytes over what it has now."""
        importlib.import_module("xcompress.bench.memory").limit(bytes)
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
        """Import, load, give the first vector, serve a short request; the seconds of each and the memory after all."""
        start = perf_counter()
        module, name = MODELS[kind]
        build = getattr(importlib.import_module(module), name)
        imported = perf_counter()
        self.model = build(source, precision, device)
        self.model.use_threads(1)
        loaded = perf_counter()
        vector = self.model.encode([sentence])
        first = perf_counter()
        if input_ids:
            self.do_time(input_ids, calls=3, warm=False)
        seconds = {"import": imported - start, "model": loaded - imported, "first_vector": first - loaded}
        found = {"seconds": seconds, "dimension": int(vector.shape[1]), "work": self.model.work()}
        return {**found, "disk": getattr(self.model, "bytes_on_disk", 0), **self.do_memory()}

    def do_tokenizer(self, file: str) -> Reply:
        """Load a tokenizer alone, in a worker without a model; the resident bytes it adds."""
        tokenizers = importlib.import_module("tokenizers")
        before = memory.resident()
        tokenizer = tokenizers.Tokenizer.from_file(file)
        tokenizer.encode("one")
        return {"resident": memory.resident() - before}

    def do_machine(self) -> Reply:
        """Describe the machine that this process runs on."""
        from dataclasses import asdict

        return asdict(importlib.import_module("xcompress.bench.machine").describe())

    def do_memory(self) -> Reply:
        """Report resident and peak memory in bytes, over the bare interpreter."""
        return {"bare": self.bare, "resident": memory.resident() - self.bare, "peak": memory.peak() - self.bare}

    def do_threads(self, count: int) -> Reply:
        """Use that many threads from now on."""
        self.model.use_threads(count)
        return {}

    def do_time(self, input_ids: list[list[int]], calls: int, warm: bool) -> Reply:
        """Time single calls, after an untimed one if `warm`."""
        run = self.model.call(input_ids)
        if warm:
            run()
        return {"seconds": [_seconds(run) for _ in range(calls)]}

    def do_throughput(self, texts: list[str]) -> Reply:
        """Time texts from text to vectors, their tokenizer alone, and some of them one by one."""
        seconds = _seconds(lambda: self.model.encode(texts))
        start = perf_counter()
        tokens = self.model.tokenize(texts)
        tokenizer = None if tokens is None else perf_counter() - start
        single = [_seconds(lambda: self.model.encode([text])) for text in texts[:SINGLE]]  # noqa: B023 - called at once
        return {"seconds": seconds, "tokenizer": tokenizer, "tokens": tokens, "single": single}

    def do_encode(self, texts: list[str]) -> Reply:
        """Encode texts into base64 of little-endian float32, (n, D)."""
        vectors = self.model.encode(texts).astype("<f4")
        return {"vectors": base64.b64encode(vectors.tobytes()).decode("ascii"), "shape": list(vectors.shape)}

    def do_peak(self, graph: str, threads: int, calls: int) -> Reply:
        """Return the least seconds that a graph in base64 with one input `given` of a fixed shape takes."""
        onnx_model = importlib.import_module("xcompress.bench.workers.onnx_model")
        run = onnx_model.prepared(base64.b64decode(graph), threads)
        return {"seconds": min(_seconds(run) for _ in range(calls))}


def _seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def _own_stdout() -> TextIO:
    """Keep standard output for replies and send whatever else is printed to standard error."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def main() -> None:
    """Answer requests until standard input ends."""
    sys.path.insert(0, str(Path.cwd()))  # what `python:module:name` names may lie here
    session = Session()
    replies = _own_stdout()
    for line in sys.stdin:
        try:
            reply = session.answer(json.loads(line))
        except XCompressError as error:
            reply = {"error": str(error)}
        except BaseException as error:  # whatever it is, the parent has to hear it in one line
            reply = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
