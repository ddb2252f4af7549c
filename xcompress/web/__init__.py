"""Shared by the pages that run a bundle: a local server, onnxruntime-web, and the script that runs a graph."""

from pathlib import Path

GRAPH_SCRIPT = Path(__file__).parent / "graph.js"
