"""The device that this machine trains on, and its arithmetic."""

from contextlib import AbstractContextManager, nullcontext

import torch


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16() -> bool:
    """Return whether the device multiplies in bfloat16 natively."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def fast_inference() -> AbstractContextManager[object]:
    """Return a context in which matrix products run in bfloat16, where the device has it natively."""
    return torch.autocast(device().type, dtype=torch.bfloat16) if has_bf16() else nullcontext()
