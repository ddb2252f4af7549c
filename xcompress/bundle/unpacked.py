"""Copies of 4-bit graphs with unpacked weights, in the cache.

onnxruntime unpacks 4-bit weights to int8 each time it opens a graph, and needs several times their memory for a moment.
A copy holds them as they are computed, in a file beside the graph that onnxruntime maps. It is made when a graph is
first opened. It may be deleted at any time.
"""

import platform
from pathlib import Path

import onnxruntime

from xcompress.bundle.cached import cached_folder
from xcompress.bundle.engines import write_optimised
from xcompress.files import sha256_of

_LEAST_BYTES = 4_000_000
"""Smaller graphs are opened as they are."""
_MODEL = "model.onnx"
_EXTERNAL_BYTES = 1024
"""Smaller weights stay in the graph."""


def unpacked_copy(graph: Path, digest: str | None = None) -> Path | None:
    """Return the unpacked copy of a 4-bit graph; make it if there is none.

    :param graph: an ONNX file that holds all of its weights.
    :param digest: its SHA-256, if known.
    :returns: the copy's graph, or None where it does not pay, or the cache cannot be written.
    """
    if graph.suffix != ".onnx" or not graph.is_file() or graph.stat().st_size < _LEAST_BYTES:
        return None

    def make(place: Path) -> None:
        entry = "session.optimized_model_external_initializers"
        entries = {f"{entry}_file_name": f"{_MODEL}_data", f"{entry}_min_size_in_bytes": str(_EXTERNAL_BYTES)}
        try:
            # What is specific to a processor is left to the opening of the copy.
            write_optimised(graph, place / _MODEL, entries)
        except Exception as error:  # onnxruntime's errors have no common base class below Exception
            raise OSError(f"{graph}: onnxruntime cannot write a copy") from error

    name = f"{digest or sha256_of(graph)}-{onnxruntime.__version__}-{platform.machine()}"
    folder = cached_folder("unpacked", name, make)
    return folder and folder / _MODEL
