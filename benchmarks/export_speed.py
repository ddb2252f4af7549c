"""How fast the exported graphs are: against PyTorch, against Optimum's own export, and against the machine's peak.

    python benchmarks/export_speed.py RUN [--seconds 20] > benchmarks/export_speed.md

RUN is a run folder of `xcompress distill`, or a student's folder. All models have the same weights and take turns in
one process: the student in PyTorch (eager, float32), our graphs, and, where Optimum is installed, the graph that
`optimum-cli export onnx` makes of `xcompress export --format hf`, in float32 and after `optimum-cli onnxruntime
quantize --avx512_vnni`. Batches are without padding. Times are medians over all calls, in milliseconds.

The floor is what the products alone would take at the machine's int8 peak, which one large MatMulInteger shows. The
profile says where the rest goes.
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
from xcompress.bench.machine import all_threads, describe
from xcompress.bench.peak import SIDE, peak_graph
from xcompress.bench.results import Latency
from xcompress.bench.workers.onnx_model import prepared
from xcompress.console import emit, markdown_table
from xcompress.export.calibrate import calibrate
from xcompress.export.graph import form_of, write_graph
from xcompress.export.hf import export_hf
from xcompress.export.matmul import matmuls
from xcompress.export.source import find_source
from xcompress.export.text import calibration_text
from xcompress.modeling.student import Student

PLACES = ((Shape(1, 16), 1), (Shape(1, 128), None), (Shape(32, 32), None))
"""Shapes with their threads; None takes all."""
TORCH = "PyTorch, float32, eager"
INT8 = "int8"
OPTIMUM = "Optimum, avx512_vnni"
PROFILED = 40
"""Calls of a profile."""
Feeds = Mapping[str, np.ndarray]
Model = Callable[[Feeds], object]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each shape")
    asked = parser.parse_args()
    source = find_source(asked.run)
    student, _ = source.open()
    with tempfile.TemporaryDirectory() as folder:
        graphs = dict(write_graphs(asked.run, Path(folder)))
        taken = [measure(student, graphs, shape, threads, asked.seconds) for shape, threads in PLACES]
        peaks = {threads: (peak(threads, "int8"), peak(threads, "fp32")) for threads in (1, None)}
        profiles = [profile(graphs[INT8], shape, threads) for shape, threads in PLACES]
        sizes = {name: file.stat().st_size for name, file in graphs.items()}
    emit(page(student, taken, peaks, profiles, sizes))


def write_graphs(run: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the graphs that are compared; yield names and files."""
    source = find_source(run)
    student, tokenizer = source.open()
    ranges = calibrate(student, tokenizer, calibration_text(source, source.languages), moments=True)
    forms = {
        "float32": form_of("fp32", "unroll", False, ranges),
        INT8: form_of("int8", "unroll", False, ranges),
        "int8, loop": form_of("int8", "loop", False, ranges),
        "int4 table": form_of("int8", "unroll", False, ranges, "int4"),
        "int4": form_of("int4", "unroll", False, ranges),
    }
    for name, form in forms.items():
        file = folder / name.replace(", ", "_").replace(" ", "_") / "model.onnx"
        write_graph(student, form, file, external=False)
        yield name, file
    yield from optimum_graphs(run, folder)


