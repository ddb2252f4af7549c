"""Measure the speed of exported graphs against PyTorch, Optimum's export and the machine's peak.

    python benchmarks/export_speed.py RUN [--seconds 20] > benchmarks/export_speed.md

RUN is a run folder of `xcompress distill`, or the folder of a student. All models have the same weights and take turns
in one process: the student in PyTorch (eager, float32), our graphs, and, if Optimum is installed, the graph that
`optimum-cli export onnx` makes from `xcompress export --format hf`, in float32 and after `optimum-cli onnxruntime
quantize --avx512_vnni`. Batches have no padding. Times are medians over all calls, in milliseconds.

The floor is the time of the matrix products alone at the machine's int8 peak, measured with one large MatMulInteger. A
profile of the int8 graph shows where the rest goes. Prints a page of Markdown; takes --seconds for each of three
shapes, and the exports.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import onnxruntime
import torch

from xcompress.bench.latency import Effort, Shape, summarise, take_turns
from xcompress.bench.machine import describe
from xcompress.bench.peak import SIDE, peak_graph
from xcompress.bench.results import Latency
from xcompress.bench.workers.onnx_model import prepared
from xcompress.console import emit, markdown_table
from xcompress.export.calibrate import calibrate
from xcompress.export.graph import options_for, write_graph
from xcompress.export.hf import export_hf
from xcompress.export.matmul import matmuls
from xcompress.export.source import find_source
from xcompress.export.text import calibration_text
from xcompress.files import megabytes
from xcompress.machine import available_threads
from xcompress.modeling.student import Student

SHAPES = ((Shape(1, 16), 1), (Shape(1, 128), None), (Shape(32, 32), None))
"""Shapes and numbers of threads; None takes all."""
TORCH = "PyTorch, float32, eager"
INT8 = "int8"
OPTIMUM = "Optimum, avx512_vnni"
PROFILED_CALLS = 40
Feeds = Mapping[str, np.ndarray]
Model = Callable[[Feeds], object]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each shape")
    options = parser.parse_args()
    source = find_source(options.run)
    student, _ = source.open()
    with tempfile.TemporaryDirectory() as folder:
        graphs = dict(write_graphs(options.run, Path(folder)))
        latencies = [measure(student, graphs, shape, threads, options.seconds) for shape, threads in SHAPES]
        peaks = {threads: (peak(threads, "int8"), peak(threads, "fp32")) for threads in (1, None)}
        profiles = [profile(graphs[INT8], shape, threads) for shape, threads in SHAPES]
        sizes = {name: file.stat().st_size for name, file in graphs.items()}
    emit(page(student, latencies, peaks, profiles, sizes))


def write_graphs(run: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Export the student to each graph that is compared; yield names and files."""
    source = find_source(run)
    student, tokenizer = source.open()
    ranges = calibrate(student, tokenizer, calibration_text(source, source.languages), moments=True)
    forms = {
        "float32": options_for("fp32", "unroll", False, ranges),
        INT8: options_for("int8", "unroll", False, ranges),
        "int8, standard operators": options_for("int8", "unroll", False, ranges, operators="standard"),
        "int8, loop": options_for("int8", "loop", False, ranges),
        "int4 table": options_for("int8", "unroll", False, ranges, "int4"),
        "int4": options_for("int4", "unroll", False, ranges),
    }
    for name, form in forms.items():
        file = folder / name.replace(", ", "_").replace(" ", "_") / "model.onnx"
        write_graph(student, form, file, external=False)
        yield name, file
    yield from optimum_graphs(run, folder)


