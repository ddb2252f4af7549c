"""Measure memory and time of an ONNX graph under different session options, each in fresh processes.

    python benchmarks/export_memory.py GRAPH [GRAPH ...] [--rounds 3] [--only NAME ...]

Memory is in MB over a process that has imported numpy, tokenizers and onnxruntime and has opened nothing. The columns:

- `loaded`: after opening the graph
- `resident`: after serving 1 x 16 tokens; of this, `own` belongs to the process, `graphs` and `libraries` are mapped
- `peak`: the maximum until then
- `busy`: the maximum with 32 x 32 tokens, and `after`: what remains of it
- seconds to open, and milliseconds at 1 x 16, 1 x 128 and 32 x 32 tokens

The first row opens a graph of one node and shows what onnxruntime itself takes. Settings take turns, with one thread.
Memory is the median of the rounds, times are minima. Prints a table per graph.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from xcompress.bench import memory

SHAPES = {(1, 16): 30, (1, 128): 8, (32, 32): 3}
"""(batch, tokens) and the number of timed calls."""
MEMORY = ("loaded", "resident", "own", "graphs", "libraries", "peak", "busy", "after")
"""Figures in bytes."""
OUTPUT = "sentence_embedding"
SHRINK = {"memory.enable_memory_arena_shrinkage": "cpu:0"}


@dataclass(frozen=True)
class Setting:
    """Options under which a graph is opened and run."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of SessionOptions."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Configuration entries of SessionOptions."""
    run_entries: Mapping[str, str] = field(default_factory=dict)
    """Configuration entries of RunOptions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    from_bytes: bool = False
    """Open the graph from a bytes object instead of a path."""


