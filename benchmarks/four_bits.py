"""What 4 bits cost: exports models in int8, with the word table alone in 4 bits, and in int4, and compares them.

    python benchmarks/four_bits.py SOURCE [SOURCE ...] > benchmarks/four_bits.md

SOURCE is what `xcompress export` takes: a run, a folder, or a wheel:... reference. Bytes are the graph's; the mean
cosine is to PyTorch's vectors of the text that exports are verified on; points are Spearman x 100 on the pairs that
come with the package, float32 to exported; a graph is opened in a process of its own, and what that adds to the
process's memory at its peak is counted. A sentence is 16 tokens; graphs of one model take turns, and the median counts.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

from xcompress.console import emit, markdown_table
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.verify import open_session
from xcompress.files import read_json

KINDS = {
    "int8": ExportConfig(),
    "int8, table in 4 bits": ExportConfig(table="int4"),
    "int4": ExportConfig(precision="int4"),
}
TIMES = 5
"""How often a graph is opened; the least counts."""
ROUNDS = 300
_OPEN = """
import json, sys, time
import onnxruntime
def peak():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
before, start = peak(), time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
took = time.perf_counter() - start
print(json.dumps([took, peak() - before]))
"""
"""Linux counts VmHWM in KiB; ru_maxrss would have the parent's in it."""


def main() -> None:
    """Export every model in every kind, and write one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    head = ["model", "stored as", "MB", "mean cosine", "points before", "after"]
    head += ["ms a sentence", "ms to open", "MB at the peak"]
    rows = [row for source in parser.parse_args().sources for row in _rows(source)]
    emit(f"# What 4 bits cost\n\n    {_command()}\n\n{markdown_table(head, rows)}\n")


def _command() -> str:
    return "python benchmarks/four_bits.py " + " ".join(sys.argv[1:])


def _rows(source: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        made = [export(source, Path(folder) / kind, options=asked) for kind, asked in KINDS.items()]
        manifests = [read_json(bundle / "manifest.json") for bundle in made]
        graphs = [bundle / one["graphs"][one["precision"]] for bundle, one in zip(made, manifests, strict=True)]
        return list(map(_row, KINDS, graphs, manifests, _in_turns(graphs)))


def _row(kind: str, graph: Path, manifest: Mapping[str, Any], milliseconds: float) -> list[str]:
    parity = manifest["parity"][manifest["precision"]]
    scores = [f"{fmean(manifest['graded'][when].values()):.1f}" for when in ("before", "after")]
    seconds, memory = map(min, zip(*(_opened(graph) for _ in range(TIMES)), strict=True))
    size = f"{graph.stat().st_size / 1e6:.1f}"
    opened = [f"{1000 * seconds:.0f}", f"{memory * 1024 / 1e6:.0f}"]
    return [manifest["source"], kind, size, f"{parity['mean_cosine']:.4f}", *scores, f"{milliseconds:.2f}", *opened]


def _in_turns(graphs: Sequence[Path]) -> list[float]:
    """Return each graph's median of milliseconds for one sentence."""
    sessions = [open_session(graph) for graph in graphs]
    feeds = {"input_ids": np.full((1, 16), 7, np.int64), "attention_mask": np.ones((1, 16), np.int64)}
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(ROUNDS):
        for session, taken in zip(sessions, times, strict=True):
            start = perf_counter()
            session.run(["sentence_embedding"], feeds)
            taken.append(1000 * (perf_counter() - start))
    return list(map(median, times))


def _opened(graph: Path) -> tuple[float, float]:
    """Open a graph in a new process; return seconds, and KiB at its peak."""
    done = subprocess.run([sys.executable, "-c", _OPEN, str(graph)], capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


if __name__ == "__main__":
    main()
