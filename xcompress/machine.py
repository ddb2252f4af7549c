"""Describe the machine: processor, instruction sets, threads, memory, library versions.

Reads only the standard library, so that a process whose memory is measured, or a bare host, can import it.
"""

import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Processor:
    """A processor and the instruction sets that it has."""

    model: str
    flags: tuple[str, ...]
    """Sorted, as Linux names them (such as `avx2` or `i8mm`); empty where the system does not list them."""


def read_processor() -> Processor:
    """Read the processor's model and flags from the first entry of /proc/cpuinfo, else ask `platform`."""
    text = CPUINFO.read_text(encoding="utf-8", errors="replace") if CPUINFO.is_file() else ""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", "")).split()  # x86, arm64
    model = fields.get("model name") or platform.processor() or platform.machine()
    return Processor(model, tuple(sorted(set(flags))))


def available_threads() -> int:
    """Count the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def main_memory() -> int:
    """Return the bytes of main memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Map the distributions that are installed to their versions; leave out the others."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions
