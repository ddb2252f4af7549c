"""A page in a Chromium of its own, started and asked through playwright."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xcompress.bench.workers.client import WorkerFailed

START = 60.0
"""Seconds that a browser may take to start."""
_FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Nothing of the browser's own runs beside the page, and no name but this machine's is looked up."""
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class Page:
    """A page with a fresh profile; all but `kill` must be called in the thread that made it.

    :param browser: the executable.
    :param address: of the page.
    :raises WorkerFailed: when the browser does not start or does not show the page.
    """

    def __init__(self, browser: Path, address: str) -> None:
        from playwright.sync_api import sync_playwright

        self.requests: list[str] = []
        """Every address that the page asked for."""
        self.process = 0
        self._folder = TemporaryDirectory(prefix="xcompress-browser-", ignore_cleanup_errors=True)
        self._playwright = sync_playwright().start()
        try:
            self._open(browser, address)
        except BaseException:
            self.close()
            raise

    def _open(self, browser: Path, address: str) -> None:
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=browser,
                headless=True,
                chromium_sandbox=not root,  # root has no sandbox to go into
                args=_FLAGS,
                env={**os.environ, "TMPDIR": self._folder.name},  # a browser that is killed cleans nothing up
                timeout=START * 1000,
            )
            self.version = self._browser.version
            self._page = self._browser.new_page()
            self._page.on("request", lambda request: self.requests.append(request.url))
            self._tools = self._page.context.new_cdp_session(self._page)
            self.process = self._find_process()
            self._page.goto(address)
        except Exception as error:
            raise WorkerFailed(f"{browser} does not start: {_one_line(error)}") from error

    def _find_process(self) -> int:
        processes = self._browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        return next(int(one["id"]) for one in processes if one["type"] == "browser")

    def call(self, name: str, **request: object) -> dict[str, Any]:
        """Let the page answer a request of page.js.

        :raises WorkerFailed: when the page reports an error, or is gone.
        """
        try:
            reply: dict[str, Any] = self._page.evaluate("([name, request]) => answer(name, request)", [name, request])
        except Exception as error:  # playwright's errors are a part of playwright, which may not be installed
            said = _one_line(error)
            crashed = "the page crashed, most likely out of memory"
            raise WorkerFailed(crashed if "crashed" in said else f"the browser failed: {said}") from error
        if "error" in reply:
            raise WorkerFailed(" ".join(str(reply["error"]).split())[:300])
        return reply

    def slow_down(self, rate: float) -> None:
        """Make the page's thread so many times slower; 1 is its own speed."""
        self._send("Emulation.setCPUThrottlingRate", {"rate": rate})

    def heap(self, collect: bool) -> int:
        """Return the bytes that JavaScript uses, its arrays outside the heap included.

        :param collect: free what is used no more first.
        """
        if collect:
            self._send("HeapProfiler.collectGarbage")
        used = self._send("Runtime.getHeapUsage")
        return int(used["usedSize"] + used.get("backingStorageSize", 0))

    def _send(self, method: str, values: dict[str, Any] | None = None) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = self._tools.send(method, values or {})
        except Exception as error:
            raise WorkerFailed(f"the browser failed: {_one_line(error)}") from error
        return reply

    def kill(self) -> None:
        """End the browser at once, whatever it is at; callable from any thread."""
        if self.process:
            with suppress(OSError):
                os.kill(self.process, _KILL)

    def close(self) -> None:
        """End the browser and playwright's own process."""
        browser = getattr(self, "_browser", None)
        if browser is not None:
            with suppress(Exception):  # it may be gone
                browser.close()
        self._playwright.stop()
        self._folder.cleanup()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
