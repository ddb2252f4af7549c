"""What 4 bits cost: exports models in int8, with the word table alone in 4 bits, and in int4, and compares them.

    python benchmarks/four_bits.py SOURCE [SOURCE ...] > benchmarks/four_bits.md

SOURCE is what `xcompress export` takes: a run, a folder, or a wheel:... reference. Bytes are the graph's; the mean
cosine is to PyTorch's vectors of held-out sentences; points are Spearman x 100 on the pairs that come with the package,
float32 to exported; a graph is opened in a process of its own, and what that adds to the process's memory at its peak
is counted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from xcompress.console import emit, markdown_table
from xcompress.export import Options, export
from xcompress.files import read_json

KINDS = {
    "int8": Options(),
    "int8, table in 4 bits": Options(table="int4"),
    "int4": Options(precision="int4"),
}
TIMES = 5
"""How often a graph is opened; the least counts."""
_OPEN = """
import json, resource, sys, time
import onnxruntime
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
took = time.perf_counter() - start
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]))
"""
"""Linux counts ru_maxrss in KiB."""


def main() -> None:
    """Export every model in every kind, and write one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+")
    head = ["model", "stored as", "MB", "mean cosine", "points before", "after", "ms to open", "MB at the peak"]
    rows = [row for source in parser.parse_args().sources for row in _rows(source)]
    emit(f"# What 4 bits cost\n\n    {_command()}\n\n{markdown_table(head, rows)}\n")


def _command() -> str:
    return "python benchmarks/four_bits.py " + " ".join(sys.argv[1:])


def _rows(source: str) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        made = {kind: export(source, Path(folder) / kind, options=asked) for kind, asked in KINDS.items()}
        return [_row(kind, bundle, read_json(bundle / "manifest.json")) for kind, bundle in made.items()]


def _row(kind: str, bundle: Path, manifest: Mapping[str, Any]) -> list[str]:
    precision = manifest["precision"]
    graph, parity = bundle / manifest["graphs"][precision], manifest["parity"][precision]
    scores = [f"{fmean(manifest['graded'][when].values()):.1f}" for when in ("before", "after")]
    seconds, memory = map(min, zip(*(_opened(graph) for _ in range(TIMES)), strict=True))
    size = f"{graph.stat().st_size / 1e6:.1f}"
    figures = [size, f"{parity['mean_cosine']:.4f}", *scores, f"{1000 * seconds:.0f}", f"{memory * 1024 / 1e6:.0f}"]
    return [manifest["source"], kind, *figures]


def _opened(graph: Path) -> tuple[float, float]:
    """Open a graph in a new process; return seconds, and KiB at its peak."""
    done = subprocess.run([sys.executable, "-c", _OPEN, str(graph)], capture_output=True, text=True, check=True)
    seconds, memory = json.loads(done.stdout)
    return seconds, memory


if __name__ == "__main__":
    main()
