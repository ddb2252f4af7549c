"""How fast one large product is on the machine: what a graph's products are compared with."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import WorkerClient, WorkerFailed
from xcompress.bench.workers.work import SIDE, peak_graph

CALLS, PASSES = 30, 2
"""The first calls with several threads may be slow."""
FLOAT = ("fp32", "fp16")
"""Precisions whose products are in float32."""


@dataclass(frozen=True)
class Peaks:
    """Multiply-adds per second by kind (int8 or fp32) and number of threads; empty where they were not measured."""

    found: dict[tuple[str, int], float]

    @classmethod
    def measure(cls, worker: WorkerClient | None, counts: Sequence[int]) -> "Peaks":
        """Time one product of each kind with each number of threads.

        :param worker: a process on the processor in question, which is closed then; None where there is no such thing.
        """
        graphs = {kind: graph for kind in ("int8", "fp32") if (graph := peak_graph(kind))}
        found: dict[tuple[str, int], float] = {}
        if worker is None:
            return cls(found)
        try:
            for _, (kind, graph), count in product(range(PASSES), graphs.items(), counts):
                reached = SIDE**3 / float(_seconds(worker, graph, count)["seconds"])
                found[kind, count] = max(reached, found.get((kind, count), 0.0))
        except WorkerFailed:
            found.clear()
        finally:
            worker.close()
        return cls(found)

    def of(self, subject: Subject, threads: int) -> float | None:
        """Return the peak that a subject's products could reach."""
        return self.found.get(("fp32" if subject.precision in FLOAT else "int8", threads))

    def described(self) -> dict[str, float]:
        """Name the peaks for the report."""
        return {f"{kind}, {count} thread{'s' * (count > 1)}": peak for (kind, count), peak in self.found.items()}


def _seconds(worker: WorkerClient, graph: bytes, threads: int) -> dict[str, Any]:
    return worker.ask("peak", graph=base64.b64encode(graph).decode("ascii"), threads=threads, calls=CALLS)
