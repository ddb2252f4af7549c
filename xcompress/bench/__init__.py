"""Memory, latency and accuracy against a reference, measured side by side.

Nothing is imported here before it is asked for: a worker process measures the bare interpreter first.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xcompress.bench.results import Report as Report
    from xcompress.bench.run import Plan as Plan
    from xcompress.bench.run import bench as bench
    from xcompress.bench.stations import Wishes as Wishes

__all__ = ["Plan", "Report", "Wishes", "bench"]

_PLACES = {"bench": "run", "Plan": "run", "Report": "results", "Wishes": "stations"}


def __getattr__(name: str) -> object:
    if name in _PLACES:
        return getattr(import_module(f"xcompress.bench.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
