"""Measure the cost of 4 bits: export models to int8, to int8 with token embeddings in 4 bits, and to int4.

    python benchmarks/four_bits.py SOURCE [SOURCE ...] > benchmarks/four_bits.md

SOURCE is anything that `xcompress export` takes: a run, a folder, or a wheel:... reference. The columns are the size of
the graph; the mean cosine to PyTorch's vectors, on the text that exports are verified on; Spearman x 100 on the pairs
that come with the package, in float32 and exported; the median time of a sentence of 16 tokens, graphs of one model
taking turns; and the least time and memory of opening the graph in a new process. Takes minutes per model.
"""

import argparse
import shlex
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from export_memory import open_once
from graph_choices import time_in_turns
from measuring import in_fresh_process

from xcompress.bench.latency import Shape
from xcompress.bundle.engines import open_on_cpu
from xcompress.console import emit, markdown_table, run_script
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.files import read_json

KINDS = {
    "int8": ExportConfig(),
    "int8, embeddings in 4 bits": ExportConfig(table="int4"),
    "int4": ExportConfig(precision="int4"),
}
OPENINGS = 5
"""How often each graph is opened; the minimum counts."""
SENTENCE = Shape(1, 16)
VOCABULARY = 100
"""Random token ids are below this number."""
SECONDS = 3.0
"""How long the graphs of a model take turns."""


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
        sessions = {kind: open_on_cpu(graph) for kind, graph in zip(KINDS, graphs, strict=True)}
        times = time_in_turns(sessions, SENTENCE, VOCABULARY, SECONDS)
        return list(map(_row, KINDS, graphs, manifests, times.values()))


def _row(kind: str, graph: Path, manifest: Mapping[str, Any], milliseconds: float) -> list[str]:
    parity = manifest["parity"][manifest["precision"]]
    scores = [f"{fmean(manifest['graded'][when].values()):.1f}" for when in ("before", "after")]
    seconds, memory = map(min, zip(*(in_fresh_process(open_once, graph) for _ in range(OPENINGS)), strict=True))
    size = f"{graph.stat().st_size / 1e6:.1f}"
    opened = [f"{1000 * seconds:.0f}", f"{memory / 1e6:.0f}"]
    return [manifest["source"], kind, size, f"{parity['mean_cosine']:.4f}", *scores, f"{milliseconds:.2f}", *opened]


if __name__ == "__main__":
    run_script(main)
