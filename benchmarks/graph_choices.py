"""Measure what each choice in the exported graph gains on this machine. Run it again after each onnxruntime update.

    python benchmarks/graph_choices.py [--seconds 10]

Times graphs of a random student (V 60,000, B 128, H 384, M 3, R 4) in turn on one thread. The choices are the scaling
of activations, attention in one operator or in many, the addition before LayerNormalization as Sum (which onnxruntime
leaves alone) or as Add (which it fuses), the unit unrolled or in a loop, and the bottleneck kept or folded. Prints the
median milliseconds per call, and the number of nodes after onnxruntime has optimized the graph.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx
import onnxruntime
import torch

from xcompress.bench.latency import SHAPES, Shape, Turn, take_turns
from xcompress.bundle.engines import open_on_cpu
from xcompress.console import emit, markdown_table, run_script
from xcompress.export.graph import GraphOptions, build
from xcompress.export.matmul import Level, MatMulWriter, Range, matmuls
from xcompress.modeling.student import Student, StudentConfig

EXPORTED = "int8 as exported"
VOCABULARY = 60_000
LEAST_ROUNDS = 8


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each shape")
    seconds = parser.parse_args().seconds
    torch.manual_seed(0)
    config = StudentConfig(vocab_size=VOCABULARY, unit_layers=3, recurrences=4, bottleneck=128, head_size=384)
    student = Student(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        files = dict(write(student, Path(folder)))
        nodes = {name: _count_nodes(file) for name, file in files.items()}
        sessions = {name: _session(file) for name, file in files.items()}
        columns = [time_in_turns(sessions, shape, VOCABULARY, seconds) for shape in SHAPES]
    rows = [[name, str(nodes[name]), *(f"{column[name]:.2f}" for column in columns)] for name in files]
    emit(markdown_table(["ms, 1 thread", "nodes", *map(str, SHAPES)], rows))


def write(student: Student, folder: Path) -> Iterator[tuple[str, Path]]:
    """Write a graph for each choice; yield its name and file."""
    names = list(matmuls(student))
    attentions: dict[str, Level] = {name: "token" for name in names if name.endswith(".attention")}
    exported = GraphOptions(table="int8", matmul_writer=MatMulWriter(None, ranges=_ranges(student)))
    choices = {
        EXPORTED: exported,
        "int8, every scale static": replace(exported, matmul_writer=replace(exported.matmul_writer, default="static")),
        "int8, every scale by token": replace(exported, matmul_writer=replace(exported.matmul_writer, default="token")),
        "int8, attention in many operators": exported.with_levels(attentions),
        "int8, loop": replace(exported, recurrence="loop"),
        "int8, folded": replace(exported, fold=True),
        "int4 embeddings": replace(exported, table="int4"),
        "float32": GraphOptions(),
        "float32, loop": GraphOptions("loop"),
        "float32, folded": GraphOptions(fold=True),
    }
    for name, options in choices.items():
        yield name, _save(build(student, options), folder, name)
    yield "int8, Add for Sum", _save(_with_add(build(student, exported)), folder, "add8")
    yield "float32, Add for Sum", _save(_with_add(build(student, GraphOptions())), folder, "add32")


def _ranges(student: Student) -> dict[str, Range]:
    """Make up ranges: they do not change the time."""
    widths = {name: matmul.weight.shape[0] for name, matmul in matmuls(student).items()}
    return {name: Range(np.full(n, -4, np.float32), np.full(n, 4, np.float32)) for name, n in widths.items()}


def _with_add(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace every Sum of two inputs by Add; longer ones stay."""
    for node in model.graph.node:
        if node.op_type == "Sum" and len(node.input) == 2:
            node.op_type = "Add"
    return model


def _save(model: onnx.ModelProto, folder: Path, name: str) -> Path:
    file = folder / f"{name.replace(' ', '_').replace(',', '')}.onnx"
    onnx.save(model, file)
    return file


def _session(file: Path, optimized: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if optimized:
        options.optimized_model_filepath = str(optimized)
    return open_on_cpu(file, options)


def _count_nodes(file: Path) -> int:
    """Count the nodes after onnxruntime has optimized the graph, those in loops included."""
    optimized = file.with_suffix(".optimized.onnx")
    _session(file, optimized)
    graph = onnx.load(optimized).graph
    return len(graph.node) + sum(
        len(attribute.g.node) for node in graph.node for attribute in node.attribute if attribute.HasField("g")
    )


def time_in_turns(
    sessions: Mapping[str, onnxruntime.InferenceSession], shape: Shape, vocabulary: int, seconds: float
) -> dict[str, float]:
    """Return the median milliseconds of a call of each graph, on random token ids below `vocabulary`."""
    ids = np.random.default_rng(0).integers(3, vocabulary, (shape.batch, shape.tokens))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def turn_of(session: onnxruntime.InferenceSession) -> Turn:
        def time_calls(calls: int, warm: bool) -> list[float]:
            seconds = []
            for _ in range(calls + warm):
                start = perf_counter()
                session.run(["sentence_embedding"], feeds)
                seconds.append(perf_counter() - start)
            return seconds[warm:]

        return time_calls

    turns = take_turns({name: turn_of(session) for name, session in sessions.items()}, seconds, LEAST_ROUNDS)
    return {name: 1000 * float(np.median(np.concatenate(rounds))) for name, rounds in turns.items()}


if __name__ == "__main__":
    run_script(main)
