"""How much memory this process holds, with the standard library alone, so that asking costs nothing."""

import sys
from pathlib import Path

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
