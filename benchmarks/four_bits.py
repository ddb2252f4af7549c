"""Measure the cost of 4 bits: export models to int8, to int8 with token embeddings in 4 bits, and to int4.

    python benchmarks/four_bits.py SOURCE [SOURCE ...] > benchmarks/four_bits.md

SOURCE is anything that `xcompress export` takes: a run, a folder, or a wheel:... reference. The columns are the size of
the graph; the mean cosine to PyTorch's vectors, on the text that exports are verified on; Spearman x 100 on the pairs
that come with the package, in float32 and exported; the median time of a sentence of 16 tokens, graphs of one model
taking turns; and the least time and memory of opening the graph in a new process. Takes minutes per model.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

from xcompress.bundle.engines import open_on_cpu
from xcompress.console import emit, markdown_table, run_script
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.files import read_json
from xcompress.python_process import python_command

KINDS = {
    "int8": ExportConfig(),
    "int8, embeddings in 4 bits": ExportConfig(table="int4"),
    "int4": ExportConfig(precision="int4"),
}
OPENINGS = 5
"""How often each graph is opened; the minimum counts."""
ROUNDS = 300
_OPEN = """
import json, sys, time
import onnxruntime
from xcompress.bench.memory import peak
before, start = peak(), time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
took = time.perf_counter() - start
print(json.dumps([took, peak() - before]))
"""


def main() -> None:
    """Export every model in every precision, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    head = ["model", "stored as", "MB", "mean cosine", "Spearman x 100, float32", "exported"]
    head += ["ms per sentence", "ms to open", "peak MB to open"]
    rows = [row for source in parser.parse_args().sources for row in _rows(source)]
    command = f"python benchmarks/four_bits.py {shlex.join(sys.argv[1:])}"
    emit(f"# The cost of 4 bits\n\n    {command}\n\n{markdown_table(head, rows)}\n")


def _rows(source: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        bundles = [export(source, Path(folder) / kind, options=config) for kind, config in KINDS.items()]
        manifests = [read_json(bundle / "manifest.json") for bundle in bundles]
        graphs = [
            bundle / manifest["graphs"][manifest["precision"]]
            for bundle, manifest in zip(bundles, manifests, strict=True)
        ]
        return list(map(_row, KINDS, graphs, manifests, _time_in_turn(graphs)))


def _row(kind: str, graph: Path, manifest: Mapping[str, Any], milliseconds: float) -> list[str]:
    parity = manifest["parity"][manifest["precision"]]
    scores = [f"{fmean(manifest['graded'][when].values()):.1f}" for when in ("before", "after")]
    seconds, memory = map(min, zip(*(_open(graph) for _ in range(OPENINGS)), strict=True))
    size = f"{graph.stat().st_size / 1e6:.1f}"
    opened = [f"{1000 * seconds:.0f}", f"{memory / 1e6:.0f}"]
    return [manifest["source"], kind, size, f"{parity['mean_cosine']:.4f}", *scores, f"{milliseconds:.2f}", *opened]


def _time_in_turn(graphs: Sequence[Path]) -> list[float]:
    """Return the median milliseconds of one sentence for each graph."""
    sessions = [open_on_cpu(graph) for graph in graphs]
    feeds = {"input_ids": np.full((1, 16), 7, np.int64), "attention_mask": np.ones((1, 16), np.int64)}
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for session, taken in zip(sessions, times, strict=True):
            start = perf_counter()
            session.run(["sentence_embedding"], feeds)
            taken.append(1000 * (perf_counter() - start))
    return list(map(median, times))


def _open(graph: Path) -> tuple[float, float]:
    """Open a graph in a new process; return the seconds, and the growth of peak memory in bytes."""
    result = subprocess.run(python_command("-c", _OPEN, str(graph)), capture_output=True, text=True, check=True)
    seconds, memory = json.loads(result.stdout)
    return seconds, memory


if __name__ == "__main__":
    run_script(main)
