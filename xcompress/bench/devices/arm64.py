"""Compare a bundle's vectors on an emulated arm64 with those of this machine: a check of correctness, not of speed.

qemu runs a worker with arm64 builds of Python, numpy, tokenizers, onnxruntime and, where it is installed here, LiteRT.
`benchmarks/arm64.sh` puts them into a folder:

    usr/bin/python3.*    a Python with its standard library, and what it is linked with in lib/ and usr/lib/
    site/                the arm64 wheels, unpacked
    proc/cpuinfo         what onnxruntime reads to learn which arm64 it runs on; qemu would show this machine's
"""

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.workers import client
from xcompress.bench.workers.client import Worker, decode_vectors
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.python_process import module_arguments

VARIABLE = "XCOMPRESS_ARM64"
"""Environment variable with the folder's path."""
SCRIPT = "benchmarks/arm64.sh"
CPU = "cortex-a76"
"""A phone's processor that has int8 dot products, as newer ones do."""
TIMEOUT = 900.0
"""Seconds for a request: emulated code takes ten to thirty times as long."""
_QEMU = ("qemu-aarch64-static", "qemu-aarch64")
CHECKED = {"onnx": "site/onnxruntime", "litert": "site/ai_edge_litert"}
"""The kinds of subjects that are checked, and what runs each."""
_NEEDED = ("site/numpy", "site/onnxruntime", "site/tokenizers", "proc/cpuinfo")


@dataclass(frozen=True)
class Arm64:
    """An emulated arm64 that runs workers."""

    root: Path
    """The folder that `benchmarks/arm64.sh` made."""
    qemu: str
    """The emulator's path."""
    python: Path
    """The arm64 Python inside `root`."""

    def command(self) -> list[str]:
        """Return the command of a worker; the arm64 libraries come first on the path and hide this machine's."""
        cleared = [f"-u{name}" for name in ("PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")]
        variables = [f"PYTHONPATH={self.root / 'site'}", "PYTHONDONTWRITEBYTECODE=1"]
        emulated = [self.qemu, "-cpu", CPU, "-L", str(self.root), str(self.python)]
        return ["env", *cleared, *variables, *emulated, "-s", "-P", *module_arguments("xcompress.bench.workers.worker")]


def find_arm64() -> Arm64:
    """Find the emulator, and the folder of arm64 libraries that XCOMPRESS_ARM64 names.

    :raises InputError: when something is missing, with how to install it, or when this machine is an arm64 itself.
    """
    qemu = next((path for name in _QEMU if (path := shutil.which(name))), None)
    named = os.environ.get(VARIABLE)
    if platform.machine() in ("aarch64", "arm64"):
        raise InputError("arm64: not checked: this machine is an arm64 itself")
    if qemu is None:
        names = " or ".join(_QEMU)
        raise InputError(
            f"arm64: not checked: {names} not found; install qemu's user emulation (apt-get install qemu-user-static)"
        )
    if not named:
        raise InputError(
            f"arm64: not checked: no arm64 libraries here; run `sh {SCRIPT} DIR` once and set {VARIABLE}=DIR"
        )
    folder = Path(named)
    pythons = [file for file in folder.glob("usr/bin/python3.*") if file.suffix[1:].isdecimal()]
    python = max(pythons, key=lambda file: int(file.suffix[1:]), default=None)
    missing = [name for name in _NEEDED if not (folder / name).exists()]
    if python is None or missing:
        lacking = "usr/bin/python3" if python is None else missing[0]
        raise InputError(f"arm64: not checked: {folder}: lacks {lacking}; run `sh {SCRIPT} {folder}`")
    folder = folder.resolve()
    return Arm64(folder, qemu, folder / "usr/bin" / python.name)


def check_arm64(arm64: Arm64, bundle: Path, precision: str, sentences: Sequence[str], kind: str = "onnx") -> str:
    """Encode sentences here and on an emulated arm64, one thread each, and say how closely the vectors agree.

    :param precision: which graph of the bundle.
    :param sentences: a few short ones are enough.
    :param kind: what runs it: onnx, or litert for the bundle's file for LiteRT.
    :raises InputError: when the emulation lacks what runs the graph.
    :raises WorkerFailed: when either worker fails.
    """
    if not (arm64.root / CHECKED[kind]).exists():
        raise InputError(f"{arm64.root}: lacks {CHECKED[kind]}; run `sh {SCRIPT} {arm64.root}`")
    vectors = []
    for worker_command, timeout in ((None, client.TIMEOUT), (arm64.command(), TIMEOUT)):
        with Worker(worker_command, timeout) as worker:
            source = {"kind": kind, "source": str(bundle.resolve()), "precision": precision}
            worker.ask("load", **source, sentence=sentences[0], input_ids=None)
            vectors.append(decode_vectors(worker.ask("encode", texts=list(sentences)), len(sentences)))
    return agreement(*vectors)


def agreement(here: NDArray[np.float32], there: NDArray[np.float32]) -> str:
    """Say how closely vectors (n, D) of this machine and of the other agree in the worst row."""
    return (
        f"{len(here)} sentences on this machine and on an emulated arm64 ({CPU}): least cosine "
        f"{min(cosines(here, there).min(), 1.0):.6f}, largest difference of a number "
        f"{np.abs(here.astype(np.float64) - there).max():.1e}"
    )
