"""A bundle's vectors on an emulated arm64, compared with those of this machine: for correctness, not for speed.

qemu runs a worker with arm64 builds of Python, numpy, tokenizers and onnxruntime, which `benchmarks/arm64.sh` puts into
a folder:

    usr/bin/python3.*    a Python with its standard library, and what it is linked with in lib/ and usr/lib/
    site/                the arm64 wheels, unpacked
    proc/cpuinfo         what onnxruntime reads to learn which arm64 it runs on; qemu would show it this machine's
"""

import base64
import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import xcompress
from xcompress.bench.workers.client import Worker, WorkerClient
from xcompress.errors import InputError

VARIABLE = "XCOMPRESS_ARM64"
"""Names the folder."""
SCRIPT = "benchmarks/arm64.sh"
CPU = "cortex-a76"
"""A processor of phones with the int8 products that newer ones have, too."""
TIMEOUT = 900.0
"""Seconds for a request: emulated code takes ten to thirty times as long."""
_QEMU = ("qemu-aarch64-static", "qemu-aarch64")
_MISSING = "arm64: not checked: "


@dataclass(frozen=True)
class VectorAgreement:
    """How near two machines' vectors are to each other."""

    sentences: int
    least_cosine: float
    largest_difference: float
    """Of two numbers at the same place, absolute."""

    def __str__(self) -> str:
        return (
            f"{self.sentences} sentences on this machine and on an emulated arm64 ({CPU}): least cosine "
            f"{self.least_cosine:.6f}, largest difference of a number {self.largest_difference:.1e}"
        )


@dataclass(frozen=True)
class Arm64:
    """An emulated arm64 that runs workers."""

    root: Path
    """The folder that `benchmarks/arm64.sh` made."""
    qemu: str
    """The emulator's path."""

    @property
    def python(self) -> Path:
        """Python for arm64."""
        return _python(self.root) or self.root / "usr/bin/python3"

    def command(self) -> list[str]:
        """Return what starts a worker: the arm64 libraries hide those that are installed beside this package."""
        home = Path(xcompress.__file__).parent.parent
        paths = os.pathsep.join([str(self.root / "site"), str(home)])
        cleared = [f"-u{name}" for name in ("PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD")]
        variables = [f"PYTHONPATH={paths}", "PYTHONDONTWRITEBYTECODE=1"]
        emulated = [self.qemu, "-cpu", CPU, "-L", str(self.root), str(self.python)]
        return ["env", *cleared, *variables, *emulated, "-s", "-P", "-m", "xcompress.bench.workers.worker"]

    def worker(self, patience: float = TIMEOUT) -> Worker:
        """Start a worker; use it as a context."""
        return Worker(self.command(), patience)


def find_arm64(root: Path | None = None) -> Arm64 | None:
    """Find the emulator and the folder.

    :param root: the folder; by default the one that XCOMPRESS_ARM64 names.
    :returns: None where something is missing; `why_not` says what.
    """
    folder, qemu = _folder(root), _emulator()
    if why_not(root) is not None or folder is None or qemu is None:
        return None
    return Arm64(folder.resolve(), qemu)


def why_not(root: Path | None = None) -> str | None:
    """Say in a line why there is no check on arm64 here and what to do about it; None where there is one."""
    folder = _folder(root)
    if platform.machine() in ("aarch64", "arm64"):
        return f"{_MISSING}this machine is an arm64 itself"
    if _emulator() is None:
        return (
            f"{_MISSING}no {' or '.join(_QEMU)} here; install qemu's user emulation (apt-get install qemu-user-static)"
        )
    if folder is None:
        return f"{_MISSING}no arm64 libraries here; run `sh {SCRIPT} DIR` once and set {VARIABLE}=DIR"
    lacking = _lacking(folder)
    return f"{_MISSING}{folder}: lacks {lacking}; run `sh {SCRIPT} {folder}`" if lacking else None


def check_arm64(bundle: Path, precision: str, sentences: Sequence[str], root: Path | None = None) -> VectorAgreement:
    """Encode sentences here and on an emulated arm64, one thread each, and compare the vectors.

    :param precision: which graph of the bundle.
    :param sentences: a few short ones will do.
    :raises InputError: when there is no such check here, or no sentence.
    :raises WorkerFailed: when either side fails.
    """
    found = find_arm64(root)
    if found is None:
        raise InputError(why_not(root) or "")
    if not sentences:
        raise InputError("check on arm64: no sentence; give one or more")
    with Worker() as worker:
        here = _vectors(worker, bundle, precision, sentences)
    with found.worker() as worker:
        there = _vectors(worker, bundle, precision, sentences)
    return compare(here, there)


def compare(here: NDArray[np.float32], there: NDArray[np.float32]) -> VectorAgreement:
    """Compare vectors (n, D) row by row."""
    left, right = here.astype(np.float64), there.astype(np.float64)
    cosines = (left * right).sum(1) / (np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1))
    return VectorAgreement(len(left), float(min(cosines.min(), 1.0)), float(np.abs(left - right).max()))


def _vectors(worker: WorkerClient, bundle: Path, precision: str, sentences: Sequence[str]) -> NDArray[np.float32]:
    source = {"kind": "onnx", "source": str(bundle.resolve()), "precision": precision}
    worker.ask("load", **source, sentence=sentences[0], input_ids=None)
    reply = worker.ask("encode", texts=list(sentences))
    flat = np.frombuffer(base64.b64decode(reply["vectors"]), dtype="<f4")
    return flat.reshape(reply["shape"]).astype(np.float32)


def _folder(root: Path | None) -> Path | None:
    named = root or os.environ.get(VARIABLE)
    return Path(named) if named else None


def _emulator() -> str | None:
    return next((path for name in _QEMU if (path := shutil.which(name))), None)


def _python(root: Path) -> Path | None:
    return max(root.glob("usr/bin/python3.[0-9]*"), default=None)


def _lacking(root: Path) -> str | None:
    needed = ("site/numpy", "site/onnxruntime", "site/tokenizers", "proc/cpuinfo")
    if _python(root) is None:
        return "usr/bin/python3"
    return next((name for name in needed if not (root / name).exists()), None)