def optimum_graphs(run: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Have Optimum export the same weights."""
    program = Path(sys.executable).with_name("optimum-cli")
    if not program.is_file():
        sys.stderr.write("Optimum is not installed; its rows are left out\n")
        return
    checkpoint = export_hf(run, folder / "hf")
    plain, small = folder / "optimum", folder / "optimum_int8"
    task = ["--task", "feature-extraction", "--library", "transformers"]
    _run([str(program), "export", "onnx", "--model", str(checkpoint), *task, str(plain)])
    _run([str(program), "onnxruntime", "quantize", "--onnx_model", str(plain), "--avx512_vnni", "-o", str(small)])
    yield "Optimum, float32", plain / "model.onnx"
    yield OPTIMUM, small / "model_quantized.onnx"


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")


def measure(
    student: Student, graphs: Mapping[str, Path], shape: Shape, threads: int | None, seconds: float
) -> dict[str, Latency]:
    """Let PyTorch and the graphs take turns at one shape."""
    count = threads or all_threads()
    torch.set_num_threads(count)
    models = {TORCH: _torch(student)} | {name: _graph(file, count) for name, file in graphs.items()}
    feeds = _feeds(shape, student.config.vocab_size)
    turns = {name: _turn(model, feeds) for name, model in models.items()}
    rounds = take_turns(turns, Effort(seconds, 10), lambda name, error: sys.exit(f"{name}: {error}"))
    return {name: summarise(shape, count, taken, rounds[TORCH]) for name, taken in rounds.items()}


def _turn(model: Model, feeds: Feeds) -> Callable[[int, bool], list[float]]:
    def turn(calls: int, warm: bool) -> list[float]:
        if warm:
            model(feeds)
        return [_seconds(model, feeds) for _ in range(calls)]

    return turn


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
    """Count the multiply-adds of products with weights; those of the attention come to a few per cent more."""
    uses = {name: student.config.recurrences if name.startswith("unit.") else 1 for name in matmuls(student)}
    return shape.batch * shape.tokens * sum(site.weight.size * uses[name] for name, site in matmuls(student).items())


def peak(threads: int | None, kind: str) -> float:
    """Return multiply-adds a second of one large product, int8 or fp32, the best of many."""
    graph = peak_graph(kind)
    assert graph is not None
    run = prepared(graph, threads or all_threads())
    return SIDE**3 / min(_seconds(lambda _: run(), {}) for _ in range(50))


def profile(graph: Path, shape: Shape, threads: int | None) -> dict[str, float]:
    """Return milliseconds of a call by kind of operator, the median of each node added up."""
    session = _session(graph, threads or all_threads(), profiled=True)
    feeds = {name: value for name, value in _feeds(shape, 1000).items() if name != "token_type_ids"}
    for _ in range(PROFILED):
        session.run(["sentence_embedding"], feeds)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    nodes: dict[tuple[str, str], list[int]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            nodes.setdefault((event["args"]["op_name"], event["name"]), []).append(event["dur"])
    kinds: Counter[str] = Counter()
    for (kind, _), durations in nodes.items():
        kinds[kind] += int(np.median(durations))
    return {kind: total / 1000 for kind, total in kinds.most_common()}


def page(
    student: Student,
    taken: Sequence[Mapping[str, Latency]],
    peaks: Mapping[int | None, tuple[float, float]],
    profiles: Sequence[Mapping[str, float]],
    sizes: Mapping[str, int],
) -> str:
    """Put everything into a page of Markdown."""
    machine, threads = describe(), [places[TORCH].threads for places in taken]
    heads = [f"{shape}, {_plural(count, 'thread')}" for (shape, _), count in zip(PLACES, threads, strict=True)]
    times = [[name, *(_cell(places[name], places) for places in taken)] for name in taken[0]]
    files = [[name, f"{size / 1e6:.1f} MB"] for name, size in sizes.items()]
    return "\n\n".join(
        [
            "# Speed of the exported graphs",
            "    python benchmarks/export_speed.py RUN > benchmarks/export_speed.md",
            f"Written by this command on {machine.cpu} ({', '.join(machine.flags)}), {machine.threads} threads. "
            "Milliseconds, medians (spread: interquartile range over median), and how many times faster than PyTorch, "
            "compared round by round.",
            markdown_table(["", *heads], times),
            _against(taken, heads),
            markdown_table(["file", ""], files),
            "## The floor",
            _floor(student, taken, peaks, heads),
            "## Where the time of the int8 graph goes",
            "Milliseconds by kind of operator, one call; profiling itself slows small operators.",
            _profiles(profiles, heads),
        ]
    )


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cell(latency: Latency, places: Mapping[str, Latency]) -> str:
    faster = "" if latency is places[TORCH] else f", {latency.speedup:.1f}x"
    return f"{1000 * latency.p50:.2f} ({100 * latency.spread:.0f} %){faster}"


def _against(taken: Sequence[Mapping[str, Latency]], heads: Sequence[str]) -> str:
    if OPTIMUM not in taken[0]:
        return "Optimum was not installed."
    ratios = [places[OPTIMUM].p50 / places[INT8].p50 for places in taken]
    return "int8 against Optimum's: " + ", ".join(
        f"{ratio:.2f}x at {head}" for ratio, head in zip(ratios, heads, strict=True)
    )


def _floor(
    student: Student,
    taken: Sequence[Mapping[str, Latency]],
    peaks: Mapping[int | None, tuple[float, float]],
    heads: Sequence[str],
) -> str:
    rows = []
    for (shape, threads), places, head in zip(PLACES, taken, heads, strict=True):
        int8, float32 = peaks[threads]
        work = multiply_adds(student, shape)
        floor, measured = work / int8, places[INT8].p50
        rows.append(
            [
                head,
                f"{work / 1e6:,.0f} M",
                f"{int8 / 1e9:.0f} G/s",
                f"{float32 / 1e9:.0f} G/s",
                f"{1000 * floor:.2f} ms",
                f"{measured / floor:.2f}x",
                f"{places[TORCH].p50 / floor:.1f}x",
            ]
        )
    columns = ["", "multiply-adds", "int8 peak", "float32 peak", "floor", "int8 / floor", "PyTorch / floor"]
    return markdown_table(columns, rows) + (
        "\n\nThe last column is what no int8 graph on this machine could pass, if it did nothing beside its products."
    )


def _profiles(profiles: Sequence[Mapping[str, float]], heads: Sequence[str]) -> str:
    kinds = list(dict.fromkeys(kind for found in profiles for kind in list(found)[:10]))
    rows = [[kind, *(f"{found.get(kind, 0):.2f}" for found in profiles)] for kind in kinds]
    return markdown_table(["", *heads], rows)


if __name__ == "__main__":
    main()
