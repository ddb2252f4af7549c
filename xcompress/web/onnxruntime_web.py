"""Find onnxruntime-web where npm installed it. It is never downloaded."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

ONNXRUNTIME_WEB = "XCOMPRESS_ONNXRUNTIME_WEB"
"""Environment variable with the folder of the npm package."""


@dataclass(frozen=True)
class Build:
    """A build of onnxruntime-web: the files of dist/ that a page loads."""

    script: str
    """The module that the page imports."""
    module: str
    """The module that the script imports."""
    binary: str
    """WebAssembly with SIMD; one thread if the page says so."""
    since: str
    """A version of onnxruntime-web that has the build; earlier ones may have it."""

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of the three files."""
        return self.script, self.module, self.binary


BUILDS = {
    "wasm": Build("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", "1.20"),
    "webgpu": Build("ort.jspi.min.mjs", "ort-wasm-simd-threaded.jspi.mjs", "ort-wasm-simd-threaded.jspi.wasm", "1.30"),
}
"""The smallest build for each device.

In onnxruntime-web 1.30, the binary for WebAssembly has 14.2 MB and the one for WebGPU 16.8. The latter needs a browser
with JavaScript Promise Integration; another build for WebGPU does not, and has 26.8 MB.
"""


def find_package(device: str = "wasm") -> Path:
    """Return the npm package: the folder that XCOMPRESS_ONNXRUNTIME_WEB names, else in node_modules here or above.

    :param device: wasm or webgpu; its build must be there.
    :raises LookupError: when the package is missing or lacks a file, with the command that installs it.
    """
    candidates = [parent / "node_modules" / "onnxruntime-web" for parent in (Path.cwd(), *Path.cwd().parents)]
    named = os.environ.get(ONNXRUNTIME_WEB)
    package = Path(named) if named else next((path for path in candidates if path.is_dir()), None)
    if package is None:
        raise LookupError(
            "onnxruntime-web: npm install onnxruntime-web here, or elsewhere with the path of its "
            f"node_modules/onnxruntime-web in {ONNXRUNTIME_WEB}"
        )
    try:
        missing = [name for name in BUILDS[device].names if not (package / "dist" / name).is_file()]
    except OSError as error:
        raise LookupError(f"onnxruntime-web ({error.strerror}): correct the path in {ONNXRUNTIME_WEB}") from error
    if missing:
        raise LookupError(
            f"onnxruntime-web {BUILDS[device].since} or later ({package} has no dist/{missing[0]}): "
            "npm install onnxruntime-web@latest"
        )
    return package.resolve()


def runtime_files(package: Path, device: str = "wasm") -> dict[str, Path]:
    """Map the names of the files that a page loads to their paths."""
    return {name: package / "dist" / name for name in BUILDS[device].names}


def version_of(package: Path) -> str:
    """Return the version in package.json, or `unknown`."""
    try:
        return str(json.loads((package / "package.json").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
