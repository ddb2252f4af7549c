"""Find onnxruntime-web where npm installed it. It is never downloaded."""

import json
import os
from pathlib import Path

ONNXRUNTIME_WEB = "XCOMPRESS_ONNXRUNTIME_WEB"
"""Environment variable with the folder of the npm package."""
SCRIPT = "ort.wasm.min.mjs"
"""The module that a page imports: the build with WebAssembly only, without WebGPU or WebGL."""
BINARY = "ort-wasm-simd-threaded.wasm"
RUNTIME = (SCRIPT, "ort-wasm-simd-threaded.mjs", BINARY)
"""Files of dist/ that a page loads. The binary uses SIMD, and one thread if the page says so."""


def find_package(folder: str | Path | None = None) -> Path:
    """Return the folder of the npm package.

    :param folder: the folder; None takes the environment variable XCOMPRESS_ONNXRUNTIME_WEB, then looks for
        node_modules in the current folder and its parents.
    :raises LookupError: when the package is missing or lacks a file, with the command that installs it.
    """
    candidates = [parent / "node_modules" / "onnxruntime-web" for parent in (Path.cwd(), *Path.cwd().parents)]
    named = folder or os.environ.get(ONNXRUNTIME_WEB)
    package = Path(named) if named else next((path for path in candidates if path.is_dir()), None)
    if package is None:
        raise LookupError(
            "onnxruntime-web: npm install onnxruntime-web here, or elsewhere with the path of its "
            f"node_modules/onnxruntime-web in {ONNXRUNTIME_WEB}"
        )
    try:
        missing = [name for name in RUNTIME if not (package / "dist" / name).is_file()]
    except OSError as error:
        raise LookupError(f"onnxruntime-web ({error.strerror}): correct the path in {ONNXRUNTIME_WEB}") from error
    if missing:
        raise LookupError(
            f"onnxruntime-web 1.20 or later ({package} has no dist/{missing[0]}): npm install onnxruntime-web@latest"
        )
    return package.resolve()


def runtime_files(package: Path) -> dict[str, Path]:
    """Map the names of the files that a page loads to their paths."""
    return {name: package / "dist" / name for name in RUNTIME}


def version_of(package: Path) -> str:
    """Return the version in package.json, or `unknown`."""
    try:
        return str(json.loads((package / "package.json").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
