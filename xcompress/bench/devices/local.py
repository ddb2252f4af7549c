"""This machine: its processors, or its CUDA device."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

from xcompress.bench.devices.device import Device
from xcompress.bench.machine import describe
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient
from xcompress.bundle.encoder import Encoder, Precision
from xcompress.bundle.engines import openvino_reads
from xcompress.bundle.manifest import graphs_of, read_manifest
from xcompress.machine import available_threads
from xcompress.metrics import cosines
from xcompress.packages import is_installed


class LocalDevice(Device):
    """This machine.

    :param name: cpu or cuda.
    """

    def __init__(self, name: str) -> None:
        left_out = ("memory: that of the process; the memory of the CUDA device is not counted",)
        self.info = DeviceInfo(name, emulated=left_out if name == "cuda" else ())
        self.machine, self.max_threads = describe(), available_threads()

    def prepare(self, subjects: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Add a subject in OpenVINO for every graph of standard operators, where OpenVINO is installed."""
        prepared = []
        for subject in subjects:
            prepared.append(subject)
            if self.info.name == "cpu" and subject.kind == "onnx" and not subject.broken and is_installed("openvino"):
                folder = Path(subject.source)
                manifest = read_manifest(folder)
                graph = graphs_of(folder, manifest)[subject.precision]
                if manifest.get("operators") == "standard" and openvino_reads(manifest, subject.precision, graph):
                    prepared.append(replace(subject, name=f"{subject.name} in OpenVINO", kind="openvino"))
        return prepared, reference

    def check_vectors(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Compare OpenVINO's vectors with onnxruntime's, and say which engine `Encoder` chooses."""
        for subject in subjects:
            if subject.kind == "openvino":
                open_with = partial(Encoder, subject.source, precision=cast(Precision, subject.precision))
                vectors = [open_with(engine=engine).encode(sentences) for engine in ("openvino", "onnxruntime")]
                default = open_with()
                yield (
                    f"{subject.name}: cosine to onnxruntime's vectors {cosines(*vectors).min():.4f} at worst; Encoder "
                    f"opens {default.engine} by default: {default.engine_reason}"
                )

    def load_request(self, subject: Subject) -> dict[str, object]:
        """Return the part of the request `load` that names the model and the device."""
        return super().load_request(subject) | {"device": self.info.name}

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker; None for CUDA, whose peak is not timed."""
        return Worker() if self.info.name == "cpu" else None
