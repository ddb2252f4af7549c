"""A phone's limits on this machine: one thread, a memory ceiling, ORT format, and no AVX-512 where it can be off."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xcompress.bench import memory
from xcompress.bench.devices.arm64 import CHECKED, check_arm64, find_arm64
from xcompress.bench.devices.device import Device, Failure
from xcompress.bench.machine import Machine, describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient, WorkerFailed
from xcompress.bundle.integrity import check_bundle, external_files
from xcompress.bundle.manifest import COREML_NOT_RUN, choose_graph, inside, list_files, read_manifest, write_manifest
from xcompress.errors import InputError, XCompressError, first_line
from xcompress.files import whole_folder
from xcompress.packages import install_command, is_installed
from xcompress.runtimes import COREML, ENGINES

ENVIRONMENT: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables for a worker: no AVX-512 in PyTorch and the libraries it uses, and one thread everywhere.

onnxruntime 1.31 reads no variable that would keep it from AVX-512.
"""
MEMORY_MB = 256
"""Default ceiling: what an app may use on a small phone."""
TARGET = "mobile"
BINDINGS: Mapping[str, tuple[str, ...]] = {
    "executorch": ("torch", "onnxruntime", "executorch.runtime"),
    "litert": ("onnxruntime",),
}
"""By runtime of phones, large modules that a worker imports for it here, and an app on a phone would not."""
_OUT_OF_MEMORY = ("bad_alloc", "memory", "signal 6", "signal 11", "failed to map")
"""What libraries print, or how they end, when an allocation fails."""


class MobileDevice(Device):
    """A phone's limits on this machine.

    :param memory_mb: MB that a worker may allocate over the bare interpreter; None takes `MEMORY_MB`.
    :param stack: removes the converted bundles.
    """

    def __init__(self, memory_mb: int | None, stack: ExitStack) -> None:
        self.machine, self.max_threads = describe(), 1
        self.ceiling = (memory_mb or MEMORY_MB) * 10**6
        self.info = DeviceInfo("mobile", self.ceiling, emulation_notes(self.machine))
        self.folder = Path(stack.enter_context(TemporaryDirectory()))

    def prepare(self, subjects: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Convert the bundles to ORT format, and add a subject for each file of a runtime of phones that is installed.

        A bundle that cannot be converted is marked as broken.
        """
        prepared: list[Subject] = []
        for number, subject in enumerate(subjects):
            phones: list[Subject] = []
            if subject.kind == "onnx" and not subject.broken:
                try:
                    phones = phone_subjects(subject)
                    folder = mobile_bundle(Path(subject.source), subject.precision, self.folder / str(number))
                    subject = replace(subject, source=str(folder))
                except InputError as error:
                    subject = replace(subject, broken=str(error))
            prepared += [subject, *phones]
        return prepared, reference

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a worker that cannot allocate more than the ceiling."""
        worker = _start_without_ceiling(subject)
        worker.ask("limit", bytes=self.ceiling)
        return worker

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker without a ceiling."""
        return Worker(environment=ENVIRONMENT)

    def explain_failure(
        self, subject: Subject, failure: str, load: Mapping[str, object], batches: Sequence[list[list[int]]]
    ) -> Failure:
        """Say how much memory the subject would have needed."""
        try:
            worker = _start_without_ceiling(subject)
        except WorkerFailed:
            return Failure(failure)
        # what is imported beforehand imports numpy
        reserved = 0 if subject.kind in BINDINGS else memory.reserved(ENVIRONMENT)
        needed = measure_needed_memory(worker, load, batches, reserved)
        return explain_out_of_memory(failure, needed, self.ceiling)

    def check_vectors(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Say what is left out of a row; compare vectors with those on an emulated arm64, if it is installed."""
        for subject in subjects:
            if subject.kind == "onnx" and (Path(subject.source) / COREML).is_dir():
                yield f"{subject.name}: {COREML} beside it was {COREML_NOT_RUN}"
            if subject.kind in BINDINGS:
                yield (
                    f"{subject.name}: imported before, and so not in memory and start: "
                    f"{', '.join(BINDINGS[subject.kind])}; a batch is one call per text"
                )
        try:
            arm64 = find_arm64()
        except InputError:
            return  # the emulation notes say what is missing
        for subject in subjects:
            if subject.kind in CHECKED:
                try:
                    outcome = check_arm64(arm64, Path(subject.source), subject.precision, sentences, subject.kind)
                except XCompressError as error:
                    outcome = f"arm64: {error}"
                yield f"{subject.name}: {outcome}"


def _start_without_ceiling(subject: Subject) -> Worker:
    """Start a worker that has imported what does not count as the subject's."""
    worker = Worker(environment=ENVIRONMENT)
    if modules := BINDINGS.get(subject.kind):
        worker.ask("import", modules=list(modules))
    return worker


def phone_subjects(subject: Subject) -> list[Subject]:
    """Return a subject for each file of a runtime of phones beside a bundle's default graph, where it is installed.

    :param subject: a graph of a bundle in onnxruntime.
    """
    folder = Path(subject.source)
    manifest = read_manifest(folder)
    if subject.precision != manifest.get("precision"):
        return []
    onnx = f", ONNX {subject.precision}"
    return [
        replace(
            subject,
            name=f"{subject.name.removesuffix(onnx)}, {runtime.label} {subject.precision}",
            kind=runtime.name,  # type: ignore[arg-type]
            weights=(folder / runtime.file,),
        )
        for runtime in ENGINES.values()
        if runtime.of_phones and (folder / runtime.file).is_file() and is_installed(runtime.run_by)
    ]


def emulation_notes(machine: Machine) -> tuple[str, ...]:
    """Return a line for everything that differs from a phone.

    :param machine: the machine that the bench runs on.
    """
    notes = [
        f"one thread of this machine ({machine.cpu}) takes the place of a phone's processor: compare subjects with "
        "each other, not with a phone"
    ]
    if any(flag.startswith(("avx512", "amx")) for flag in machine.flags):
        notes.append(
            "AVX-512 is switched off for PyTorch; onnxruntime has no switch for it and uses it, although no phone has "
            "it"
        )
    notes += [
        "the memory ceiling counts private writable memory over the bare interpreter (RLIMIT_DATA); resident memory "
        "also counts library code and files mapped for reading",
        "thermal limits are not emulated: a phone that gets warm slows down",
    ]
    try:
        find_arm64()
        notes.append("arm64: the bundle also runs on an emulated processor (qemu), to check its vectors, not its speed")
    except InputError as error:
        notes.append(str(error))
    return tuple(notes)


def mobile_bundle(bundle: Path, precision: str, folder: Path) -> Path:
    """Copy a bundle with one of its graphs in ORT format, so that `Encoder` opens it as on a phone.

    :param folder: the copy, new or replaced.
    :returns: the copy, or the bundle itself if it was exported for phones with this graph in ORT format.
    :raises InputError: when the bundle is incomplete or has no such graph, or the graph cannot be written in ORT
        format.
    """
    manifest = read_manifest(bundle)
    _, graph = choose_graph(bundle, manifest, precision)
    check_bundle(bundle, manifest, graph)
    if graph.endswith(".ort") and manifest.get("target") == TARGET:
        return bundle
    with whole_folder(folder) as copy:
        # Copy all files except the other graphs.
        names = [name for name in manifest["files"] if not name.startswith("onnx/")]
        for name in (*names, graph, *sorted(external_files(bundle, graph))):
            source = inside(bundle, name)
            if source.is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy / name)
        if not graph.endswith(".ort"):
            graph = _convert_to_ort(copy, graph)
        changes = {"target": TARGET, "precision": precision, "graphs": {precision: graph}, "files": list_files(copy)}
        write_manifest(copy, manifest | changes)
    return folder


