"""Measure the speed of exported graphs in onnxruntime, OpenVINO and LiteRT, beside PyTorch, Optimum and NNCF.

    python benchmarks/export_speed.py MODEL ... [--rounds 5] [--seconds 0.5] > benchmarks/export_speed.md

MODEL is a run folder of `xcompress distill`, or any encoder that `xcompress export` reads; `label=MODEL` names it in
the page. `small` and `tiny` are read with `xcompress dequantize`.

All graphs of a model have the same weights. Each figure comes from a process of its own, as the thread pools of two
engines in one process disturb each other; the processes take turns, round after round. Times are the medians of the
rounds' medians. Batches have no padding. What is compared, if its package is installed: our graphs in onnxruntime and
OpenVINO (openvino), our file for LiteRT, which takes one text a call (litert-torch), the float32 graph quantized by
NNCF with text to calibrate (nncf), and Optimum's export after `optimum-cli onnxruntime quantize --avx512_vnni`
(optimum[onnxruntime]).

The peak is one large int8 product (MatMulInteger) in onnxruntime. Prints a page of Markdown; four models take about
half an hour.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime
from engine_calls import open_session, time_calls
from measuring import add_rounds, in_fresh_process, in_turns, median_ratio
from peers import quantize_with_optimum

from xcompress.bench.latency import Shape
from xcompress.bench.machine import describe
from xcompress.bench.peak import measure_peaks
from xcompress.bench.report.format import threads_text
from xcompress.bench.results import NOISY
from xcompress.bench.subjects import LABELLED
from xcompress.bench.workers.client import Worker
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.released import released_names
from xcompress.console import emit, markdown_table, run_script, say
from xcompress.export.calibrate import calibrate
from xcompress.export.dequantize import dequantize
from xcompress.export.graph import options_for, write_graph
from xcompress.export.litert import write_litert
from xcompress.export.matmul import matmuls
from xcompress.export.source import Source, find_source
from xcompress.export.text import calibration_text, verification_text
from xcompress.export.verify import Reference, encode_with, make_reference
from xcompress.files import megabytes
from xcompress.machine import installed_versions
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, token_ids
from xcompress.packages import is_installed

CALLS = ((Shape(1, 16), 1), (Shape(1, 128), 1), (Shape(32, 32), 1), (Shape(1, 128), 2), (Shape(32, 32), 2))
"""Shapes and numbers of threads."""
PROFILED = ((Shape(1, 16), 1), (Shape(32, 32), 1))
PROFILED_CALLS = 40
NNCF_SENTENCES = 336
"""Sentences to calibrate NNCF on; ours is calibrated on the same."""
COMPARED = 512
"""Sentences whose vectors are compared with PyTorch's."""
PACKAGES = ("onnxruntime", "openvino", "nncf", "ai-edge-litert", "litert-torch", "optimum", "torch")
"""Packages whose versions stand in the page."""
INT8, STANDARD, LITERT = "int8, onnxruntime", "int8 standard, OpenVINO", "int8, LiteRT"
NNCF = "int8 by NNCF, OpenVINO"


@dataclass(frozen=True)
class Form:
    """One graph in one engine."""

    engine: str
    """As engine_calls.py names it."""
    file: str
    is_int8: bool = True


@dataclass(frozen=True)
class Model:
    """A model in all forms, and what was measured."""

    name: str
    student: Student
    forms: dict[str, Form]
    cosines: dict[str, float]
    """Mean cosine to PyTorch by form."""
    profiles: list[dict[str, float]]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    add_rounds(parser, 5)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each figure and round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        models = [prepare(named, Path(place) / str(number)) for number, named in enumerate(options.models)]
        peaks = measure_peaks(Worker(), (1, 2)).per_second
        times = measure(models, options.rounds, options.seconds)
        command = f"python benchmarks/export_speed.py {shlex.join(sys.argv[1:])} > benchmarks/export_speed.md"
        emit(page(command, models, times, peaks))


