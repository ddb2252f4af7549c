"""This machine: its processors, or its CUDA device."""

from xcompress.bench.devices.device import Device
from xcompress.bench.machine import describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient
from xcompress.machine import available_threads


class LocalDevice(Device):
    """This machine.

    :param name: cpu or cuda.
    """

    def __init__(self, name: str) -> None:
        self.info, self.machine, self.max_threads = DeviceInfo(name), describe(), available_threads()

    def load_request(self, subject: Subject) -> dict[str, object]:
        """Return the part of the request `load` that names the model and the device."""
        return super().load_request(subject) | {"device": self.info.name}

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker; None for CUDA, whose peak is not timed."""
        return Worker() if self.info.name == "cpu" else None
