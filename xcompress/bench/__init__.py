"""Memory, latency and accuracy against a reference, measured side by side.

Nothing is imported here before it is asked for: a worker process measures the bare interpreter first.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xcompress.bench.report import Report as Report
    from xcompress.bench.run import bench as bench

__all__ = ["Report", "bench"]


def __getattr__(name: str) -> object:
    if name == "bench":
        from xcompress.bench.run import bench

        return bench
    if name == "Report":
        from xcompress.bench.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
