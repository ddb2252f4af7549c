"""Describe the machine: processor, flags, threads, memory, load, libraries."""

import importlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from time import sleep

from xcompress.machine import available_threads, installed_versions, main_memory, read_processor

STAT = Path("/proc/stat")
LOAD_SECONDS = 1.0
TELLING_FLAGS = ("avx", "fma", "amx", "sse4", "f16c", "asimd", "sve", "i8mm", "bf16")
LIBRARIES = (
    "xcompress",
    "numpy",
    "tokenizers",
    "sentencepiece",
    "safetensors",
    "torch",
    "transformers",
    "onnxruntime",
    "onnx",
    "scipy",
)


@dataclass(frozen=True)
class Machine:
    """The machine that a bench ran on."""

    cpu: str
    flags: tuple[str, ...]
    """Instruction sets of the processor that matter for matrix products."""
    threads: int
    """The processors that this process may use: `all` threads."""
    memory: int
    """Bytes of main memory; 0 if unknown."""
    load: float
    """Processors that other programs kept busy in the second before the bench; 0 if unknown."""
    system: str
    python: str
    libraries: dict[str, str]
    """Versions of the installed libraries."""


def describe() -> Machine:
    """Describe this machine; takes a second, in which the load is measured."""
    processor = read_processor()
    return Machine(
        cpu=processor.model,
        flags=tuple(sorted(flag for flag in processor.flags if flag.startswith(TELLING_FLAGS))),
        threads=available_threads(),
        memory=main_memory(),
        load=measure_load(),
        system=platform.platform(),
        python=platform.python_version(),
        libraries=installed_versions(LIBRARIES),
    )


def measure_load() -> float:
    """Measure how many processors are busy; 0 where there is neither /proc/stat, as on Linux, nor psutil."""
    if STAT.exists():
        busy_before, total_before = _processor_times()
        sleep(LOAD_SECONDS)
        busy, total = _processor_times()
        share = (busy - busy_before) / (total - total_before) if total > total_before else 0.0
        return round(share * (os.cpu_count() or 1), 2)
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:
        return 0.0
    return round(float(sum(psutil.cpu_percent(interval=LOAD_SECONDS, percpu=True))) / 100, 2)


def _processor_times() -> tuple[int, int]:
    """Return the busy time and the total time of all processors since the system started."""
    # user (with guest), nice, system, idle, iowait, irq, softirq, steal
    times = [int(value) for value in STAT.read_text(encoding="ascii").partition("\n")[0].split()[1:9]]
    return sum(times) - times[3] - times[4], sum(times)
