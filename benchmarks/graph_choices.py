"""What each choice in the exported graph is worth on this machine: run it again after every onnxruntime update.

    python benchmarks/graph_choices.py [--seconds 10]

Compares a random student (V 60,000, B 128, H 384, M 3, R 4), graphs taking turns on one thread: how activations are
scaled, attention in one operator or in many, the addition in front of LayerNormalization as Sum (which onnxruntime
leaves alone) or as Add (which it fuses), the unit unrolled or in a loop, the bottleneck kept or folded.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
import onnxruntime
import torch

from xcompress import console
from xcompress.bench.latency import SHAPES, Effort, Shape, summarise, take_turns
from xcompress.bench.results import Latency
from xcompress.export.graph import GraphOptions, build
from xcompress.export.matmul import Level, Products, Range, matmuls
from xcompress.modeling.student import Student, StudentConfig

EXPORTED = "int8 as exported"
VOCABULARY = 60_000


def main() -> None:
    """Print milliseconds per call, medians, with the nodes left after onnxruntime has optimised the graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each shape")
    seconds = parser.parse_args().seconds
    torch.manual_seed(0)
    config = StudentConfig(vocab_size=VOCABULARY, unit_layers=3, recurrences=4, bottleneck=128, head_size=384)
    student = Student(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        files = dict(write(student, Path(folder)))
        nodes = {name: _nodes_left(file) for name, file in files.items()}
        columns = [_times(files, shape, seconds) for shape in SHAPES]
    rows = [[name, str(nodes[name]), *(f"{1000 * column[name].p50:.2f}" for column in columns)] for name in files]
    head = ["ms, 1 thread", "nodes", *map(str, SHAPES)]
    console.emit(console.markdown_table(head, rows))


def write(student: Student, folder: Path) -> Iterator[tuple[str, Path]]:
    """Write a graph for each choice; yield names and files."""
    names = list(matmuls(student))
    attentions: dict[str, Level] = {name: "token" for name in names if name.endswith(".attention")}
    exported = GraphOptions(table="int8", products=Products(None, ranges=_ranges(student)))
    choices = {
        EXPORTED: exported,
        "int8, every scale static": replace(exported, products=replace(exported.products, default="static")),
        "int8, every scale by token": replace(exported, products=replace(exported.products, default="token")),
        "int8, attention in many operators": replace(exported, products=replace(exported.products, levels=attentions)),
        "int8, loop": replace(exported, recurrence="loop"),
        "int8, folded": replace(exported, fold=True),
        "int4 table": replace(exported, table="int4"),
        "float32": GraphOptions(),
        "float32, loop": GraphOptions("loop"),
        "float32, folded": GraphOptions(fold=True),
    }
    for name, form in choices.items():
        yield name, _saved(build(student, form), folder, name)
    yield "int8, Add for Sum", _saved(_with_add(build(student, exported)), folder, "add8")
    yield "float32, Add for Sum", _saved(_with_add(build(student, GraphOptions())), folder, "add32")


def _ranges(student: Student) -> dict[str, Range]:
    """Make ranges up: they do not change the time."""
    widths = {name: site.weight.shape[0] for name, site in matmuls(student).items()}
    return {name: Range(np.full(n, -4, np.float32), np.full(n, 4, np.float32)) for name, n in widths.items()}


def _with_add(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write every Sum of two as Add; longer ones stay."""
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    return model


def _saved(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    file = folder / f"{name.replace(' ', '_').replace(',', '')}.onnx"
    onnx.save(model, file)
    return file


def _session(file: Path, optimised: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if optimised:
        options.optimized_model_filepath = str(optimised)
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def _nodes_left(file: Path) -> int:
    optimised = file.with_suffix(".optimised.onnx")
    _session(file, optimised)
    graph = onnx.load(optimised).graph
    return len(graph.node) + sum(
        len(attribute.g.node) for node in graph.node for attribute in node.attribute if attribute.HasField("g")
    )


def _times(files: dict[str, Path], shape: Shape, seconds: float) -> dict[str, Latency]:
    ids = np.random.default_rng(0).integers(3, VOCABULARY, (shape.batch, shape.tokens))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    turns = {name: _Turn(_session(file), feeds) for name, file in files.items()}
    rounds = take_turns(turns, Effort(seconds, 8), lambda name, error: sys.exit(f"{name}: {error}"))
    return {name: summarise(shape, 1, taken, None) for name, taken in rounds.items()}


class _Turn:
    """Times calls of one graph."""

    def __init__(self, session: onnxruntime.InferenceSession, feeds: dict[str, np.ndarray]) -> None:
        self.session, self.feeds = session, feeds

    def __call__(self, calls: int, warm: bool) -> list[float]:
        """Return the seconds of some calls, after an untimed one if asked."""
        if warm:
            self._seconds()
        return [self._seconds() for _ in range(calls)]

    def _seconds(self) -> float:
        start = perf_counter()
        self.session.run(["sentence_embedding"], self.feeds)
        return perf_counter() - start


if __name__ == "__main__":
    main()
