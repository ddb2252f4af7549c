"""onnxruntime-web, as npm installed it. It is looked for, and never fetched."""

import json
import os
from pathlib import Path

ONNXRUNTIME_WEB = "XCOMPRESS_ONNXRUNTIME_WEB"
SCRIPT = "ort.wasm.min.mjs"
"""The module that a page imports: WebAssembly alone, without graphics."""
BINARY = "ort-wasm-simd-threaded.wasm"
RUNTIME = (SCRIPT, "ort-wasm-simd-threaded.mjs", BINARY)
"""Files of dist/ that a page loads; the runtime has SIMD, and one thread if told so."""


def find_package(asked: str | Path | None = None) -> Path:
    """Return the folder of the npm package.

    :param asked: the folder; None looks at the variable XCOMPRESS_ONNXRUNTIME_WEB, then into node_modules of the
        current folder and of those above it.
    :raises LookupError: when it is not there or lacks a file, with the command that installs it.
    """
    named = asked or os.environ.get(ONNXRUNTIME_WEB)
    if named:
        return _complete(Path(named))
    here = Path.cwd()
    for folder in (here, *here.parents):
        package = folder / "node_modules" / "onnxruntime-web"
        if package.is_dir():
            return _complete(package)
    raise LookupError(
        "onnxruntime-web: npm install onnxruntime-web, here, or elsewhere with the path of its "
        f"node_modules/onnxruntime-web in {ONNXRUNTIME_WEB}"
    )


def _complete(package: Path) -> Path:
    lacking = [name for name in RUNTIME if not (package / "dist" / name).is_file()]
    if lacking:
        what = f"{package} has no dist/{lacking[0]}"
        raise LookupError(f"onnxruntime-web 1.20 or later ({what}): npm install onnxruntime-web@latest")
    return package.resolve()


def runtime_files(package: Path) -> dict[str, Path]:
    """Return the files that a page loads, by name."""
    return {name: package / "dist" / name for name in RUNTIME}


def version_of(package: Path) -> str:
    """Return the version that package.json says, or `unknown`."""
    try:
        return str(json.loads((package / "package.json").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
