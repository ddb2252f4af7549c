"""Devices that a bench runs on, opened by name: cpu, mobile, wasm, webgpu, cuda or ssh:HOST."""

import sys
from contextlib import ExitStack
from dataclasses import dataclass

from xcompress.bench import MAX_SLOW_DOWN
from xcompress.bench.devices.device import Device
from xcompress.errors import InputError
from xcompress.packages import install_command

DEVICES = ("cpu", "mobile", "wasm", "webgpu", "cuda", "ssh:HOST")


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
    if device not in DEVICES[:-1] and not device.startswith("ssh:"):
        raise InputError(f"--device {device}: no such device; choose one of {', '.join(DEVICES)}")
    if memory_mb is not None and device != "mobile":
        raise InputError(f"--memory {memory_mb}: only with --device mobile, not {device}; leave it out")
    if slow_down is not None and device != "wasm":
        raise InputError(f"--slow-down {slow_down:g}: only with --device wasm, not {device}; leave it out")
    if memory_mb is not None and memory_mb < 1:
        raise InputError(f"--memory {memory_mb}: give a ceiling in MB, 1 or more")
    if slow_down is not None and not 1 <= slow_down <= MAX_SLOW_DOWN:
        raise InputError(f"--slow-down {slow_down:g}: give a factor from 1 to {MAX_SLOW_DOWN}")
    if device == "mobile" and not sys.platform.startswith("linux"):
        raise InputError(f"--device mobile: {sys.platform} enforces no memory ceiling; measure on Linux")
    if device == "cuda":
        try:
            import torch
        except ImportError as error:
            raise InputError(f"--device cuda: needs PyTorch; {install_command('export')}") from error
        if not torch.cuda.is_available():
            raise InputError(f"--device cuda: PyTorch {torch.__version__} finds no CUDA device; use --device cpu")


def open_device(device: str, options: DeviceOptions, stack: ExitStack) -> Device:
    """Open a device by its name.

    :param stack: closes the device.
    :raises InputError: when something that the device needs is missing.
    """
    # Each device imports what it alone needs, such as a browser's driver.
    if device == "mobile":
        from xcompress.bench.devices.mobile import MobileDevice

        return MobileDevice(options.memory_mb, stack)
    if device in ("wasm", "webgpu"):
        from xcompress.bench.devices.browser import BrowserDevice

        return BrowserDevice(device, options.slow_down)
    if device.startswith("ssh:"):
        from xcompress.bench.devices.ssh import SshDevice

        return SshDevice(device, stack)
    from xcompress.bench.devices.local import LocalDevice

    return LocalDevice(device)
