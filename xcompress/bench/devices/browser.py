"""A headless browser with onnxruntime-web. Only bundles run in it; a reference in PyTorch runs beside it."""

from pathlib import Path

from xcompress.bench.devices.device import Device
from xcompress.bench.machine import describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.browser import SLOW_DOWN, Adapter, BrowserWorker, check_browser, find_adapter
from xcompress.bench.workers.client import Worker, WorkerClient


class BrowserDevice(Device):
    """Bundles in a headless browser: in WebAssembly, one thread each, or with WebGPU.

    :param name: wasm or webgpu.
    :param slow_down: how many times slower the page's thread is made; None takes `SLOW_DOWN` for wasm, 1 for webgpu.
    :raises InputError: when the browser, playwright, onnxruntime-web or the browser's WebGPU adapter is missing.
    """

    unpacks = False

    def __init__(self, name: str, slow_down: float | None) -> None:
        self.tools = check_browser(device=name)
        adapter = find_adapter(self.tools) if name == "webgpu" else None
        self.machine, self.max_threads = describe(), 1
        self.slow_down = slow_down or (1.0 if adapter else SLOW_DOWN)
        self.info = DeviceInfo(name, None, emulation_notes(self.slow_down, adapter))

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a browser for a bundle, a process for any other model."""
        if subject.kind != "onnx":
            return Worker()
        return BrowserWorker(Path(subject.source), subject.precision, slow_down=self.slow_down, tools=self.tools)

    def start_peak_worker(self) -> WorkerClient | None:
        """Return None: the peak of a native process says nothing about a browser."""
        return None


def emulation_notes(slow_down: float, adapter: Adapter | None = None) -> tuple[str, ...]:
    """Return a line for each difference between this bench and a user's device.

    :param adapter: what WebGPU computes with; None for WebAssembly.
    """
    notes = (
        "network: all files are served from this machine over loopback",
        "tokenizer: a bundle's runs outside the browser and is in no figure; that of a model beside the browser is",
    )
    if adapter is None:
        return (
            f"processor: the browser slows the page's main thread down {slow_down:g} times; its other threads, which "
            "compile WebAssembly, run at full speed",
            *notes,
        )
    memory = "memory: JavaScript's heap and WebAssembly's memory; what the WebGPU adapter holds is not counted"
    if adapter.software:
        speed = f"adapter: {adapter.name}, in software: vectors and accuracy count, the times say nothing about a GPU"
    else:
        speed = f"adapter: {adapter.name}"
    return speed, memory, *notes
