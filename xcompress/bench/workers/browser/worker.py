"""A worker in a browser: it answers the same requests as a worker process, with the same replies."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Timer
from typing import Any, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.workers.browser.page import Page
from xcompress.bench.workers.browser.tools import Tools
from xcompress.bench.workers.client import TIMEOUT, WorkerClient, WorkerFailed, decode_vectors
from xcompress.bench.workers.multiply_adds import bundle_multiply_adds
from xcompress.bundle.encoder import Encoder, Precision
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import choose_graph, read_manifest
from xcompress.bundle.tokenizer import BundleTokenizer, batches_by_length
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError, XCompressError, with_class
from xcompress.metrics import cosines
from xcompress.web import GRAPH_SCRIPT
from xcompress.web.server import Server

SLOW_DOWN = 4.0
"""How many times slower a phone's processor is than a desktop's."""
Reply = dict[str, Any]
_BATCH = 32
_CLOSE_SECONDS = 5.0
"""Seconds that a browser may take to close before it is killed."""
_PARITY_SENTENCES = 32
_PAGE = {f"/{name}": Path(__file__).parent / name for name in ("page.html", "page.js")} | {"/graph.js": GRAPH_SCRIPT}
LEAST_PARITY = {"fp32": 0.9999, "fp16": 0.999, "int8": 0.98, "int4": 0.98}
"""Least cosine to native vectors that a graph must have on WebGPU, by precision."""


@dataclass(frozen=True)
class Adapter:
    """What WebGPU computes with."""

    name: str
    software: bool
    """Whether the processor stands in for a graphics processor, as SwiftShader does."""


def find_adapter(tools: Tools) -> Adapter:
    """Start the browser once and return its WebGPU adapter.

    :raises InputError: when the browser does not start or has no adapter.
    """
    with Server(_PAGE) as server, ThreadPoolExecutor(1) as thread:
        try:
            page = thread.submit(Page, tools.browser, f"{server.address}/page.html", tools.device).result()
            try:
                found = thread.submit(page.call, "adapter").result()["adapter"]
            finally:
                thread.submit(page.close).result()
        except WorkerFailed as error:
            raise InputError(f"--device webgpu: {error}") from error
    if found is None:
        raise InputError(
            f"--device webgpu: {tools.browser} {page.version} has no WebGPU adapter, or no JavaScript Promise "
            "Integration; use a newer Chromium (150 was tested), or --device wasm"
        )
    return Adapter(**found)


class BrowserWorker(WorkerClient):
    """A browser with one page that holds one bundle; use it as a context, so that no process is left running.

    The graph runs in the page, with one thread. The bundle's tokenizer runs outside the page and is in no figure.
    `load`, `time` and `throughput` are slowed down; `encode`, which is for accuracy, is not.

    :param bundle: the bundle's folder.
    :param precision: which of its graphs.
    :param slow_down: how many times slower the page's thread is made.
    :param tools: the result of `check_browser`.
    :raises InputError: when the folder is not a bundle or lacks the precision.
    :raises WorkerFailed: when the browser does not start.
    """

    def __init__(self, bundle: Path, precision: str, *, tools: Tools, slow_down: float = SLOW_DOWN) -> None:
        self._manifest = read_manifest(bundle)
        _, self._graph = choose_graph(bundle, self._manifest, precision)
        self.bundle, self.precision, self.slow_down, self.tools = bundle, precision, slow_down, tools
        self.timeout = TIMEOUT
        """Seconds that a single request may take before the browser is killed."""
        self._timed_out = self._closed = False
        self._tokenizer: BundleTokenizer | None = None
        self._bare = self._peak = 0
        self._server = Server(_PAGE | {f"/ort/{name}": file for name, file in tools.runtime.items()})
        # playwright's objects belong to one thread, and one thread cannot hold two of its event loops
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        try:
            address = f"{self._server.address}/page.html"
            self._page = self._thread.submit(Page, tools.browser, address, tools.device).result()
        except BaseException:
            self._thread.shutdown()
            self._server.close()
            raise

    def ask(self, do: str, **request: object) -> Reply:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when the browser ended, took too long, or the page reports an error.
        """
        method: Callable[..., Reply] | None = getattr(self, f"_do_{do}", None)
        if self._closed or method is None:
            raise WorkerFailed("the browser is closed" if self._closed else f"a browser does not answer {do!r}")
        timer = Timer(self.timeout, self._kill_late)
        timer.start()
        try:
            return self._thread.submit(method, **request).result()
        except XCompressError as error:
            late = f"no answer within {self.timeout:g} s"
            raise WorkerFailed(late if self._timed_out else str(error)) from error
        except Exception as error:  # whatever it is, only this subject fails
            raise WorkerFailed(with_class(error)) from error
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close the browser and the server; closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        timer = Timer(_CLOSE_SECONDS, self._page.kill)
        timer.start()
        self._thread.submit(self._page.close).result()
        timer.cancel()
        self._thread.shutdown()
        self._server.close()

    def _kill_late(self) -> None:
        self._timed_out = True
        self._page.kill()

    def _do_load(self, sentence: str, input_ids: list[list[int]] | None = None, **_: object) -> Reply:
        """Start the runtime, open the graph, encode a first sentence, run three short calls; then compare vectors."""
        # Serve the graph and its external data.
        check_bundle(self.bundle, self._manifest, self._graph)
        external = sorted(external_files(self.bundle, self._graph))
        self._server.files |= {f"/bundle/{name}": self.bundle / name for name in (self._graph, *external)}
        self._tokenizer = BundleTokenizer(self.bundle, self._manifest)
        # Take the figures.
        page = self._page
        self._bare = page.heap(collect=True)
        page.slow_down(self.slow_down)
        folder = PurePosixPath(self._graph).parent
        external_data = [
            {"path": str(PurePosixPath(name).relative_to(folder)), "data": _url(name)} for name in external
        ]
        device = self.tools.device
        runtime = self._call("runtime", script=f"/ort/{self.tools.build.script}", folder="/ort/", device=device)
        opened = self._call("open", graph=_url(self._graph), externalData=external_data, device=device)
        first = self._call("encode", rows=self._tokenizer.token_ids([sentence]), pad=self._tokenizer.pad_token_id)
        if input_ids:
            self._call("time", rows=input_ids, calls=3, warm=0)
        measured = {"import": runtime, "model": opened, "first_vector": first}
        memory = self._do_memory()
        downloaded = sum(file.stat().st_size for file in self.tools.runtime.values())
        browser = {"version": page.version, "slow_down": self.slow_down, "runtime": downloaded, **self._read_memory()}
        # Compare the vectors after all figures are taken.
        texts = _parity_sentences(self._manifest.get("languages", []))
        parity = native_cosine(self._do_encode(texts, batch_size=1), self.bundle, texts, self.precision)
        browser["parity"] = parity
        if device == "webgpu" and not parity >= (least := LEAST_PARITY[self.precision]):
            raise WorkerFailed(
                f"webgpu: wrong vectors: a cosine of {parity:.4f} to those of native onnxruntime, and "
                f"{least:g} is the least; use --device wasm"
            )
        return {
            "seconds": {name: reply["seconds"] for name, reply in measured.items()},
            **memory,
            "multiply_adds": bundle_multiply_adds(self.bundle),
            "browser": browser,
        }

    def _do_threads(self, count: int) -> Reply:
        """Do nothing: the browser is measured with one thread only."""
        return {}

    def _do_memory(self) -> Reply:
        """Return JavaScript's heap and WebAssembly's memory together, over those of the page without the runtime."""
        now = self._read_memory()
        resident = now["js_heap"] + now["wasm_memory"]
        return {"bare": self._bare, "resident": resident - self._bare, "peak": self._peak - self._bare}

    def _do_time(self, input_ids: list[list[int]], calls: int, warm: bool) -> Reply:
        """Time single calls in the page."""
        self._page.slow_down(self.slow_down)
        return self._call("time", rows=input_ids, calls=calls, warm=int(warm))

    def _do_throughput(self, texts: list[str]) -> Reply:
        """Time all batches from token ids to vectors; the tokenizer's share is unknown, since it runs elsewhere."""
        self._page.slow_down(self.slow_down)
        sequences, pad = self._tokenize(texts)
        batches = [[sequences[row] for row in rows] for rows in batches_by_length(list(map(len, sequences)), _BATCH)]
        reply = self._call("throughput", batches=batches, pad=pad)
        return {**reply, "tokenizer": None, "tokens": sum(map(len, sequences))}

    def _do_encode(self, texts: list[str], batch_size: int = _BATCH) -> Reply:
        """Encode texts to vectors (n, D), at full speed."""
        self._page.slow_down(1)
        sequences, pad = self._tokenize(texts)
        vectors: NDArray[np.float32] = np.empty((len(texts), self._manifest["dimension"]), dtype="<f4")
        for rows in batches_by_length(list(map(len, sequences)), batch_size):
            reply = self._call("encode", rows=[sequences[row] for row in rows], pad=pad)
            vectors[rows] = decode_vectors(reply, len(rows))
        return {"vectors": b64encode(vectors.tobytes()).decode("ascii"), "shape": list(vectors.shape)}

    def _tokenize(self, texts: list[str]) -> tuple[list[list[int]], int]:
        """Return the token ids of each text, and the id of the padding."""
        if self._tokenizer is None:
            raise WorkerFailed("nothing is loaded yet")
        return self._tokenizer.token_ids(texts), self._tokenizer.pad_token_id

    def _call(self, name: str, **request: object) -> Reply:
        """Call the page, and read its memory before any of it is freed."""
        reply = self._page.call(name, **request)
        used = self._page.heap(collect=False) + int(self._page.call("memory")["wasm"])
        self._peak = max(self._peak, used)
        return reply

    def _read_memory(self) -> dict[str, int]:
        return {"js_heap": self._page.heap(collect=True), "wasm_memory": int(self._page.call("memory")["wasm"])}


