"""What this machine trains on, and in which arithmetic."""

from contextlib import AbstractContextManager, nullcontext

import torch


def device() -> torch.device:
    """Return the GPU where there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_bf16() -> bool:
    """Tell whether the device multiplies in bfloat16 natively."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def fast_inference() -> AbstractContextManager[object]:
    """Return a context in which products run in bfloat16 where that is native."""
    return torch.autocast(device().type, dtype=torch.bfloat16) if has_bf16() else nullcontext()
