"""A phone's limits on this machine: one thread, a memory ceiling, the ORT format, no AVX-512 where that is a choice."""

import shutil
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Self

from xcompress.bench import memory as ceiling
from xcompress.bench.devices import arm64
from xcompress.bench.machine import Machine
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import MANIFEST, graphs_of, inside, read_manifest
from xcompress.errors import InputError
from xcompress.files import sha256_of, whole_folder, write_json

ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
)
"""Variables for a worker: no AVX-512 in PyTorch and the libraries it uses, and one thread everywhere.

onnxruntime 1.31 reads no variable that would keep it from AVX-512.
"""
TARGET = "mobile"
_WIDE = ("avx512", "amx")
_OUT_OF_MEMORY = ("bad_alloc", "memory", "signal 6", "signal 11", "failed to map")
"""What libraries say, or how they end, when an allocation fails."""


def phone_bundle(bundle: Path, precision: str, folder: Path) -> Path:
    """Copy a bundle with one of its graphs in ORT format, so that `Encoder` opens it as on a phone.

    :param folder: the copy, new or replaced.
    :returns: the copy; the bundle itself where it was exported for phones with that graph in ORT format.
    :raises InputError: when the bundle is not whole, has no such graph, or the graph cannot be written in ORT format.
    """
    manifest = read_manifest(bundle)
    graph = graphs_of(bundle, manifest).get(precision)
    if graph is None:
        raise InputError(f"{bundle}: has no {precision} graph; choose another one, or export the bundle again")
    check_bundle(bundle, manifest, graph)
    if graph.endswith(".ort") and manifest.get("target") == TARGET:
        return bundle
    with whole_folder(folder) as made:
        _copy(bundle, [*_around(manifest), graph, *sorted(external_files(bundle, graph))], made)
        opened = graph if graph.endswith(".ort") else _in_ort_format(made, graph)
        kept = {"target": TARGET, "precision": precision, "graphs": {precision: opened}}
        write_json(made / MANIFEST, manifest | kept | {"files": _listed(made)})
    return folder


def emulated(machine: Machine, root: Path | None = None) -> tuple[str, ...]:
    """Say what stands in for a phone here, and what is left out, a line for each.

    :param machine: where the bench runs.
    :param root: the folder for the check on arm64, as in `arm64.find_arm64`.
    """
    wide = any(flag.startswith(_WIDE) for flag in machine.flags)
    lines = [
        f"one thread of this machine ({machine.cpu}) stands in for a phone's processor: compare subjects with each "
        "other, not with a phone",
        "AVX-512 is switched off for PyTorch; onnxruntime has no switch for it and uses it, which no phone has"
        if wide
        else "",
        "the memory ceiling counts private writable memory over the bare interpreter (RLIMIT_DATA), not the code of "
        "libraries nor files that are mapped to be read, which resident memory holds",
        "no thermal limits: a phone that gets warm slows down",
        arm64.why_not(root)
        or "arm64: the bundle is run on an emulated processor (qemu) for its vectors, not its speed",
    ]
    return tuple(filter(None, lines))


def needed(worker: Worker, load: Mapping[str, Any], batches: Sequence[list[list[int]]] = ()) -> int | None:
    """Measure what a subject needs that failed under a ceiling: load it without one, and serve batches.

    Counted is what `ceiling.limit` bounds. The system keeps no highest mark of that, so the process is watched all the
    time, from outside, since libraries hold the interpreter while they load.

    :param worker: a fresh one with `ENVIRONMENT` and no ceiling; it is closed.
    :param load: what the request `load` takes.
    :param batches: token ids (N, L) that are served then.
    :returns: the highest number of bytes over the bare interpreter; None when the subject fails without a ceiling, too.
    """
    try:
        with worker:
            worker.ask("memory")  # now it is there, and bare
            with _Watch(worker.pid) as watch:
                worker.ask("load", **load)
                for batch in batches:
                    worker.ask("time", input_ids=batch, calls=1, warm=False)
    except WorkerFailed:
        return None
    return watch.most - watch.first - ceiling.reserved(ENVIRONMENT)


def explain(failure: str, needed: int | None, ceiling: int) -> str:
    """Say why a subject failed under a memory ceiling.

    :param failure: what the worker's end or reply said.
    :param needed: bytes it takes without a ceiling, if known.
    :param ceiling: bytes.
    """
    if needed is not None and needed > ceiling:
        return f"needs {ceil(needed / 1e6)} MB, ceiling {ceiling / 1e6:.0f} MB"
    if any(sign in failure.lower() for sign in _OUT_OF_MEMORY):
        return f"needs more than the ceiling of {ceiling / 1e6:.0f} MB ({failure})"
    return failure


class _Watch:
    """Watches the private memory of another process; use it as a context."""

    def __init__(self, process: int) -> None:
        self.first = self.most = ceiling.data(process)
        self._process = process
        self._done = Event()
        self._thread = Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._done.is_set():
            self.most = max(self.most, ceiling.data(self._process))


def _around(manifest: Mapping[str, Any]) -> list[str]:
    """List the files of a bundle that are no graphs."""
    return [name for name in manifest["files"] if not name.startswith("onnx/")]


def _copy(bundle: Path, names: Sequence[str], folder: Path) -> None:
    for name in names:
        source = inside(bundle, name)
        if source.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)


def _in_ort_format(folder: Path, graph: str) -> str:
    """Write the graph in ORT format in place of what it was; return the new path inside the folder."""
    try:
        from xcompress.export.graph import write_ort
    except ImportError as error:
        raise InputError(
            f"--device mobile: the ORT format is written by xcompress[export] ({error}); install it"
        ) from None
    try:
        made = write_ort(folder / graph)
    except Exception as error:  # onnxruntime's errors share no base class below Exception
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{graph}: cannot be written in ORT format ({why}); export the bundle again") from error
    for name in [graph, *external_files(folder, graph)]:
        (folder / name).unlink()
    return made.relative_to(folder).as_posix()


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256_of(file)} for file in files
    }
