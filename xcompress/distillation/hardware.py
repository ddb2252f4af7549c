"""The device that this machine trains on, its arithmetic and its compiler."""

import multiprocessing
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from xcompress.errors import InputError, on_one_line

MOST_LOADERS = 4
"""Collating a batch takes some milliseconds; a few processes keep ahead of a GPU."""
COMPILER = "inductor"
"""The backend of torch.compile."""


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16() -> bool:
    """Return whether the device multiplies in bfloat16 natively."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def trains_in_bf16(precision: Literal["auto", "float32"]) -> bool:
    """Return whether training with this `precision` of a recipe has matrix products in bfloat16."""
    return precision == "auto" and has_bf16()


def fast_inference() -> AbstractContextManager[object]:
    """Return a context in which matrix products run in bfloat16, where the device has it natively."""
    return torch.autocast(device().type, dtype=torch.bfloat16) if has_bf16() else nullcontext()


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
