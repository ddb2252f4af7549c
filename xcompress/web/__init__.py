"""What pages that run a bundle share: a server on loopback, onnxruntime-web, and the script that feeds a graph."""

from pathlib import Path

GRAPH_SCRIPT = Path(__file__).parent / "graph.js"
