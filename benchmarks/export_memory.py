"""What a graph costs in memory and time under each way to open it, every way in fresh processes.

    python benchmarks/export_memory.py GRAPH [GRAPH ...] [--rounds 3] [--only NAME ...]

Memory is over a bare process that has imported numpy, tokenizers and onnxruntime and has not opened anything, in MB:
after opening a graph (`loaded`) and serving 1 x 16 tokens (`resident`), the most that it was until then (`peak`), and
the parts of `resident` that belong to the process alone (`own`), to mapped graphs, and to mapped libraries; the most
that it was with 32 x 32 tokens (`busy`), and what was left of that (`after`). The first row opens a graph of one node:
what onnxruntime itself takes to run. Processes alternate between the ways, one thread each; memory is the median of the
rounds, times are minima: seconds to open, milliseconds at 1 x 16, 1 x 128 and 32 x 32 tokens.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SHAPES = {(1, 16): 30, (1, 128): 8, (32, 32): 3}
"""(batch, tokens) and how many calls of each."""
OUTPUT = "sentence_embedding"
SERVE = "--serve"
"""The first argument of a process that opens one graph; it must import nothing more than it needs."""
SHRINK = {"memory.enable_memory_arena_shrinkage": "cpu:0"}


@dataclass(frozen=True)
class Way:
    """One way to open a graph."""

    name: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of SessionOptions."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Configuration entries of SessionOptions."""
    run_entries: Mapping[str, str] = field(default_factory=dict)
    """Configuration entries of RunOptions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    from_bytes: bool = False
    """Read the file into a bytes object and open that."""


NO_ARENA = {"enable_cpu_mem_arena": False}
NO_PREPACKING = {"session.disable_prepacking": "1"}
NO_OPTIMISATION = {"graph_optimization_level": "ORT_DISABLE_ALL"}
NO_SPINNING = {"session.intra_op.allow_spinning": "0"}
SPINNING_STOPS = {"session.force_spinning_stop": "1"}
WAYS = (
    Way("default"),
    Way("as xcompress opens it", {"enable_mem_pattern": False}, SPINNING_STOPS),
    Way("no arena", NO_ARENA),
    Way("no pattern", {"enable_mem_pattern": False}),
    Way("no arena, no pattern", {**NO_ARENA, "enable_mem_pattern": False}),
    Way("no prepacking", entries=NO_PREPACKING),
    Way("no arena, no prepacking", NO_ARENA, NO_PREPACKING),
    Way("arena shrinks", run_entries=SHRINK),
    Way("no spinning", entries=NO_SPINNING),
    Way("one malloc arena", environment={"MALLOC_ARENA_MAX": "1"}),
    Way("malloc trims", environment={"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}),
    Way("no arena, malloc trims", NO_ARENA, environment={"MALLOC_MMAP_THRESHOLD_": "65536"}),
    Way("no optimisation", NO_OPTIMISATION),
    Way("initializers outside the arena", entries={"session.use_device_allocator_for_initializers": "1"}),
    Way("no optimisation, no prepacking", NO_OPTIMISATION, NO_PREPACKING),
    Way("bytes", from_bytes=True),
)
ONE_NODE = Way("graph of one node")


def mapped(file: str = "/proc/self/smaps") -> dict[str, int]:
    """Add up the resident pages of this process, in bytes, by what they belong to."""
    sums = {"own": 0, "graphs": 0, "libraries": 0}
    name = ""
    for line in Path(file).read_text(encoding="utf-8", errors="replace").splitlines():
        key, *rest = line.split()
        if "-" in key and not key.endswith(":"):
            name = rest[4] if len(rest) > 4 else ""
        elif key == "Rss:":
            resident = int(rest[0]) * 1024
        elif key == "Anonymous:":
            own = int(rest[0]) * 1024
            sums["own"] += own
            sums["libraries" if ".so" in name or "/bin/" in name else "graphs"] += resident - own
    return sums


def status(field_name: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        key, _, value = line.partition(":")
        if key == field_name:
            return int(value.split()[0]) * 1024
    return 0


def serve(graph: str, way: Mapping[str, Any]) -> dict[str, float]:
    """Open a graph in this process and return what it took."""
    import numpy as np
    import onnxruntime
    import tokenizers  # noqa: F401 - the imports are those of xcompress.bundle.encoder

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest mark starts again from here
    bare, bare_parts = status("VmRSS"), mapped()
    start = time.perf_counter()
    session = open_graph(onnxruntime, graph, way)
    figures = {"open": time.perf_counter() - start, "loaded": float(status("VmRSS") - bare)}
    run_options = onnxruntime.RunOptions()
    for name, value in way["run_entries"].items():
        run_options.add_run_config_entry(name, value)

    def call(batch: int, length: int) -> float:
        ids = 3 + 7 * np.arange(batch * length).reshape(batch, length) % 997
        began = time.perf_counter()
        session.run([OUTPUT], {"input_ids": ids, "attention_mask": np.ones_like(ids)}, run_options)
        return 1000 * (time.perf_counter() - began)

    for _ in range(3):
        call(1, 16)
    parts = mapped()
    figures |= {"resident": float(status("VmRSS") - bare), "peak": float(status("VmHWM") - bare)}
    figures |= {name: float(parts[name] - bare_parts[name]) for name in parts}
    figures |= {f"{b}x{n}": min(call(b, n) for _ in range(calls)) for (b, n), calls in SHAPES.items()}
    return figures | {"busy": float(status("VmHWM") - bare), "after": float(status("VmRSS") - bare)}


def open_graph(onnxruntime: Any, graph: str, way: Mapping[str, Any]) -> Any:  # noqa: ANN401 - imported in the process
    """Open a session on one thread, as the way says."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    for name, value in way["attributes"].items():
        level = getattr(onnxruntime.GraphOptimizationLevel, str(value), None)
        setattr(options, name, value if level is None else level)
    for name, value in way["entries"].items():
        options.add_session_config_entry(name, value)
    content: str | bytes = Path(graph).read_bytes() if way["from_bytes"] else graph
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def measure(graph: Path, way: Way) -> dict[str, float]:
    """Serve in a fresh process."""
    request = json.dumps({"graph": str(graph), "way": asdict(way)})
    command = [sys.executable, str(Path(__file__)), SERVE, request]
    done = subprocess.run(command, env=os.environ | way.environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{graph}, {way.name}: exit code {done.returncode} {done.stderr.strip()[-300:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def one_node(folder: Path) -> Path:
    """Write the smallest graph with the names of a bundle's."""
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
    """Yield a row per way: bytes as MB, resident also as a multiple of the file."""
    for name, taken in results.items():

        def middle(key: str, taken: Sequence[Mapping[str, float]] = taken) -> float:
            return statistics.median(one[key] for one in taken) / 1e6

        memory = [
            f"{middle(key):.1f}"
            for key in ("loaded", "resident", "own", "graphs", "libraries", "peak", "busy", "after")
        ]
        times = [f"{min(one[key] for one in taken):.2f}" for key in ("open", "1x16", "1x128", "32x32")]
        ratios = (f"{middle('resident') / size:.2f}", f"{middle('peak') / middle('resident'):.2f}")
        yield (name, *memory, *ratios, *times)


def report(graph: Path, smallest: Path, ways: Sequence[Way], rounds: int) -> str:
    """Measure the ways in turn, `rounds` times; return a table."""
    results: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        results.setdefault(ONE_NODE.name, []).append(measure(smallest, ONE_NODE))
        for way in ways:
            results.setdefault(way.name, []).append(measure(graph, way))
    size = sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*")) / 1e6
    head = ["way", "loaded", "resident", "own", "graphs", "libraries", "peak", "busy", "after"]
    head += ["resident / file", "peak / resident", "open s", "1x16 ms", "1x128 ms", "32x32 ms"]
    return f"\n{graph.name}, {size:.1f} MB\n\n{markdown_table(head, rows(results, size))}"


def main() -> None:
    """Measure every way to open every graph and print a table per graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", type=Path, nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="names of ways")
    given = parser.parse_args()
    ways = [way for way in WAYS if not given.only or way.name in given.only]
    with tempfile.TemporaryDirectory() as folder:
        smallest = one_node(Path(folder))
        for graph in given.graphs:
            emit(report(graph, smallest, ways, given.rounds))


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        sys.stdout.write(json.dumps(serve(**json.loads(sys.argv[2]))))
    else:
        from xcompress.console import emit, markdown_table

        main()
