"""Measure the machine's peak: the multiply-adds per second of one large matrix product."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from xcompress.bench.report.format import threads_text
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import WorkerClient, WorkerFailed
from xcompress.bundle.manifest import FLOAT
from xcompress.packages import install_command

SIDE = 1024
"""Rows, columns and depth of the product."""
CALLS, PASSES = 30, 2
"""The first calls with several threads may be slow."""


@dataclass(frozen=True)
class Peaks:
    """Multiply-adds per second by kind (int8 or fp32) and number of threads; empty where they were not measured."""

    per_second: dict[tuple[str, int], float] = field(default_factory=dict)
    left_out: str = ""
    """A note that says which package is missing, if one is."""

    def of(self, subject: Subject, threads: int) -> float | None:
        """Return the peak that a subject's products could reach."""
        return self.per_second.get(("fp32" if subject.precision in FLOAT else "int8", threads))

    def labels(self) -> dict[str, float]:
        """Return the peaks by the names that the report gives them, such as `int8, 2 threads`."""
        return {f"{kind}, {threads_text(count)}": peak for (kind, count), peak in self.per_second.items()}


def measure_peaks(worker: WorkerClient | None, thread_counts: Sequence[int]) -> Peaks:
    """Time one product of each kind with each number of threads.

    :param worker: runs on the processor in question, and is closed; None where the peak cannot be timed.
    :returns: no peaks without the package onnx, which writes the product as a graph.
    """
    if worker is None:
        return Peaks()
    per_second: dict[tuple[str, int], float] = {}
    with worker:
        graphs = {kind: graph for kind in ("int8", "fp32") if (graph := peak_graph(kind))}
        if not graphs:
            note = f"the share of the machine's peak was not measured: needs onnx; {install_command('bench')}"
            return Peaks(left_out=note)
        try:
            for _, (kind, graph), threads in product(range(PASSES), graphs.items(), thread_counts):
                encoded = base64.b64encode(graph).decode("ascii")
                seconds = float(worker.ask("peak", graph=encoded, threads=threads, calls=CALLS)["seconds"])
                per_second[kind, threads] = max(SIDE**3 / seconds, per_second.get((kind, threads), 0.0))
        except WorkerFailed:
            return Peaks()
    return Peaks(per_second)


def peak_graph(kind: str) -> bytes | None:
    """Write one large product with a constant weight, int8 (`MatMulInteger`) or float32; None without onnx.

    Its input `given` is (SIDE, SIDE), uint8 or float32.
    """
    try:
        import numpy as np
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return None
    random = np.random.default_rng(0)
    if kind == "int8":
        operator, input_type, output_type = "MatMulInteger", TensorProto.UINT8, TensorProto.INT32
        weight = numpy_helper.from_array(random.integers(-63, 64, (SIDE, SIDE), dtype=np.int8), "weight")
    else:
        operator, input_type, output_type = "MatMul", TensorProto.FLOAT, TensorProto.FLOAT
        weight = numpy_helper.from_array(random.random((SIDE, SIDE), np.float32), "weight")
    node = helper.make_node(operator, ["given", "weight"], ["result"])
    inputs = [helper.make_tensor_value_info("given", input_type, [SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("result", output_type, [SIDE, SIDE])]
    graph = helper.make_graph([node], "peak", inputs, outputs, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    written: bytes = model.SerializeToString()
    return written
