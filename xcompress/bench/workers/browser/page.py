"""A page in a fresh Chromium, driven through playwright."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xcompress.bench.workers.client import WorkerFailed
from xcompress.errors import on_one_line

START = 60.0
"""Seconds that a browser may take to start."""
_FLAGS = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Keep the browser's background services off, and resolve no host name except 127.0.0.1."""
_GPU_FLAGS = {"wasm": ("--disable-gpu",), "webgpu": ("--enable-unsafe-webgpu", "--enable-features=Vulkan")}
"""By device. A browser without a graphics processor that it knows gives WebGPU an adapter in software (SwiftShader)."""
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


class Page:
    """A page with a fresh profile. All methods except `kill` must be called in the thread that created it.

    :param browser: the executable.
    :param address: the page's address.
    :param device: wasm or webgpu.
    :raises WorkerFailed: when the browser does not start or does not open the page.
    """

    def __init__(self, browser: Path, address: str, device: str) -> None:
        from playwright.sync_api import sync_playwright

        self.requests: list[str] = []
        """Every address that the page has requested."""
        self.process = 0
        self._folder = TemporaryDirectory(prefix="xcompress-browser-", ignore_cleanup_errors=True)
        self._playwright = sync_playwright().start()
        try:
            self._open(browser, address, device)
        except BaseException:
            self.close()
            raise

    def _open(self, browser: Path, address: str, device: str) -> None:
        is_root = hasattr(os, "geteuid") and os.geteuid() == 0
        try:
            self._browser = self._playwright.chromium.launch(
                executable_path=browser,
                headless=True,
                chromium_sandbox=not is_root,  # the sandbox does not work for root
                args=(*_FLAGS, *_GPU_FLAGS[device]),
                env={**os.environ, "TMPDIR": self._folder.name},  # a killed browser leaves its temporary files behind
                timeout=START * 1000,
            )
            self.version = self._browser.version
            self._page = self._browser.new_page()
            self._page.on("request", lambda request: self.requests.append(request.url))
            self._tools = self._page.context.new_cdp_session(self._page)
            processes = self._browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
            self.process = next(int(process["id"]) for process in processes if process["type"] == "browser")
            self._page.goto(address)
        except Exception as error:
            raise WorkerFailed(f"{browser} does not start: {on_one_line(error, 200)}") from error

    def call(self, name: str, **request: object) -> dict[str, Any]:
        """Call a function of page.js.

        :raises WorkerFailed: when the page reports an error, or is gone.
        """
        reply = self._ask(self._page.evaluate, "([name, request]) => answer(name, request)", [name, request])
        if "error" in reply:
            raise WorkerFailed(on_one_line(reply["error"]))
        return reply

    def slow_down(self, rate: float) -> None:
        """Make the page's thread `rate` times slower; 1 is full speed."""
        self._ask(self._tools.send, "Emulation.setCPUThrottlingRate", {"rate": rate})

    def heap(self, collect: bool) -> int:
        """Return the bytes that JavaScript uses, including its arrays outside the heap.

        :param collect: collect garbage first.
        """
        if collect:
            self._ask(self._tools.send, "HeapProfiler.collectGarbage")
        used = self._ask(self._tools.send, "Runtime.getHeapUsage")
        return int(used["usedSize"] + used.get("backingStorageSize", 0))

    def _ask(self, method: Callable[..., dict[str, Any]], *values: object) -> dict[str, Any]:
        """Call a method of playwright.

        :raises WorkerFailed: when it fails.
        """
        try:
            return method(*values)
        except Exception as error:  # playwright, with its error classes, may not be installed
            message = on_one_line(error, 200)
            crashed = "the page crashed, most likely out of memory"
            raise WorkerFailed(crashed if "crashed" in message else f"the browser failed: {message}") from error

    def kill(self) -> None:
        """Kill the browser at once; callable from any thread."""
        if self.process:
            with suppress(OSError):
                os.kill(self.process, _KILL)

    def close(self) -> None:
        """Close the browser and playwright's own process."""
        browser = getattr(self, "_browser", None)
        if browser is not None:
            with suppress(Exception):  # it may have ended already
                browser.close()
        self._playwright.stop()
        self._folder.cleanup()
