"""Read the memory of this process, and limit it; with the standard library only.

On Linux, RLIMIT_DATA limits what /proc calls VmData: private writable memory. It counts

- all memory that malloc and the libraries' own allocators reserved, touched or not, and the stacks of threads;
- writable private maps of files, which PyTorch uses for weights.

It does not count what the system can drop and read again: library code, and weights in files that are mapped for
reading, such as a graph's external data.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from xcompress.python_process import python_command

STATUS = Path("/proc/self/status")


def resident() -> int:
    """Return the resident memory of this process in bytes; 0 if it is unknown."""
    if STATUS.exists():
        return status_bytes("VmRSS")
    return _psutil_resident() or peak()


def peak() -> int:
    """Return the highest resident memory that this process ever had, in bytes; 0 if it is unknown."""
    if STATUS.exists():
        return status_bytes("VmHWM")
    try:
        import resource
    except ImportError:
        return _psutil_resident()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def reset_peak() -> None:
    """Let `peak` count from now on, where the system can do so (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def status_bytes(field: str, process: int | str = "self") -> int:
    """Return a field of /proc/PROCESS/status in bytes; 0 if there is no such process or field."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


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


def limit(bytes_: int) -> None:
    """Limit this process permanently to this many bytes over its present memory; an allocation beyond the limit fails.

    Memory that numpy will reserve at import without touching it is added to the limit: see `reserved`.

    :param bytes_: the limit over the bare interpreter, like the figures of memory, if this is called before any import.
    """
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = status_bytes("VmData") + (0 if "numpy" in sys.modules else reserved()) + bytes_
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def reserved(environment: Mapping[str, str] | None = None) -> int:
    """Return the bytes that numpy's linear algebra library reserves, but does not touch, when numpy is imported.

    No phone runs numpy, and some tens of MB that hold nothing would be charged to the model. They are measured in
    another process.

    :param environment: variables to set there; the number of threads matters most.
    :returns: 0 without numpy.
    """
    done = subprocess.run(
        python_command("-c", _PROBE),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return max(int(done.stdout), 0) if done.returncode == 0 else 0