def optimum_graphs(run: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Export the same weights with Optimum, in float32 and int8."""
    program = Path(sys.executable).with_name("optimum-cli")
    if not program.is_file():
        sys.stderr.write("Optimum is not installed, so its rows are left out\n")
        return
    checkpoint = export_hf(run, folder / "hf")
    float32, int8 = folder / "optimum", folder / "optimum_int8"
    task = ["--task", "feature-extraction", "--library", "transformers"]
    _run([str(program), "export", "onnx", "--model", str(checkpoint), *task, str(float32)])
    _run([str(program), "onnxruntime", "quantize", "--onnx_model", str(float32), "--avx512_vnni", "-o", str(int8)])
    yield "Optimum, float32", float32 / "model.onnx"
    yield OPTIMUM, int8 / "model_quantized.onnx"


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)}\n{result.stderr[-2000:]}")


def measure(
    student: Student, graphs: Mapping[str, Path], shape: Shape, threads: int | None, seconds: float
) -> dict[str, Latency]:
    """Time PyTorch and the graphs in turn at one shape."""
    count = threads or available_threads()
    torch.set_num_threads(count)
    models = {TORCH: _torch(student)} | {name: _graph(file, count) for name, file in graphs.items()}
    feeds = _feeds(shape, student.config.vocab_size)
    turns = {name: _timer(model, feeds) for name, model in models.items()}
    rounds = take_turns(turns, Effort(seconds, 10), lambda name, error: sys.exit(f"{name}: {error}"))
    return {name: summarise(shape, count, seconds_taken, rounds[TORCH]) for name, seconds_taken in rounds.items()}


def _timer(model: Model, feeds: Feeds) -> Callable[[int, bool], list[float]]:
    """Return a function that calls the model and returns the seconds of each call, after an untimed call if `warm`."""

    def time_calls(calls: int, warm: bool) -> list[float]:
        if warm:
            model(feeds)
        return [_seconds(model, feeds) for _ in range(calls)]

    return time_calls


def _seconds(model: Model, feeds: Feeds) -> float:
    start = perf_counter()
    model(feeds)
    return perf_counter() - start


def _feeds(shape: Shape, vocabulary: int) -> Feeds:
    ids = np.random.default_rng(0).integers(5, vocabulary, (shape.batch, shape.tokens))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _torch(student: Student) -> Model:
    def run(feeds: Feeds) -> object:
        with torch.inference_mode():
            return student(torch.from_numpy(feeds["input_ids"]), torch.from_numpy(feeds["attention_mask"]))

    return run


def _session(graph: Path | bytes, threads: int, *, profiled: bool = False) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_profiling = profiled
    options.add_session_config_entry("session.force_spinning_stop", "1")  # or they take each other's cores
    given = str(graph) if isinstance(graph, Path) else graph
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def _graph(file: Path, threads: int) -> Model:
    session = _session(file, threads)
    inputs = [value.name for value in session.get_inputs()]
    outputs = [value.name for value in session.get_outputs()]
    wanted = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
    return lambda feeds: session.run([wanted], {name: feeds[name] for name in inputs})


def multiply_adds(student: Student, shape: Shape) -> int:
    """Count the multiply-adds of products with weights. Attention adds a few per cent, which are not counted."""
    uses = {name: student.config.recurrences if name.startswith("unit.") else 1 for name in matmuls(student)}
    return shape.batch * shape.tokens * sum(site.weight.size * uses[name] for name, site in matmuls(student).items())


def peak(threads: int | None, kind: str) -> float:
    """Return the multiply-adds per second of one large product, int8 or fp32, the best of 50 calls."""
    graph = peak_graph(kind)
    assert graph is not None
    run = prepared(graph, threads or available_threads())
    return SIDE**3 / min(_seconds(lambda _: run(), {}) for _ in range(50))


def profile(graph: Path, shape: Shape, threads: int | None) -> dict[str, float]:
    """Return the milliseconds of a call by operator: the sum over its nodes of the median time."""
    session = _session(graph, threads or available_threads(), profiled=True)
    feeds = {name: value for name, value in _feeds(shape, 1000).items() if name != "token_type_ids"}
    for _ in range(PROFILED_CALLS):
        session.run(["sentence_embedding"], feeds)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    nodes: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes.setdefault((event["args"]["op_name"], event["name"]), []).append(event["dur"])
    totals: Counter[str] = Counter()
    for (operator, _), durations in nodes.items():
        totals[operator] += int(np.median(durations))
    return {operator: total / 1000 for operator, total in totals.most_common()}


def page(
    student: Student,
    latencies: Sequence[Mapping[str, Latency]],
    peaks: Mapping[int | None, tuple[float, float]],
    profiles: Sequence[Mapping[str, float]],
    sizes: Mapping[str, int],
) -> str:
    """Return the results as a page of Markdown."""
    machine, threads = describe(), [by_name[TORCH].threads for by_name in latencies]
    heads = [
        f"{shape}, {count} thread{'' if count == 1 else 's'}" for (shape, _), count in zip(SHAPES, threads, strict=True)
    ]
    times = [[name, *(_cell(name, by_name) for by_name in latencies)] for name in latencies[0]]
    files = [[name, megabytes(size)] for name, size in sizes.items()]
    return "\n\n".join(
        [
            "# Speed of the exported graphs",
            "    python benchmarks/export_speed.py RUN > benchmarks/export_speed.md",
            f"This command wrote the page on {machine.cpu} ({', '.join(machine.flags)}), {machine.threads} threads. "
            "Times are medians in milliseconds, with the interquartile range over the median in parentheses and the "
            "speedup over PyTorch, compared round by round.",
            markdown_table(["", *heads], times),
            _compare_with_optimum(latencies, heads),
            markdown_table(["file", ""], files),
            "## The floor",
            _floor(student, latencies, peaks, heads),
            "## Where the time of the int8 graph goes",
            "Milliseconds of one call by operator. Profiling itself slows small operators down.",
            _profile_table(profiles, heads),
        ]
    )


def _cell(name: str, by_name: Mapping[str, Latency]) -> str:
    latency = by_name[name]
    speedup = "" if name == TORCH else f", {latency.speedup:.1f}x"
    return f"{1000 * latency.p50:.2f} ({100 * latency.spread:.0f} %){speedup}"


def _compare_with_optimum(latencies: Sequence[Mapping[str, Latency]], heads: Sequence[str]) -> str:
    if OPTIMUM not in latencies[0]:
        return "Optimum was not installed."
    ratios = [by_name[OPTIMUM].p50 / by_name[INT8].p50 for by_name in latencies]
    return "Speedup of int8 over Optimum's int8: " + ", ".join(
        f"{ratio:.2f}x at {head}" for ratio, head in zip(ratios, heads, strict=True)
    )


def _floor(
    student: Student,
    latencies: Sequence[Mapping[str, Latency]],
    peaks: Mapping[int | None, tuple[float, float]],
    heads: Sequence[str],
) -> str:
    rows = []
    for (shape, threads), by_name, head in zip(SHAPES, latencies, heads, strict=True):
        int8, float32 = peaks[threads]
        work = multiply_adds(student, shape)
        floor, measured = work / int8, by_name[INT8].p50
        rows.append(
            [
                head,
                f"{work / 1e6:,.0f} M",
                f"{int8 / 1e9:.0f} G/s",
                f"{float32 / 1e9:.0f} G/s",
                f"{1000 * floor:.2f} ms",
                f"{measured / floor:.2f}x",
                f"{by_name[TORCH].p50 / floor:.1f}x",
            ]
        )
    columns = ["", "multiply-adds", "int8 peak", "float32 peak", "floor", "int8 / floor", "PyTorch / floor"]
    return markdown_table(columns, rows) + (
        "\n\nThe last column bounds the speedup of an int8 graph over PyTorch on this machine: it counts only products."
    )


def _profile_table(profiles: Sequence[Mapping[str, float]], heads: Sequence[str]) -> str:
    operators = list(dict.fromkeys(operator for times in profiles for operator in list(times)[:10]))
    rows = [[operator, *(f"{times.get(operator, 0):.2f}" for times in profiles)] for operator in operators]
    return markdown_table(["", *heads], rows)


if __name__ == "__main__":
    main()
