"""What the machine and its libraries are, for the manifest."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_TELLING = ("avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm", "sve")
_LIBRARIES = ("torch", "onnx", "onnxruntime", "tokenizers", "numpy")


def describe_machine() -> dict[str, Any]:
    """Name the processor, those of its features that decide int8 speed, and the operating system."""
    fields = _cpuinfo(Path("/proc/cpuinfo"))
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "cpu_flags": [flag for flag in _TELLING if flag in flags],
        "system": platform.system(),
    }


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that made the graph."""
    return {"python": platform.python_version()} | {name: version_of(name) for name in _LIBRARIES}


def version_of(name: str) -> str:
    """Return an installed distribution's version, or `unknown` where only its source is on the path."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _cpuinfo(file: Path) -> dict[str, str]:
    if not file.is_file():
        return {}
    pairs = (line.split(":", 1) for line in file.read_text(errors="replace").splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}