def native_cosine(reply: Mapping[str, Any], bundle: Path, sentences: Sequence[str], precision: str) -> float:
    """Return the least cosine between a browser's vectors and those of native onnxruntime.

    Every sentence must be encoded by itself (batch_size=1), since an int8 vector depends a little on its batch. It also
    depends on how the last bit of a float32 is rounded, which differs in WebAssembly: activations halfway between two
    integers fall to the other side. Changing the weights by one part in a million moves int8 vectors as far, to cosines
    of 0.9989 and more; float32 vectors agree to 1e-11.

    :param reply: the browser's reply to `encode`.
    :param precision: the graph that the browser has open.
    :raises InputError: when the bundle cannot be opened.
    """
    encoder = Encoder(bundle, precision=cast(Precision, precision), engine="onnxruntime", threads=1)
    native = encoder.encode(list(sentences), batch_size=1)
    return float(cosines(decode_vectors(reply, len(sentences)), native).min())


def _parity_sentences(languages: Sequence[str]) -> list[str]:
    """Return sentences of the built-in graded set in these languages, or in all if it has none of them."""
    sentences = builtin().within(languages).sentences() or builtin().sentences()
    return sentences[:: max(1, len(sentences) // _PARITY_SENTENCES)][:_PARITY_SENTENCES]


def _url(name: str) -> str:
    return f"/bundle/{quote(name)}"
