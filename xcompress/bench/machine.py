"""The machine a figure was measured on: processor, flags, threads, libraries."""

import importlib
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
SECONDS_WATCHED = 1.0
TELLING_FLAGS = ("avx", "fma", "amx", "sse4", "f16c", "asimd", "sve", "i8mm", "bf16")
LIBRARIES = ("xcompress", "numpy", "tokenizers", "safetensors", "torch", "transformers", "onnxruntime", "onnx", "scipy")


@dataclass(frozen=True)
class Machine:
    """Where a bench ran."""

    cpu: str
    flags: tuple[str, ...]
    """Those instruction sets of the processor that matter for products of matrices."""
    threads: int
    """What 'all threads' means: the processors this process may use."""
    memory: int
    """Bytes of main memory; 0 where unknown."""
    load: float
    """Processors that others kept busy in the second before the bench."""
    system: str
    python: str
    libraries: dict[str, str]


def describe() -> Machine:
    """Describe this machine."""
    cpu, flags = _processor()
    return Machine(
        cpu=cpu,
        flags=flags,
        threads=all_threads(),
        memory=_main_memory(),
        load=_busy_processors(),
        system=platform.platform(),
        python=platform.python_version(),
        libraries={name: found for name in LIBRARIES if (found := _version(name))},
    )


def all_threads() -> int:
    """Count the processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> tuple[str, tuple[str, ...]]:
    if not CPUINFO.exists():
        return platform.processor() or platform.machine(), ()
    entries = [line.partition(":") for line in CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in reversed(entries)}
    flags = facts.get("flags", facts.get("Features", "")).split()
    telling = tuple(sorted(flag for flag in flags if flag.startswith(TELLING_FLAGS)))
    return facts.get("model name", platform.machine()), telling


def _busy_processors() -> float:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return 0.0
    return round(float(sum(psutil.cpu_percent(interval=SECONDS_WATCHED, percpu=True))) / 100, 2)


def _main_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
