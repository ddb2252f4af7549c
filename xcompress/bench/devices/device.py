"""The interface of a device, the options that users give, and `open_device`, which finds a device by its name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xcompress.bench.machine import Machine
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient
from xcompress.errors import InputError

DEVICES = ("cpu", "mobile", "wasm", "cuda", "ssh:HOST")
MAX_SLOW_DOWN = 100


class Device:
    """A place where subjects run. The defaults here start plain worker processes on this machine."""

    info: DeviceInfo
    machine: Machine
    max_threads: int

    def prepare(self, subjects: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Convert or copy the subjects for this device.

        :param reference: name of the subject to compare with.
        :returns: the subjects that can run here, and the name of the one to compare with.
        """
        return list(subjects), reference

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a fresh worker for a subject."""
        return Worker()

    def load_request(self, subject: Subject) -> dict[str, object]:
        """Return the part of the request `load` that names the model."""
        return {"kind": subject.kind, "source": subject.source, "precision": subject.precision}

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker without limits that times the processor's peak; None where it cannot be timed."""
        return Worker()

    def explain_failure(
        self, subject: Subject, failure: str, load: Mapping[str, object], batches: Sequence[list[list[int]]]
    ) -> str:
        """Return a better explanation of a failure, if the device has one.

        :param failure: the message of the worker.
        :param load: the rest of the request `load`: the first sentence and its token ids.
        :param batches: token ids (N, L) of the shapes that are timed.
        """
        return failure

    def check_vectors(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Compare the vectors with those of another processor; yield a note for each subject."""
        return iter(())


@dataclass(frozen=True)
class DeviceOptions:
    """Options that apply to one device only; None takes the default."""

    memory_mb: int | None = None
    """Memory ceiling of `mobile`, in MB."""
    slow_down: float | None = None
    """Factor by which `wasm` slows the processor down."""


def check_device(device: str, options: DeviceOptions) -> None:
    """Check that the device exists and takes these options.

    :raises InputError: when it does not.
    """
    memory_mb, slow_down = options.memory_mb, options.slow_down
    if device not in DEVICES[:4] and not device.startswith("ssh:"):
        raise InputError(f"--device {device}: no such device; choose one of {', '.join(DEVICES)}")
    if memory_mb is not None and device != "mobile":
        raise InputError(f"--memory {memory_mb}: only with --device mobile, not {device}; leave it out")
    if slow_down is not None and device != "wasm":
        raise InputError(f"--slow-down {slow_down:g}: only with --device wasm, not {device}; leave it out")
    if memory_mb is not None and memory_mb < 1:
        raise InputError(f"--memory {memory_mb}: give a ceiling in MB, 1 or more")
    if slow_down is not None and not 1 <= slow_down <= MAX_SLOW_DOWN:
        raise InputError(f"--slow-down {slow_down:g}: give a factor from 1 to {MAX_SLOW_DOWN}")
    if device == "cuda":
        try:
            import torch
        except ImportError as error:
            raise InputError("--device cuda: needs PyTorch; pip install 'xcompress[export]'") from error
        if not torch.cuda.is_available():
            raise InputError(f"--device cuda: PyTorch {torch.__version__} finds no CUDA device; use --device cpu")


def open_device(device: str, options: DeviceOptions, stack: ExitStack) -> Device:
    """Open a device by its name.

    :param stack: closes the device.
    :raises InputError: when something that the device needs is missing.
    """
    if device == "mobile":
        from xcompress.bench.devices.mobile import MobileDevice

        return MobileDevice(options.memory_mb, stack)
    if device == "wasm":
        from xcompress.bench.devices.browser import BrowserDevice

        return BrowserDevice(options.slow_down)
    if device.startswith("ssh:"):
        from xcompress.bench.devices.ssh import SshDevice

        return SshDevice(device, stack)
    from xcompress.bench.devices.local import LocalDevice

    return LocalDevice(device)
