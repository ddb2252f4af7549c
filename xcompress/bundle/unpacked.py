"""Copies of 4-bit graphs with unpacked weights, in the cache.

onnxruntime unpacks 4-bit weights to int8 each time it opens a graph, and needs several times their memory for a moment.
A copy holds them as they are computed, in a file beside the graph that onnxruntime maps. It is made when a graph is
first opened. It may be deleted at any time.
"""

import platform
from pathlib import Path

import onnxruntime

from xcompress.errors import XCompressError
from xcompress.files import cache_folder, sha256_of, whole_folder

_LEAST_BYTES = 4_000_000
"""Smaller graphs are opened as they are."""
_MODEL, _HASHES = "model.onnx", "sha256"
_EXTERNAL_BYTES = 1024
"""Smaller weights stay in the graph."""


def unpacked_copy(graph: Path, digest: str | None = None) -> Path | None:
    """Return the unpacked copy of a 4-bit graph; make it if there is none.

    :param graph: an ONNX file.
    :param digest: its SHA-256, if known.
    :returns: the copy's graph, or None where it does not pay, or the cache cannot be written.
    """
    try:
        if graph.suffix != ".onnx" or graph.stat().st_size < _LEAST_BYTES:
            return None
        name = f"{digest or sha256_of(graph)}-{onnxruntime.__version__}-{platform.machine()}"
        folder = cache_folder() / "unpacked" / name
        if not _is_whole(folder):
            _make_copy(graph, folder)
    except (ImportError, OSError, XCompressError):  # ImportError: without platformdirs there is no cache
        return None
    return folder / _MODEL


def _make_copy(graph: Path, folder: Path) -> None:
    """Write a copy, complete or not at all.

    :raises OSError: when onnxruntime cannot write it.
    :raises InputError: when the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with whole_folder(folder) as place:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        # What is specific to a processor is left to the opening of the copy.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(place / _MODEL)
        entry = "session.optimized_model_external_initializers"
        options.add_session_config_entry(f"{entry}_file_name", f"{_MODEL}_data")
        options.add_session_config_entry(f"{entry}_min_size_in_bytes", str(_EXTERNAL_BYTES))
        try:
            onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors have no common base class below Exception
            raise OSError(f"{graph}: onnxruntime cannot write a copy") from error
        (place / _HASHES).write_text(_hashes(place), encoding="utf-8")


def _is_whole(folder: Path) -> bool:
    """Tell whether a copy is complete and unchanged."""
    try:
        return (folder / _HASHES).read_text(encoding="utf-8") == _hashes(folder)
    except (OSError, ValueError):
        return False


def _hashes(folder: Path) -> str:
    return "\n".join(sha256_of(folder / name) for name in (_MODEL, f"{_MODEL}_data"))
