"""A web server on 127.0.0.1 that serves a fixed list of files and nothing else."""

import math
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_RDWR
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import Any, Self
from urllib.parse import unquote

HOST = "127.0.0.1"
_HTTP_PORT = 80
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}
"""A browser compiles WebAssembly while it downloads only if the content type is right."""
POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'"
"""Content-Security-Policy of a page without styles or images: it may contact its own server only."""
HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Isolation from other origins: it gives the page a clock with a resolution of 5 microseconds."""
HEAD_SECONDS = 10.0
"""Seconds in which a request and its headers must arrive."""
MAX_THREADS = 32
"""Connections that are answered at once; a browser opens six."""
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def host_names(port: int) -> set[str]:
    """List how browsers name this machine and a port in the Host header: without the port where it is HTTP's own."""
    hosts = {HOST, "localhost"}
    return {f"{host}:{port}" for host in hosts} | (hosts if port == _HTTP_PORT else set())


class Server(ThreadingHTTPServer):
    """Serve files on a port of 127.0.0.1 until closed.

    Other programs on this machine, and every page that its browsers show, can send requests. So only requests to the
    server's own names are answered: a page whose host name was changed to mean 127.0.0.1 reads nothing. A connection
    that is slow, or that there is no thread for, is dropped.

    :param files: files by URL path, not percent-encoded, such as `/page.html`.
    :param port: 0 takes a free one.
    :param policy: the Content-Security-Policy of every response.
    :raises OSError: when the port is taken.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, files: Mapping[str, Path], *, port: int = 0, policy: str = POLICY) -> None:
        super().__init__((HOST, port), _Handler)
        self.files = dict(files)
        self.headers = {"Content-Security-Policy": policy, **HEADERS}
        self.names = host_names(self.server_address[1])
        """What a request may name as its host."""
        self._free_threads = BoundedSemaphore(MAX_THREADS)
        self._deadlines: dict[Any, float] = {}
        """When the headers of each open connection must have arrived."""
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The URL without a path, such as http://127.0.0.1:40001."""
        return f"http://{HOST}:{self.server_address[1]}"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base class
        """Answer a connection in a thread of its own, if there is one."""
        if self._free_threads.acquire(blocking=False):
            self._deadlines[request] = monotonic() + HEAD_SECONDS
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system starts no more threads
                self._end(request)
                raise
            return
        with suppress(OSError):
            request.sendall(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Answer a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._end(request)

    def _end(self, request: Any) -> None:  # noqa: ANN401
        self._deadlines.pop(request, None)
        self._free_threads.release()

    def accept_headers(self, request: Any) -> None:  # noqa: ANN401
        """Note that the headers of a connection have arrived."""
        self._deadlines[request] = math.inf

    def service_actions(self) -> None:
        """Drop connections whose headers are late; the base class calls this several times a second."""
        self._drop(monotonic())

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Print nothing: whatever a client sends or does is no concern of the user."""

    def close(self) -> None:
        """Stop serving, drop all connections and free the port."""
        self.shutdown()
        self.server_close()
        self._drop(math.inf)
        self._thread.join()

    def _drop(self, time: float) -> None:
        """Drop the connections whose deadline is not after a time."""
        for request, deadline in list(self._deadlines.items()):
            if deadline <= time:
                with suppress(OSError):  # its thread may have closed it
                    request.shutdown(SHUT_RDWR)

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop serving."""
        self.close()


class _Handler(BaseHTTPRequestHandler):
    """Answer GET and HEAD with a listed file or 404, any other method with 501, and a foreign host name with 403."""

    server: Server
    server_version, sys_version = "xcompress", ""
    timeout = 20.0
    """Seconds that reading, or writing a block, may take."""

    def parse_request(self) -> bool:
        """Read the request and its headers; refuse those of another host name."""
        if not super().parse_request():
            return False
        self.server.accept_headers(self.connection)
        names = self.headers.get_all("Host", [])
        if len(names) == 1 and names[0].strip().lower() in self.server.names:
            return True
        advice = f"Open it as {self.server.address}/. To forward it, use the same port number on the other machine."
        self.send_error(403, "Not a name of this server", advice)
        return False

    def do_GET(self) -> None:
        """Send a file."""
        self._send(with_content=True)

    def do_HEAD(self) -> None:
        """Send the headers of a file."""
        self._send(with_content=False)

    def _send(self, *, with_content: bool) -> None:
        file = self.server.files.get(unquote(self.path.partition("?")[0]))
        try:
            content = file.open("rb") if file is not None and file.is_file() else None
        except OSError:
            content = None
        if content is None:
            self.send_error(404)
            return
        assert file is not None
        with content, suppress(ConnectionError):  # the browser may have been closed
            self.send_response(200)
            self.send_header("Content-Type", _TYPES.get(file.suffix, "application/octet-stream"))
            self.send_header("Content-Length", str(os.fstat(content.fileno()).st_size))
            self.end_headers()
            if with_content:
                shutil.copyfileobj(content, self.wfile, 1 << 20)

    def end_headers(self) -> None:
        """Add the headers that every response has."""
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *values: object) -> None:
        """Print nothing."""
