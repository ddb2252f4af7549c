"""A bundle in a browser, asked as a worker process is: the same requests, the same replies."""

from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from threading import Timer
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.workers.browser.page import Page
from xcompress.bench.workers.browser.parity import agreement, sample, unpacked
from xcompress.bench.workers.browser.tokens import Tokens, by_length
from xcompress.bench.workers.browser.tools import Tools, check_browser
from xcompress.bench.workers.client import TIMEOUT, WorkerClient, WorkerFailed
from xcompress.bench.workers.work import work_of_bundle
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import graphs_of, read_manifest
from xcompress.errors import InputError, XCompressError
from xcompress.web import GRAPH_SCRIPT
from xcompress.web.onnxruntime_web import SCRIPT
from xcompress.web.server import Server

SLOW_DOWN = 4.0
"""Times that a phone's processor is slower, unless asked otherwise."""
Reply = dict[str, Any]
_HERE = Path(__file__).parent
_BATCH = 32
_GOODBYE = 5.0
"""Seconds that a browser has to end by itself."""


class BrowserWorker(WorkerClient):
    """A page of its own browser that holds one bundle; use it as a context, so that no process is left behind.

    The graph runs in the page, with one thread; text becomes tokens outside of it, with the bundle's own tokenizer, and
    that is in no figure. `load`, `time` and `throughput` are slowed down, `encode` is not: it is for accuracy.

    :param bundle: the bundle's folder.
    :param precision: which of its graphs.
    :param slow_down: how many times slower the page's thread is made.
    :param tools: what `check_browser` found; None looks now.
    :param patience: seconds that a single request may take before the browser is given up.
    :raises InputError: when tools are missing, the folder is no bundle, lacks the precision, or slow_down is below 1.
    :raises WorkerFailed: when the browser does not start.
    """

    def __init__(
        self,
        bundle: Path,
        precision: str,
        *,
        slow_down: float = SLOW_DOWN,
        tools: Tools | None = None,
        patience: float = TIMEOUT,
    ) -> None:
        if not slow_down >= 1:
            raise InputError(f"--slow-down: is {slow_down:g}; give 1 (this machine's own speed) or more")
        tools = tools or check_browser()
        self.bundle, self.precision, self.slow_down, self.tools = bundle, precision, slow_down, tools
        self._graph = _graph(bundle, precision)
        self._external: list[str] = []
        self.patience = patience
        self._timed_out = self._closed = False
        self._tokens: Tokens | None = None
        self._bare = self._peak = self._dimension = 0
        page = {f"/{name}": _HERE / name for name in ("page.html", "page.js")} | {"/graph.js": GRAPH_SCRIPT}
        self._server = Server(page | {f"/ort/{name}": file for name, file in tools.runtime.items()})
        # playwright's objects belong to one thread, and one thread cannot hold two of its event loops
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        try:
            self._page = self._thread.submit(Page, tools.browser, f"{self._server.address}/page.html").result()
        except BaseException:
            self._thread.shutdown()
            self._server.close()
            raise

    @property
    def address(self) -> str:
        """Where the page is served."""
        return self._server.address

    @property
    def requests(self) -> tuple[str, ...]:
        """Every address that the page asked for so far."""
        return tuple(self._page.requests)

    def ask(self, do: str, **request: object) -> Reply:
        """Send one request and wait for its reply.

        :raises WorkerFailed: when the browser ended, took too long, or the page reports an error.
        """
        method: Callable[..., Reply] | None = getattr(self, f"_do_{do}", None)
        if self._closed or method is None:
            raise WorkerFailed("the browser is closed" if self._closed else f"a browser does not answer {do!r}")
        timer = Timer(self.patience, self._give_up)
        timer.start()
        try:
            return self._thread.submit(method, **request).result()
        except XCompressError as error:
            late = f"no answer within {self.patience:g} s"
            raise WorkerFailed(late if self._timed_out else str(error)) from error
        except Exception as error:  # whatever it is, it is this subject's own
            raise WorkerFailed(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from error
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the browser and the server; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        timer = Timer(_GOODBYE, self._page.kill)
        timer.start()
        self._thread.submit(self._page.close).result()
        timer.cancel()
        self._thread.shutdown()
        self._server.close()

    def _give_up(self) -> None:
        self._timed_out = True
        self._page.kill()

    def _do_load(self, sentence: str, input_ids: list[list[int]] | None = None, **_: object) -> Reply:
        """Start the runtime, open the graph, give the first vector, serve three short calls; then compare vectors.

        What is compared is encoded after all figures are taken.
        """
        self._serve_bundle()
        self._tokens = Tokens(self.bundle)
        page = self._page
        self._demand(page.call("features"))
        self._bare = page.heap(collect=True)
        page.slow_down(self.slow_down)
        started = self._measured("runtime", script=f"/ort/{SCRIPT}", folder="/ort/")
        opened = self._measured("open", graph=_url(self._graph), externalData=self._external_data())
        first = self._measured("encode", rows=self._tokens.of([sentence]), pad=self._tokens.pad)
        if input_ids:
            self._measured("time", rows=input_ids, calls=3, warm=0)
        self._dimension = int(first["shape"][-1])
        parts = {"import": started, "model": opened, "first_vector": first}
        reply = {"seconds": {name: part["seconds"] for name, part in parts.items()}, "dimension": self._dimension}
        reply |= self._do_memory()
        browser = {"version": page.version, "slow_down": self.slow_down, **self._now(), "parity": self._parity()}
        work = work_of_bundle(self.bundle)
        return {**reply, "work": [work.token, work.pair] if work else None, "browser": browser}

    def _do_threads(self, count: int) -> Reply:
        """Do nothing: one thread is all that is measured."""
        return {}

    def _do_memory(self) -> Reply:
        """Report JavaScript's heap and WebAssembly's memory together, over those of the page without the runtime."""
        now = self._now()
        resident = now["js_heap"] + now["wasm_memory"]
        return {"bare": self._bare, "resident": resident - self._bare, "peak": self._peak - self._bare}

    def _do_time(self, input_ids: list[list[int]], calls: int, warm: bool) -> Reply:
        """Time single calls in the page."""
        self._page.slow_down(self.slow_down)
        return self._measured("time", rows=input_ids, calls=calls, warm=int(warm))

    def _do_throughput(self, texts: list[str]) -> Reply:
        """Time all batches from tokens to vectors; the tokenizer's share is not known, for it runs elsewhere."""
        self._page.slow_down(self.slow_down)
        sequences, pad = self._sequences(texts)
        batches = [[sequences[row] for row in rows] for rows in by_length(sequences, _BATCH)]
        reply = self._measured("throughput", batches=batches, pad=pad)
        return {**reply, "tokenizer": None, "tokens": sum(map(len, sequences))}

    def _do_encode(self, texts: list[str], batch_size: int = _BATCH) -> Reply:
        """Encode texts to vectors (n, D), at the machine's own speed."""
        self._page.slow_down(1)
        sequences, pad = self._sequences(texts)
        vectors: NDArray[np.float32] = np.empty((len(texts), self._dimension), dtype="<f4")
        for rows in by_length(sequences, batch_size):
            reply = self._measured("encode", rows=[sequences[row] for row in rows], pad=pad)
            vectors[rows] = unpacked(reply)
        return {"vectors": b64encode(vectors.tobytes()).decode("ascii"), "shape": list(vectors.shape)}

    def _parity(self) -> float:
        texts = sample(read_manifest(self.bundle).get("languages", []))
        return agreement(self._do_encode(texts, batch_size=1), self.bundle, texts, self.precision)

    def _sequences(self, texts: list[str]) -> tuple[list[list[int]], int]:
        if self._tokens is None:
            raise WorkerFailed("nothing is loaded yet")
        return self._tokens.of(texts), self._tokens.pad

    def _measured(self, name: str, **request: object) -> Reply:
        """Let the page answer, and see how much memory it holds before any of it is given back."""
        reply = self._page.call(name, **request)
        self._peak = max(self._peak, self._page.heap(collect=False) + self._wasm())
        return reply

    def _now(self) -> dict[str, int]:
        return {"js_heap": self._page.heap(collect=True), "wasm_memory": self._wasm()}

    def _wasm(self) -> int:
        return int(self._page.call("memory")["wasm"])

    def _serve_bundle(self) -> None:
        check_bundle(self.bundle, read_manifest(self.bundle), self._graph)
        self._external = sorted(external_files(self.bundle, self._graph))
        self._server.files |= {_url(name): self.bundle / name for name in (self._graph, *self._external)}

    def _external_data(self) -> list[dict[str, str]]:
        home = PurePosixPath(self._graph).parent
        return [{"path": str(PurePosixPath(name).relative_to(home)), "data": _url(name)} for name in self._external]

    def _demand(self, features: Reply) -> None:
        """Refuse a browser without SIMD, or one whose clock is coarse."""
        wanted = {"simd": "SIMD", "isolated": "clock of microseconds"}
        lacking = [text for name, text in wanted.items() if not features[name]]
        if lacking:
            raise WorkerFailed(f"{self.tools.browser} {self._page.version}: no {' and no '.join(lacking)}; update it")


def emulated(slow_down: float) -> tuple[str, ...]:
    """Return a line for each thing in which a bench in a browser differs from a user's device."""
    return (
        f"the processor: the browser slows the page's thread down {slow_down:g} times; others, which compile "
        "WebAssembly, run at this machine's speed",
        "the network: all files come from this machine over loopback",
        "the tokenizer: it runs outside the browser and is in no figure",
    )


def _graph(bundle: Path, precision: str) -> str:
    """Return the path of a precision's graph inside the bundle."""
    graphs = graphs_of(bundle, read_manifest(bundle))
    if precision not in graphs:
        raise InputError(f"{bundle}: precision is {precision!r}; here is {', '.join(graphs) or 'none'}; choose another")
    return graphs[precision]


def _url(name: str) -> str:
    return f"/bundle/{quote(name)}"
