"""Describe the machine: processor, instruction sets, threads, memory, library versions.

Reads only the standard library, so that a process whose memory is measured, or a bare host, can import it.
"""

import math
import os
import platform
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePosixPath

CPUINFO = Path("/proc/cpuinfo")
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
PROCESSORS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Processor:
    """A processor and the instruction sets that it has."""

    model: str
    flags: tuple[str, ...]
    """Sorted, as Linux names them (such as `avx2` or `i8mm`); empty where the system does not list them."""


def read_processor() -> Processor:
    """Read the processor's model and flags from the first entry of /proc/cpuinfo, else ask `platform`."""
    fields: dict[str, str] = {}
    for line in _text(CPUINFO).splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", "")).split()  # x86, arm64
    model = fields.get("model name") or platform.processor() or platform.machine()
    return Processor(model, tuple(sorted(set(flags))))


def available_threads() -> int:
    """Count the processors that this process may use: those that it may run on, at most its quota of their time."""
    return max(1, math.ceil(min(len(_processors()), _quota())))


def available_cores() -> int:
    """Count the physical cores of the processors that this process may run on, at most its quota of their time."""
    cores = {_text(PROCESSORS / f"cpu{number}/topology/thread_siblings_list") or number for number in _processors()}
    return min(len(cores), available_threads())


def _processors() -> set[int]:
    """Return the numbers of the processors that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _quota() -> float:
    """Return how many processors' time the control groups of Linux give this process; infinity without a limit."""
    quota = math.inf
    for line in _text(OWN_CGROUPS).splitlines():  # such as 4:cpu,cpuacct:/docker/1f, in version 2 0::/system.slice
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # The limits of the groups around it hold, too. In a container, its own group is the root, whatever the path.
        own = PurePosixPath(path.lstrip("/"))
        for group in (CGROUPS / controllers / part for part in (own, *own.parents)):
            limit = _text(group / "cpu.max") or _text(group / "cpu.cfs_quota_us") + _text(group / "cpu.cfs_period_us")
            with suppress(ValueError):  # there is no limit: "max 100000", or nothing
                most, period = map(int, limit.split())
                quota = min(quota, most / period if most > 0 else math.inf)
    return quota


def _text(file: Path) -> str:
    """Return what a file of the system says; nothing where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


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
