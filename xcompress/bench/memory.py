"""A ceiling over the memory of this process that the operating system enforces, with the standard library alone.

On Linux, RLIMIT_DATA bounds what /proc calls VmData: private writable memory. It counts

- all that malloc and the libraries' own allocators took, whether it was touched or not, and the stacks of threads;
- a private map of a file that may be written, as PyTorch maps weights;

and it does not count what the system can drop and read again: the code of libraries, and weights that are mapped from
a file to be read, such as a graph's external data.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from xcompress.errors import InputError

STATUS = Path("/proc/self/status")


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not tell."""
    if STATUS.exists():
        return _status("VmRSS")
    return _psutil_resident() or peak()


def peak() -> int:
    """Return the highest resident memory this process ever had, in bytes; 0 where the system does not tell."""
    if STATUS.exists():
        return _status("VmHWM")
    try:
        import resource
    except ImportError:
        return _psutil_resident()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(field: str) -> int:
    for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return 0


def _psutil_resident() -> int:
    try:
        import psutil
    except ImportError:
        return 0
    return int(psutil.Process().memory_info().rss)


_PROBE = """
def untouched():
    entries = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return 1024 * (int(entries["VmData"].split()[0]) - int(entries["RssAnon"].split()[0]))
before = untouched()
import numpy
print(untouched() - before)
"""
_PROBE_SECONDS = 60


def limit(bytes_: int) -> None:
    """Let this process have so many bytes over what it has now, for good; an allocation beyond that fails.

    What numpy reserves when it is imported, without touching it, comes on top: see `reserved`.

    :param bytes_: call this in the bare interpreter, and the ceiling is over that, like the figures of memory.
    :raises InputError: where the system has no such limit.
    """
    if not sys.platform.startswith("linux"):
        raise InputError(f"memory ceiling: {sys.platform} enforces none on private memory; measure on Linux")
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = data() + reserved() + bytes_
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def data(process: int | str = "self") -> int:
    """Return the private writable memory of a process in bytes; 0 where it has ended.

    :param process: its number.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmData:")), 0)


def reserved(environment: Mapping[str, str] | None = None) -> int:
    """Return the bytes that numpy's products of matrices reserve and leave untouched when numpy is imported.

    No phone runs numpy, and some tens of MB that hold nothing would be charged to the model. Another process tells.

    :param environment: variables to set there; the number of threads decides.
    :returns: 0 without numpy.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROBE],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    return max(int(done.stdout), 0) if done.returncode == 0 else 0