def prepare(named: str, folder: Path) -> Model:
    """Export a model to every form, and compare the vectors of each with PyTorch's."""
    folder.mkdir(parents=True)
    labelled = LABELLED.fullmatch(named)
    label, reference = labelled.groups() if labelled else (Path(named).name, named)
    if reference in released_names():
        reference = str(dequantize(reference, folder / "student"))
    source = find_source(reference)
    student, tokenizer = source.open()
    texts = calibration_text(source, source.languages)[:NNCF_SENTENCES]
    say(f"{label}: exporting")
    forms = dict(write_forms(source, folder, texts))
    text = verification_text(source, source.languages, ())
    few = {
        language: sentences[:: max(1, len(sentences) * len(text) // COMPARED)] for language, sentences in text.items()
    }
    compared = compare(forms, make_reference(student, tokenizer, few))
    graph, vocabulary = Path(forms[INT8].file), student.config.vocab_size
    profiles = [profile(graph, vocabulary, shape, threads) for shape, threads in PROFILED]
    return Model(label, student, forms, compared, profiles)


def write_forms(source: Source, folder: Path, texts: Sequence[str]) -> Iterator[tuple[str, Form]]:
    """Write every form of a model; yield names and forms."""
    student, tokenizer = source.open()
    ranges = calibrate(student, tokenizer, texts, moments=True)
    graphs = {
        "float32": options_for("fp32", "unroll", False, ranges),
        "int8": options_for("int8", "unroll", False, ranges),
        "standard": options_for("int8", "unroll", False, ranges, operators="standard"),
        "int4": options_for("int4", "unroll", False, ranges),
    }
    for name, form in graphs.items():
        write_graph(student, form, folder / name / "model.onnx", external=False)
    files = {name: str(folder / name / "model.onnx") for name in graphs}
    yield "float32, PyTorch", Form("pytorch", str(source.student), is_int8=False)
    yield "float32, onnxruntime", Form("onnxruntime", files["float32"], is_int8=False)
    yield INT8, Form("onnxruntime", files["int8"])
    yield "int4, onnxruntime", Form("onnxruntime", files["int4"])
    yield "int8 standard, onnxruntime", Form("onnxruntime", files["standard"])
    if is_installed("openvino"):
        yield STANDARD, Form("openvino", files["standard"])
        yield "float32, OpenVINO", Form("openvino-float32", files["float32"], is_int8=False)
        yield "bfloat16 by OpenVINO's choice", Form("openvino", files["float32"], is_int8=False)
    if is_installed("litert_torch"):
        write_litert(student, folder / "model.tflite", quantize=True, fold=False)
        yield LITERT, Form("litert", str(folder / "model.tflite"))
    if is_installed("nncf"):
        rows = [ids for ids in token_ids(tokenizer, texts, student.config) if ids]
        yield NNCF, Form("openvino", str(quantize_with_nncf(files["float32"], rows, folder / "nncf.xml")))
    if Path(sys.executable).with_name("optimum-cli").is_file():
        graph = quantize_with_optimum(str(source.student), folder) / "model_quantized.onnx"
        yield "int8 by Optimum, onnxruntime", Form("onnxruntime", str(graph))


def quantize_with_nncf(graph: str, rows: Sequence[Sequence[int]], file: Path) -> Path:
    """Quantize the float32 graph as NNCF's documentation says for transformers, calibrated on rows of token ids."""
    import nncf
    import openvino

    feeds = [{"input_ids": np.array([row]), "attention_mask": np.ones((1, len(row)), dtype=np.int64)} for row in rows]
    model = openvino.Core().read_model(graph)
    transformer = nncf.ModelType.TRANSFORMER
    with redirect_stdout(sys.stderr):  # it prints its progress
        quantized = nncf.quantize(model, nncf.Dataset(feeds), model_type=transformer, subset_size=len(feeds))
    openvino.save_model(quantized, str(file))
    return file


def compare(forms: Mapping[str, Form], reference: Reference) -> dict[str, float]:
    """Return the mean cosine to PyTorch's vectors, for forms with sentence vectors of their own."""
    found = {}
    for name, form in forms.items():
        if form.engine != "pytorch" and "Optimum" not in name:
            session = open_session(form.engine, Path(form.file), 0)
            vectors = encode_with(session, reference.all_sentences, reference.pad_token_id)
            found[name] = float(cosines(vectors, reference.all_vectors).mean())
    return found


Peaks = Mapping[tuple[str, int], float]
"""Multiply-adds per second of one large product, by kind of number and threads."""
Times = dict[tuple[str, str, Shape, int], list[float]]
"""Median seconds of each round, by model, form, shape and threads."""


def measure(models: Sequence[Model], rounds: int, seconds: float) -> Times:
    """Time every form at every shape, each in a fresh process, in turns."""
    calls = {
        (model.name, name, shape, threads): partial(
            in_fresh_process,
            time_calls,
            *(form.engine, form.file, shape.batch, shape.tokens, threads, model.student.config.vocab_size, seconds),
        )
        for shape, threads in CALLS
        for model in models
        for name, form in model.forms.items()
    }
    return in_turns(calls, rounds)


def multiply_adds(student: Student, shape: Shape) -> int:
    """Count the multiply-adds of products with weights. Attention adds a few per cent, which are not counted."""
    uses = {name: student.config.recurrences if name.startswith("unit.") else 1 for name in matmuls(student)}
    return shape.batch * shape.tokens * sum(site.weight.size * uses[name] for name, site in matmuls(student).items())


def profile(graph: Path, vocabulary: int, shape: Shape, threads: int) -> dict[str, float]:
    """Return the milliseconds of a call by operator: the sum over its nodes of the median time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = threads, True
    session = open_on_cpu(graph, options)
    ids = np.random.default_rng(0).integers(5, vocabulary, (shape.batch, shape.tokens))
    for _ in range(PROFILED_CALLS):
        session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": np.ones_like(ids)})
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


def page(command: str, models: Sequence[Model], times: Times, peaks: Peaks) -> str:
    """Return the results as a page of Markdown."""
    machine = describe()
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions(PACKAGES).items())
    rounds = len(next(iter(times.values())))
    sections = [
        "# Speed of the exported graphs",
        f"    {command}",
        f"This command wrote the page on {machine.cpu} ({', '.join(machine.flags)}), {threads_text(machine.threads)}, "
        f"with {versions}. Times are milliseconds a call: the median of {rounds} fresh processes, each with its own "
        "median. `share` is the share of the machine's int8 peak that an int8 graph reaches: multiply-adds of the "
        f"products with weights, over {peaks['int8', 1] / 1e9:.0f} G/s with one thread and "
        f"{peaks['int8', 2] / 1e9:.0f} G/s with two. "
        "`cosine` is the mean cosine to PyTorch's vectors on sentences that none was calibrated on. ~: the processes "
        f"differ by more than {NOISY:.0%} of their median.",
    ]
    for model in models:
        sections += [f"## {model.name}", _describe(model), _table(model, times, peaks), _ratios(model, times)]
    sections += [
        "## Where the time of the int8 graph goes",
        "Milliseconds of one call by operator in onnxruntime, one thread. Profiling slows small operators down.",
    ]
    sections += [f"{model.name}:\n\n{_profiles(model)}" for model in models]
    return "\n\n".join(sections)


def _describe(model: Model) -> str:
    config = model.student.config
    depth = f"{len(set(config.stack))} layers"
    depth += f", {config.unit_layers} of them applied {config.recurrences} times" if config.recurrences > 1 else ""
    return f"{depth}, width {config.hidden_size}, {config.vocab_size:,} tokens."


def _heads() -> list[str]:
    return [f"{shape}, {threads_text(threads)}" for shape, threads in CALLS]


def _table(model: Model, times: Times, peaks: Peaks) -> str:
    rows = []
    for name, form in model.forms.items():
        cells = [name]
        for shape, threads in CALLS:
            rounds = times[model.name, name, shape, threads]
            seconds = median(rounds)
            share = multiply_adds(model.student, shape) / seconds / peaks["int8", threads]
            noisy = " ~" * (max(rounds) - min(rounds) > NOISY * seconds)
            cells.append(f"{1000 * seconds:.2f}" + (f" ({share:.0%})" if form.is_int8 else "") + noisy)
        cosine = model.cosines.get(name)
        cells.append("" if cosine is None else f"{cosine:.4f}")
        file = Path(form.file)
        weights = file.with_suffix(".bin") if file.suffix == ".xml" else file
        rows.append([*cells, megabytes(weights.stat().st_size) if weights.is_file() else ""])
    return markdown_table(["ms (share)", *_heads(), "cosine", "file"], rows)


def _ratios(model: Model, times: Times) -> str:
    """Compare with NNCF's int8 in OpenVINO round by round."""
    if NNCF not in model.forms:
        return "NNCF is not installed."
    lines = []
    for ours in [name for name in (STANDARD, INT8, LITERT) if name in model.forms]:
        ratios = [median_ratio(times[model.name, NNCF, *call], times[model.name, ours, *call]) for call in CALLS]
        lines.append([ours, *(f"{ratio:.2f}" for ratio in ratios)])
    title = "Times as fast as NNCF's int8 in OpenVINO (median over the rounds of the ratio within a round):"
    return f"{title}\n\n{markdown_table(['', *_heads()], lines)}"


def _profiles(model: Model) -> str:
    operators = list(dict.fromkeys(operator for times in model.profiles for operator in list(times)[:8]))
    rows = [[operator, *(f"{times.get(operator, 0):.2f}" for times in model.profiles)] for operator in operators]
    return markdown_table(["", *(str(shape) for shape, _ in PROFILED)], rows)


if __name__ == "__main__":
    run_script(main)
