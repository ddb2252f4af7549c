"""Where subjects run: on this machine, within a phone's limits, in a browser, or on another host."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from xcompress.bench.machine import Machine, all_threads, describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient
from xcompress.errors import InputError, XCompressError

DEVICES = ("cpu", "mobile", "wasm", "cuda", "ssh:HOST")
MEMORY_MB = 256
"""A phone's ceiling where the user names none: what an app may take on small devices."""
SLOW_DOWN = 4.0


class Device:
    """A place where subjects run: processes on this machine, where a place says nothing else."""

    device: DeviceInfo
    machine: Machine
    most_threads: int

    def subjects(self, every: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Make subjects ready for this place, leaving out those that cannot run here, and name the reference."""
        return list(every), reference

    def worker(self, subject: Subject) -> WorkerClient:
        """Start a fresh worker for a subject."""
        return Worker()

    def request(self, subject: Subject) -> dict[str, object]:
        """Say what its worker is to load."""
        return {"kind": subject.kind, "source": subject.source, "precision": subject.precision}

    def bare_worker(self) -> WorkerClient | None:
        """Start a process on the same processor, without limits; None where products cannot be timed so."""
        return Worker()

    def explained(
        self, subject: Subject, failure: str, given: Mapping[str, object], batches: Sequence[list[list[int]]]
    ) -> str:
        """Say more about why a subject failed to start."""
        return failure

    def checks(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Check more than figures; say what was found."""
        return iter(())


@dataclass(frozen=True)
class DeviceOptions:
    """What the user asks of a device."""

    memory_mb: int | None = None
    slow_down: float | None = None


def open_device(device: str, wishes: DeviceOptions, stack: ExitStack) -> Device:
    """Open the place that a device's name stands for; it is closed with the stack.

    :raises InputError: when something that it needs is not here.
    """
    if device == "mobile":
        return MobileDevice((wishes.memory_mb or MEMORY_MB) * 10**6, stack)
    if device == "wasm":
        return BrowserDevice(SLOW_DOWN if wishes.slow_down is None else wishes.slow_down)
    if device.startswith("ssh:"):
        return SshDevice(device, stack)
    return LocalDevice(device)


def check_device(device: str, wishes: DeviceOptions) -> None:
    """Make sure that there is such a device, and that the wishes are for it.

    :raises InputError: when not.
    """
    if device not in DEVICES[:4] and not device.startswith("ssh:"):
        raise InputError(f"--device {device}: no such device; choose one of {', '.join(DEVICES)}")
    if wishes.memory_mb is not None and device != "mobile":
        raise InputError(f"--memory {wishes.memory_mb}: only with --device mobile, not {device}; leave it out")
    if wishes.slow_down is not None and device != "wasm":
        raise InputError(f"--slow-down {wishes.slow_down:g}: only with --device wasm, not {device}; leave it out")
    if wishes.memory_mb is not None and wishes.memory_mb < 1:
        raise InputError(f"--memory {wishes.memory_mb}: give a ceiling in MB, 1 or more")
    if wishes.slow_down is not None and not 1 <= wishes.slow_down <= 100:
        raise InputError(f"--slow-down {wishes.slow_down:g}: give 1 to 100 times")
    if device == "cuda":
        _check_cuda()


def _check_cuda() -> None:
    try:
        import torch
    except ImportError as error:
        raise InputError("--device cuda: needs PyTorch; pip install 'xcompress[export]'") from error
    if not torch.cuda.is_available():
        raise InputError(f"--device cuda: PyTorch {torch.__version__} finds no CUDA device; use --device cpu")


class LocalDevice(Device):
    """This machine: its processors, or its CUDA device."""

    def __init__(self, name: str) -> None:
        self.device, self.machine, self.most_threads = DeviceInfo(name), describe(), all_threads()

    def request(self, subject: Subject) -> dict[str, object]:
        """Say what its worker is to load."""
        return super().request(subject) | {"device": self.device.name}

    def bare_worker(self) -> WorkerClient | None:
        """Start a process; none where a CUDA device works."""
        return Worker() if self.device.name == "cpu" else None


class MobileDevice(Device):
    """A phone's limits on this machine: one thread, a memory ceiling, onnxruntime's own format."""

    def __init__(self, ceiling: int, stack: ExitStack) -> None:
        from xcompress.bench.devices.mobile import emulated

        self.machine, self.most_threads = describe(), 1
        self.device = DeviceInfo("mobile", ceiling, emulated(self.machine))
        self.ceiling = ceiling
        self.folder = Path(stack.enter_context(TemporaryDirectory()))

    def subjects(self, every: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Give bundles the form that phones open."""
        return [self._ready(subject, self.folder / str(number)) for number, subject in enumerate(every)], reference

    def worker(self, subject: Subject) -> WorkerClient:
        """Start a process that may hold no more than the ceiling."""
        from xcompress.bench.devices.mobile import ENVIRONMENT

        worker = Worker(environment=ENVIRONMENT)
        worker.ask("limit", bytes=self.ceiling)
        return worker

    def bare_worker(self) -> WorkerClient | None:
        """Start a process without a ceiling."""
        from xcompress.bench.devices.mobile import ENVIRONMENT

        return Worker(environment=ENVIRONMENT)

    def explained(
        self, subject: Subject, failure: str, given: Mapping[str, object], batches: Sequence[list[list[int]]]
    ) -> str:
        """Say what the subject would have needed."""
        from xcompress.bench.devices.mobile import ENVIRONMENT, explain, needed

        request = self.request(subject) | dict(given)
        return explain(failure, needed(Worker(environment=ENVIRONMENT), request, batches), self.ceiling)

    def checks(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Compare the vectors of bundles with those on an emulated arm64, where there is one."""
        from xcompress.bench.devices.arm64 import check_arm64, find_arm64

        if find_arm64() is None:
            return
        for subject in subjects:
            if subject.kind == "onnx":
                yield f"{subject.name}: {_agreement(check_arm64, subject, sentences)}"

    def _ready(self, subject: Subject, folder: Path) -> Subject:
        from xcompress.bench.devices.mobile import phone_bundle

        if subject.kind != "onnx" or subject.broken:
            return subject
        try:
            made = phone_bundle(Path(subject.source), subject.precision, folder)
        except InputError as error:
            return replace(subject, broken=str(error))
        return replace(subject, source=str(made))


class BrowserDevice(Device):
    """Bundles in a headless browser with onnxruntime-web; a reference in PyTorch stays outside of it."""

    def __init__(self, slow_down: float) -> None:
        from xcompress.bench.workers.browser import check_browser, emulated

        self.tools = check_browser()
        self.machine, self.most_threads, self.slow_down = describe(), 1, slow_down
        self.device = DeviceInfo("wasm", None, emulated(slow_down))

    def worker(self, subject: Subject) -> WorkerClient:
        """Start a browser, or a process for what is no bundle."""
        from xcompress.bench.workers.browser import BrowserWorker

        if subject.kind != "onnx":
            return Worker()
        return BrowserWorker(Path(subject.source), subject.precision, slow_down=self.slow_down, tools=self.tools)

    def bare_worker(self) -> WorkerClient | None:
        """Start none: the browser's products are others."""
        return None


class SshDevice(Device):
    """Another host, reached by ssh: bundles alone, compared with each other."""

    def __init__(self, device: str, stack: ExitStack) -> None:
        from xcompress.bench.devices.ssh import Remote

        self.remote = stack.enter_context(Remote(device.removeprefix("ssh:")))
        self.machine = self.remote.machine()
        self.most_threads = self.machine.threads
        self.device = DeviceInfo(device)

    def subjects(self, every: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Copy the bundles; without a bundle to compare with, the first float32 graph is the reference."""
        here = [subject for subject in every if subject.kind == "onnx"]
        names = [subject.name for subject in here]
        first = next((subject.name for subject in here if subject.precision == "fp32"), None)
        return [self._ready(subject) for subject in here], reference if reference in names else first

    def worker(self, subject: Subject) -> WorkerClient:
        """Start a process over there."""
        return Worker(self.remote.command())

    def bare_worker(self) -> WorkerClient | None:
        """Start a process over there."""
        return Worker(self.remote.command())

    def _ready(self, subject: Subject) -> Subject:
        return subject if subject.broken else replace(subject, source=self.remote.copy(Path(subject.source)))


def _agreement(check: Callable[..., object], subject: Subject, sentences: Sequence[str]) -> str:
    try:
        return str(check(Path(subject.source), subject.precision, sentences))
    except XCompressError as error:
        return f"arm64: {error}"
