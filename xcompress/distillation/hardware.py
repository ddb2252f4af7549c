"""The device that this machine trains on, its arithmetic, its memory and its compiler."""

import ctypes
import multiprocessing
import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from xcompress.errors import InputError, on_one_line

MOST_LOADERS = 4
"""Collating a batch takes some milliseconds; a few processes keep ahead of a GPU."""
COMPILER = "inductor"
"""The backend of torch.compile."""
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
"""Parameters of mallopt(3): how many free bytes the end of the heap keeps; how many blocks are outside of the heap."""
_KEEP, _DEFAULT = {_M_TRIM_THRESHOLD: 2**31 - 1, _M_MMAP_MAX: 0}, {_M_TRIM_THRESHOLD: 128 * 1024, _M_MMAP_MAX: 65536}


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16() -> bool:
    """Return whether the device multiplies in bfloat16 natively."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def fast_inference() -> AbstractContextManager[object]:
    """Return a context in which matrix products run in bfloat16, where the device has it natively."""
    return torch.autocast(device().type, dtype=torch.bfloat16) if has_bf16() else nullcontext()


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Return a context in which the C library keeps freed memory for what is allocated next.

    glibc gives the memory of a large tensor back to the kernel when it is freed, and the kernel clears every page of
    the next one: about a sixth of the time of a training step on a CPU. Other C libraries are left as they are, and so
    are settings from outside (`MALLOC_*_`, `GLIBC_TUNABLES`).
    """
    set_outside = any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ)
    if platform.libc_ver()[0] != "glibc" or set_outside:
        yield
        return
    glibc = ctypes.CDLL(None)
    for parameter, value in _KEEP.items():
        glibc.mallopt(parameter, value)
    try:
        yield
    finally:
        for parameter, value in _DEFAULT.items():
            glibc.mallopt(parameter, value)
        glibc.malloc_trim(0)


def loader_processes() -> int:
    """Return how many processes collate batches beside a process that trains on a GPU; 0 on a CPU, whose cores train.

    They are forked: what they read is memory-mapped and shared, and need not be copied.
    """
    if device().type == "cpu" or multiprocessing.get_start_method() != "fork":
        return 0
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST_LOADERS, cores - 1))


def check_compiler() -> None:
    """Compile a small function.

    :raises InputError: when torch.compile does not work on this machine.
    """
    try:
        torch.compile(torch.neg, backend=COMPILER)(torch.ones(2, device=device()))
    except Exception as error:  # of the compiler, of Triton, or of torch itself
        raise InputError(
            f"compile: torch.compile does not work here ({on_one_line(error, 200)}); install a C++ compiler, and on a "
            "GPU Triton, or leave compile out"
        ) from error
