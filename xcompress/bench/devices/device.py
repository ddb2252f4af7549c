"""The interface of a device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xcompress.bench.machine import Machine
from xcompress.bench.results import DeviceInfo
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import Worker, WorkerClient


@dataclass(frozen=True)
class Failure:
    """Why a subject could not be measured."""

    why: str
    over_memory: bool = False
    """Whether it needs more memory than the device has."""


class Device:
    """A place where subjects run. The defaults here start plain worker processes on this machine."""

    info: DeviceInfo
    machine: Machine
    max_threads: int
    is_remote = False
    """Whether subjects run on another host, so that figures of this machine say nothing about them."""
    unpacks = True
    """Whether graphs in 4 bits are unpacked into the cache when they are first opened."""

    def prepare(self, subjects: Sequence[Subject], reference: str | None) -> tuple[list[Subject], str | None]:
        """Convert or copy the subjects for this device.

        :param reference: name of the subject to compare with.
        :returns: the subjects that can run here, and the name of the one to compare with.
        """
        return list(subjects), reference

    def start_worker(self, subject: Subject) -> WorkerClient:
        """Start a fresh worker for a subject."""
        return Worker()

    def load_request(self, subject: Subject) -> dict[str, object]:
        """Return the part of the request `load` that names the model."""
        return {"kind": subject.kind, "source": subject.source, "precision": subject.precision}

    def start_peak_worker(self) -> WorkerClient | None:
        """Start a worker without limits that times the processor's peak; None where it cannot be timed."""
        return Worker()

    def explain_failure(
        self, subject: Subject, failure: str, load: Mapping[str, object], batches: Sequence[list[list[int]]]
    ) -> Failure:
        """Explain a failure better, if the device can.

        :param failure: the message of the worker.
        :param load: the request `load`.
        :param batches: token ids (N, L) of the shapes that are timed.
        """
        return Failure(failure)

    def check_vectors(self, subjects: Sequence[Subject], sentences: Sequence[str]) -> Iterator[str]:
        """Compare the vectors with those of another engine or processor; yield notes for the report."""
        return iter(())
