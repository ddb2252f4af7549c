"""Which arithmetic this machine trains in."""

from contextlib import AbstractContextManager, nullcontext

import torch


def trains_in_bf16() -> bool:
    """Tell whether bfloat16 products are native here: on the GPU where there is one, else on the CPU."""
    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def fast_inference() -> AbstractContextManager[object]:
    """Return a context in which products run in bfloat16 where that is native."""
    if not trains_in_bf16():
        return nullcontext()
    return torch.autocast("cuda" if torch.cuda.is_available() else "cpu", dtype=torch.bfloat16)
