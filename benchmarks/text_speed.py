"""Measure sentences a second from text to vectors, beside sentence-transformers and fastembed with the same graph.

    python benchmarks/text_speed.py MODEL [--rounds 5] > benchmarks/text_speed.md

MODEL is a run, a student or any encoder that `xcompress export` reads. It is exported once for onnxruntime and once for
OpenVINO, both in int8. Every client opens these graphs: `Encoder` in each engine, sentence-transformers in each engine
(optimum[onnxruntime]; optimum-intel), and fastembed. The text is that of the package in eight languages, one to eight
sentences joined, so that lengths differ. Each client runs in a process of its own with as many cores as threads; they
take turns, and figures are medians of the rounds. Clients whose package is missing are left out. Prints a page of
Markdown.
"""

import argparse
import os
import random
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from measuring import add_rounds, in_fresh_process, in_turns, median_ratio

from xcompress.bench.machine import describe
from xcompress.bench.report.format import threads_text
from xcompress.console import emit, markdown_table, run_script
from xcompress.corpus.graded import builtin
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.packages import is_installed

TEXTS = 1500
MOST_JOINED = 8
WARM_UP = 64
THREADS = (1, 2)
GRAPH = "onnx/model_quantized.onnx"
CLIENTS = {
    "Encoder, onnxruntime": ("onnxruntime", "onnxruntime"),
    "Encoder, OpenVINO": ("openvino", "openvino"),
    "sentence-transformers, onnxruntime": ("onnxruntime", "optimum.onnxruntime"),
    "sentence-transformers, OpenVINO": ("openvino", "optimum.intel"),
    "fastembed, onnxruntime": ("onnxruntime", "fastembed"),
}
"""By client: the bundle that it opens, and the package that it needs."""
Encode = Callable[[list[str]], object]


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    add_rounds(parser, 5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bundles = {"onnxruntime": export(options.model, Path(place) / "onnxruntime")}
        if is_installed("openvino"):
            target = ExportConfig(target="openvino")
            bundles["openvino"] = export(options.model, Path(place) / "openvino", options=target)
        clients = [name for name, (bundle, package) in CLIENTS.items() if bundle in bundles and is_installed(package)]
        command = f"python benchmarks/text_speed.py {shlex.join(sys.argv[1:])} > benchmarks/text_speed.md"
        emit(page(command, options.model, measure(clients, bundles, options.rounds)))


def make_texts() -> list[str]:
    """Join one to eight of the package's sentences to a text, with a fixed seed."""
    sentences, chance = builtin().sentences(), random.Random(0)
    return [" ".join(chance.sample(sentences, chance.randint(1, MOST_JOINED))) for _ in range(TEXTS)]


Times = dict[tuple[str, int], list[dict[str, float]]]
"""Replies of each round, by client and threads."""


def measure(clients: Sequence[str], bundles: Mapping[str, Path], rounds: int) -> Times:
    """Time every client with one thread and two, each in a fresh process, in turns."""
    calls = {}
    for threads in THREADS:
        environment = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
        for client in clients:
            arguments = (client, bundles[CLIENTS[client][0]], threads)
            calls[client, threads] = partial(in_fresh_process, time_client, *arguments, environment=environment)
    return in_turns(calls, rounds)


def time_client(client: str, bundle: str, threads: int) -> dict[str, float]:
    """Return the seconds that a client takes for all texts, and those of its tokenizer alone if it is ours."""
    os.sched_setaffinity(0, range(threads))
    texts = make_texts()
    encode, tokenize = open_client(client, Path(bundle), threads)
    encode(texts[:WARM_UP])
    start = perf_counter()
    encode(texts)
    seconds = perf_counter() - start
    if tokenize is None:
        return {"seconds": seconds}
    start = perf_counter()
    tokenize(texts)
    return {"seconds": seconds, "tokenizer": perf_counter() - start}


def open_client(client: str, bundle: Path, threads: int) -> tuple[Encode, Encode | None]:
    """Open a bundle in a client; return its function for texts, and its tokenizer where that can be called alone."""
    engine: Any = CLIENTS[client][0]
    if client.startswith("Encoder"):
        from xcompress import Encoder

        encoder = Encoder(bundle, engine=engine, threads=threads)
        return encoder.encode, encoder.token_ids
    if client.startswith("fastembed"):
        return _open_fastembed(bundle, threads), None
    from sentence_transformers import SentenceTransformer

    options: dict[str, Any] = {"ov_config": {"INFERENCE_NUM_THREADS": threads}}
    if engine == "onnxruntime":
        import onnxruntime

        session_options = onnxruntime.SessionOptions()
        session_options.intra_op_num_threads = threads
        options = {"file_name": GRAPH, "provider": "CPUExecutionProvider", "session_options": session_options}
    model = SentenceTransformer(
        str(bundle), backend="onnx" if engine == "onnxruntime" else engine, model_kwargs=options
    )
    return lambda texts: model.encode(texts, batch_size=32), None


def _open_fastembed(bundle: Path, threads: int) -> Encode:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="bundle",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="not/asked"),
        dim=384,
        model_file=GRAPH,
    )
    options: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "threads": threads}
    model = TextEmbedding("bundle", specific_model_path=str(bundle), **options)
    return lambda texts: list(model.embed(texts, batch_size=32))


def page(command: str, model: str, times: Times) -> str:
    """Return the results as a page of Markdown."""
    machine, texts = describe(), make_texts()
    clients = list(dict.fromkeys(client for client, _ in times))
    ours = [client for client in clients if client.startswith("Encoder")]
    seconds = {key: [reply["seconds"] for reply in replies] for key, replies in times.items()}
    rates: dict[str, list[str]] = {client: [] for client in clients}
    ratios: dict[str, list[str]] = {client: [] for client in ours}
    for threads in THREADS:
        for client in clients:
            rates[client].append(f"{TEXTS / median(seconds[client, threads]):,.0f}")
        others = [client for client in clients if client not in ours]
        best = min(others, key=lambda other: median(seconds[other, threads]), default=None)
        for client in ours:
            shares = [reply["tokenizer"] / reply["seconds"] for reply in times[client, threads]]
            rates[client][-1] += f" ({median(shares):.0%})"
            if best:
                ratio = median_ratio(seconds[best, threads], seconds[client, threads])
                ratios[client].append(f"{ratio:.2f} ({best})")
    words = sorted(len(text.split()) for text in texts)
    heads = list(map(threads_text, THREADS))
    return "\n\n".join(
        [
            "# From text to vectors",
            f"    {command}",
            f"Written with {Path(model).name} on {machine.cpu}, {threads_text(machine.threads)}: {TEXTS:,}"
            f" texts of {words[0]} to {words[-1]} words (median {words[len(words) // 2]}), in batches of at most 32 "
            "texts. The tokenizer's share of the time is in parentheses. All clients run the same int8 weights.",
            markdown_table(["texts a second", *heads], [[client, *cells] for client, cells in rates.items()]),
            "Times as fast as the best of the other clients (median over the rounds of the ratio within a round):",
            markdown_table(["", *heads], [[client, *cells] for client, cells in ratios.items()]),
        ]
    )


if __name__ == "__main__":
    run_script(main)
