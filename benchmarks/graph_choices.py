"""What each choice in xcompress/export/graph.py is worth on this machine: run it again after every onnxruntime update.

    python benchmarks/graph_choices.py

Compares, interleaved and on one thread, a random student in PyTorch, traced as it is, unrolled with residuals as Add,
and unrolled as exported (residuals as Sum), in float32 and int8.
"""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from xcompress import console
from xcompress.export import graph
from xcompress.export.quantize import quantize
from xcompress.student import Student, StudentConfig

SHAPES = {(1, 16): 40, (1, 128): 20, (32, 32): 7}
"""(batch, tokens) and how many rounds of each."""
Run = Callable[[dict[str, np.ndarray]], object]


def main() -> None:
    """Print milliseconds per call, medians over interleaved rounds."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = StudentConfig(vocab_size=60_000, unit_layers=3, recurrences=4, bottleneck=128, head_size=384)
    student = Student(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        runs = {"PyTorch": _torch_run(student)}
        for name, model in {"traced": traced(student), "Add": with_add(student), "Sum": graph.build(student)}.items():
            plain, small = Path(folder) / f"{name}.onnx", Path(folder) / f"{name}-int8.onnx"
            onnx.save(model, plain)
            runs[f"{name} fp32"] = _onnx_run(plain)
            if name != "traced":
                quantize(plain, small)
                runs[f"{name} int8"] = _onnx_run(small)
        columns = [medians(runs, shape, rounds) for shape, rounds in SHAPES.items()]
    rows = [[name, *(f"{column[name]:.2f}" for column in columns)] for name in runs]
    head = ["ms, 1 thread", *(f"{batch} x {tokens}" for batch, tokens in SHAPES)]
    console.emit(console.markdown_table(head, rows))


def traced(student: Student) -> onnx.ModelProto:
    """Trace the student's own forward pass."""
    sample = torch.ones(2, 7, dtype=torch.int64)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    program = torch.onnx.export(
        student,
        (sample, sample.clone()),
        dynamo=True,
        opset_version=graph.OPSET,
        input_names=list(graph.INPUTS),
        dynamic_shapes=(axes, axes),
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def with_add(student: Student) -> onnx.ModelProto:
    """Build the exported graph, but with its residuals as Add, which onnxruntime fuses."""
    model = graph.build(student)
    for node in model.graph.node:
        node.op_type = "Add" if node.op_type == "Sum" else node.op_type
    return model


def medians(runs: Mapping[str, Run], shape: tuple[int, int], rounds: int) -> dict[str, float]:
    """Time every run in turn, `rounds` times; return milliseconds."""
    ids = np.random.default_rng(0).integers(3, 60_000, shape)
    feeds = {"input_ids": ids, "attention_mask": np.ones(shape, dtype=np.int64)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run(feeds)
            times[name].append(1000 * (time.perf_counter() - start))
    return {name: float(np.median(taken[1:])) for name, taken in times.items()}


def _torch_run(student: Student) -> Run:
    def run(feeds: dict[str, np.ndarray]) -> object:
        with torch.inference_mode():
            return student(*map(torch.from_numpy, feeds.values()))

    return run


def _onnx_run(path: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


if __name__ == "__main__":
    main()
