"""A headless browser with onnxruntime-web. Only bundles run in it; a reference in PyTorch runs beside it."""

from pathlib import Path

from xcompress.bench.devices.device import Device
from xcompress.bench.machine import describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.browser import SLOW_DOWN, BrowserWorker, check_browser
from xcompress.bench.workers.client import Worker, WorkerClient


class BrowserDevice(Device):
    """Bundles in a headless browser, one thread each.

    :param slow_down: how many times slower the page's thread is made; None takes `SLOW_DOWN`.
    :raises InputError: when the browser, playwright or onnxruntime-web is missing.
    """

    def __init__(self, slow_down: float | None) -> None:
        self.tools = check_browser()
        self.machine, self.max_threads = describe(), 1
        self.slow_down = SLOW_DOWN if slow_down is None else slow_down
        self.info = DeviceInfo("wasm", None, emulation_notes(self.slow_down))

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a browser for a bundle, a process for any other model."""
        if subject.kind != "onnx":
            return Worker()
        return BrowserWorker(Path(subject.source), subject.precision, slow_down=self.slow_down, tools=self.tools)

    def start_peak_worker(self) -> WorkerClient | None:
        """Return None: the peak of a native process says nothing about WebAssembly."""
        return None


def emulation_notes(slow_down: float) -> tuple[str, ...]:
    """Return a line for each difference between this bench and a user's device."""
    return (
        f"processor: the browser slows the page's main thread down {slow_down:g} times; its other threads, which "
        "compile WebAssembly, run at full speed",
        "network: all files are served from this machine over loopback",
        "tokenizer: it runs outside the browser and is not part of any figure",
    )