NO_ARENA = {"enable_cpu_mem_arena": False}
NO_PREPACKING = {"session.disable_prepacking": "1"}
NO_OPTIMISATION = {"graph_optimization_level": "ORT_DISABLE_ALL"}
NO_SPINNING = {"session.intra_op.allow_spinning": "0"}
SPINNING_STOPS = {"session.force_spinning_stop": "1"}
SETTINGS = (
    Setting("default"),
    Setting("as xcompress opens it", {"enable_mem_pattern": False}, SPINNING_STOPS),
    Setting("no arena", NO_ARENA),
    Setting("no pattern", {"enable_mem_pattern": False}),
    Setting("no arena, no pattern", {**NO_ARENA, "enable_mem_pattern": False}),
    Setting("no prepacking", entries=NO_PREPACKING),
    Setting("no arena, no prepacking", NO_ARENA, NO_PREPACKING),
    Setting("arena shrinks", run_entries=SHRINK),
    Setting("no spinning", entries=NO_SPINNING),
    Setting("one malloc arena", environment={"MALLOC_ARENA_MAX": "1"}),
    Setting("malloc trims", environment={"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}),
    Setting("no arena, malloc trims", NO_ARENA, environment={"MALLOC_MMAP_THRESHOLD_": "65536"}),
    Setting("no optimisation", NO_OPTIMISATION),
    Setting("initializers outside the arena", entries={"session.use_device_allocator_for_initializers": "1"}),
    Setting("no optimisation, no prepacking", NO_OPTIMISATION, NO_PREPACKING),
    Setting("bytes", from_bytes=True),
)
ONE_NODE = Setting("graph of one node")


def mapped() -> dict[str, int]:
    """Add up the resident bytes of this process by what the pages belong to."""
    import psutil

    sums = {"own": 0, "graphs": 0, "libraries": 0}
    for entry in psutil.Process().memory_maps():
        sums["own"] += entry.anonymous
        is_library = ".so" in entry.path or "/bin/" in entry.path
        sums["libraries" if is_library else "graphs"] += entry.rss - entry.anonymous
    return sums


# The next two are called in fresh processes, which must import nothing that they do not need.


def open_once(graph: str) -> tuple[float, float]:
    """Open a graph as onnxruntime does by default; return the seconds, and the growth of peak memory in bytes."""
    import onnxruntime

    before, start = memory.peak(), time.perf_counter()
    onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return time.perf_counter() - start, memory.peak() - before


def serve(graph: str, setting: Mapping[str, Any]) -> dict[str, float]:
    """Open and run a graph; return the figures."""
    import numpy as np
    import onnxruntime
    import tokenizers  # noqa: F401 - the imports are those of xcompress.bundle.encoder

    bare_parts = mapped()  # first, as it imports psutil
    memory.reset_peak()
    bare = memory.resident()
    start = time.perf_counter()
    session = open_graph(onnxruntime, graph, setting)
    figures = {"open": time.perf_counter() - start, "loaded": float(memory.resident() - bare)}
    run_options = onnxruntime.RunOptions()
    for name, value in setting["run_entries"].items():
        run_options.add_run_config_entry(name, value)

    def call(batch: int, length: int) -> float:
        ids = 3 + 7 * np.arange(batch * length).reshape(batch, length) % 997
        began = time.perf_counter()
        session.run([OUTPUT], {"input_ids": ids, "attention_mask": np.ones_like(ids)}, run_options)
        return 1000 * (time.perf_counter() - began)

    for _ in range(3):
        call(1, 16)
    parts = mapped()
    figures |= {"resident": float(memory.resident() - bare), "peak": float(memory.peak() - bare)}
    figures |= {name: float(parts[name] - bare_parts[name]) for name in parts}
    figures |= {f"{b}x{n}": min(call(b, n) for _ in range(calls)) for (b, n), calls in SHAPES.items()}
    return figures | {"busy": float(memory.peak() - bare), "after": float(memory.resident() - bare)}


def open_graph(onnxruntime: Any, graph: str, setting: Mapping[str, Any]) -> Any:  # noqa: ANN401 - imported in the process
    """Open a session with one thread under a setting."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    for name, value in setting["attributes"].items():
        level = getattr(onnxruntime.GraphOptimizationLevel, str(value), None)
        setattr(options, name, value if level is None else level)
    for name, value in setting["entries"].items():
        options.add_session_config_entry(name, value)
    content: str | bytes = Path(graph).read_bytes() if setting["from_bytes"] else graph
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def one_node(folder: Path) -> Path:
    """Write a graph of one node with the input and output names of a bundle."""
    from onnx import TensorProto, helper, save

    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("input_ids", "attention_mask")]
    output = helper.make_tensor_value_info(OUTPUT, TensorProto.INT64, None)
    node = helper.make_node("Add", ["input_ids", "attention_mask"], [OUTPUT])
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, [output]), opset_imports=[helper.make_opsetid("", 20)]
    )
    model.ir_version = 10
    save(model, folder / "one.onnx")
    return folder / "one.onnx"


def rows(results: Mapping[str, Sequence[Mapping[str, float]]], size: float) -> Iterator[tuple[str, ...]]:
    """Yield a row per setting: memory in MB, resident memory also as a multiple of the file."""
    for name, runs in results.items():
        megabytes = {key: statistics.median(run[key] for run in runs) / 1e6 for key in MEMORY}
        others = [megabytes["resident"] / size, megabytes["peak"] / megabytes["resident"]]
        others += [min(run[key] for run in runs) for key in ("open", "1x16", "1x128", "32x32")]
        yield (name, *(f"{value:.1f}" for value in megabytes.values()), *(f"{value:.2f}" for value in others))


def report(graph: Path, smallest: Path, settings: Sequence[Setting], rounds: int) -> str:
    """Measure the settings in turn, `rounds` times; return a table."""
    calls = {
        setting.name: partial(in_fresh_process, serve, file, asdict(setting), environment=setting.environment)
        for file, setting in [(smallest, ONE_NODE), *((graph, setting) for setting in settings)]
    }
    results = in_turns(calls, rounds)
    size = sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*")) / 1e6
    head = ["setting", *MEMORY, "resident / file", "peak / resident", "open s", "1x16 ms", "1x128 ms", "32x32 ms"]
    return f"\n{graph.name}, {size:.1f} MB\n\n{markdown_table(head, rows(results, size))}"


def main() -> None:
    """Print a table per graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, nargs="+")
    add_rounds(parser, 3)
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=f"of {'; '.join(names)}")
    options = parser.parse_args()
    if missing := [graph for graph in options.graphs if not graph.is_file()]:
        raise InputError(f"{missing[0]}: no such file; name the graph of a bundle, such as onnx/model.onnx")
    settings = [setting for setting in SETTINGS if not options.only or setting.name in options.only]
    with tempfile.TemporaryDirectory() as folder:
        smallest = one_node(Path(folder))
        for graph in options.graphs:
            emit(report(graph, smallest, settings, options.rounds))


if __name__ == "__main__":
    from measuring import add_rounds, in_fresh_process, in_turns

    from xcompress.console import emit, markdown_table, run_script
    from xcompress.errors import InputError

    run_script(main)
