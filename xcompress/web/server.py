"""A web server on 127.0.0.1 that serves a fixed list of files and nothing else."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Self
from urllib.parse import urlsplit

HOST = "127.0.0.1"
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


class Server(ThreadingHTTPServer):
    """Serve files on a port of 127.0.0.1 until closed.

    :param files: files by URL path, such as `/page.html`.
    :param port: 0 takes a free one.
    :param policy: the Content-Security-Policy of every response.
    :raises OSError: when the port is taken.
    """

    daemon_threads = True

    def __init__(self, files: Mapping[str, Path], *, port: int = 0, policy: str = POLICY) -> None:
        super().__init__((HOST, port), _Handler)
        self.files = dict(files)
        self.headers = {"Content-Security-Policy": policy, **HEADERS}
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """The URL without a path, such as http://127.0.0.1:40001."""
        return f"http://{HOST}:{self.server_address[1]}"

    def close(self) -> None:
        """Stop serving and free the port."""
        self.shutdown()
        self.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """Return the server itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop serving."""
        self.close()


class _Handler(BaseHTTPRequestHandler):
    """Answer GET with a listed file, and anything else with 404 or 501."""

    server: Server

    def do_GET(self) -> None:
        """Send a file."""
        file = self.server.files.get(urlsplit(self.path).path)
        if file is None or not file.is_file():
            self.send_error(404)
            return
        with file.open("rb") as content, suppress(ConnectionError):  # the browser may have been closed
            self.send_response(200)
            self.send_header("Content-Type", _TYPES.get(file.suffix, "application/octet-stream"))
            self.send_header("Content-Length", str(file.stat().st_size))
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            shutil.copyfileobj(content, self.wfile, 1 << 20)

    def log_message(self, format: str, *values: object) -> None:
        """Print nothing."""