def _convert_to_ort(folder: Path, graph: str) -> str:
    """Replace a graph and its external data by a file in ORT format; return its path inside the folder."""
    try:
        from xcompress.export.graph import write_ort
    except ImportError as error:
        raise InputError(
            f"--device mobile: writing the ORT format needs {error.name or error}; {install_command('export')}"
        ) from None
    try:
        converted = write_ort(folder / graph)
    except Exception as error:  # onnxruntime's errors share no base class below Exception
        raise InputError(
            f"{graph}: cannot be written in ORT format, which holds 2 GB ({first_line(error)}); export the model with "
            f"--target {TARGET}, in int8 where it is larger"
        ) from error
    for name in [graph, *external_files(folder, graph)]:
        (folder / name).unlink()
    return converted.relative_to(folder).as_posix()


def measure_needed_memory(
    worker: Worker, load: Mapping[str, Any], batches: Sequence[list[list[int]]], reserved: int
) -> int | None:
    """Measure the memory of a subject that failed under a ceiling: load it without one, and run batches.

    This counts what `memory.limit` bounds. The system keeps no highest mark of that, so it is polled from outside while
    the worker works, since libraries hold the interpreter while they load.

    :param worker: a fresh one with `ENVIRONMENT` and no ceiling; it is closed.
    :param load: the request `load`.
    :param batches: token ids (N, L).
    :param reserved: bytes that numpy reserves when `load` imports it, which do not count: see `memory.reserved`.
    :returns: the highest number of bytes over the bare interpreter; None when the subject fails without a ceiling, too.
    """

    def work() -> None:
        worker.ask("load", **load)
        for batch in batches:
            worker.ask("time", input_ids=batch, calls=1, warm=False)

    try:
        with ThreadPoolExecutor(1) as thread, worker:
            worker.ask("memory")  # the reply shows that the interpreter has started, without any library
            first = highest = memory.status_bytes("VmData", worker.pid)
            future = thread.submit(work)
            while not future.done():
                highest = max(highest, memory.status_bytes("VmData", worker.pid))
            future.result()
    except WorkerFailed:
        return None
    return highest - first - reserved


def explain_out_of_memory(failure: str, needed: int | None, ceiling: int) -> Failure:
    """Say why a subject failed under a memory ceiling.

    :param failure: the worker's last message.
    :param needed: bytes that the subject takes without a ceiling, if known.
    :param ceiling: bytes.
    """
    if needed is not None and needed > ceiling:
        return Failure(f"needs {ceil(needed / 1e6)} MB, ceiling {ceiling / 1e6:.0f} MB", over_memory=True)
    if any(sign in failure.lower() for sign in _OUT_OF_MEMORY):
        return Failure(f"needs more than the ceiling of {ceiling / 1e6:.0f} MB ({failure})", over_memory=True)
    return Failure(failure)
