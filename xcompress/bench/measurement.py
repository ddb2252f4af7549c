"""A subject at work: what holds it, and what has been measured of it so far."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.latency import Rounds, Shape, summarise
from xcompress.bench.results import Accuracy, Browser, Latency, Memory, Result, Size, Start, Throughput
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import WorkerClient, WorkerFailed
from xcompress.bench.workers.work import Work
from xcompress.errors import XCompressError

Batches = dict[Shape, list[list[int]]]


@dataclass
class Measurement:
    """One subject's place in the bench."""

    subject: Subject
    batches: Batches
    size: Size
    tokenizer_memory: int | None = None
    worker: WorkerClient | None = None
    loads: list[dict[str, float]] = field(default_factory=list)
    """Seconds of the parts of each start."""
    memory: Memory | None = None
    work: Work | None = None
    latency: list[Latency] = field(default_factory=list)
    throughput: Throughput | None = None
    accuracy: tuple[Accuracy, ...] = ()
    browser: Browser | None = None
    failed: str | None = None

    @property
    def name(self) -> str:
        """The subject's name."""
        return self.subject.name

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Ask the worker, unless it has failed; an empty reply means that it has."""
        if self.failed or self.worker is None:
            return {}
        try:
            return self.worker.ask(do, **request)
        except WorkerFailed as error:
            self.drop(error)
            return {}

    def drop(self, error: XCompressError) -> None:
        """Give the subject up."""
        self.failed = str(error)
        self.leave()

    def leave(self) -> None:
        """Stop the worker."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def load(self, worker: WorkerClient, request: dict[str, object]) -> None:
        """Start in a new worker, in place of the one before."""
        self.leave()
        self.worker = worker
        reply = self.ask("load", **request)
        if not reply:
            return
        self.loads.append(reply["seconds"])
        self.memory = Memory(reply["bare"], reply["resident"], self.tokenizer_memory, reply["peak"], None)
        if reply.get("disk"):
            self.size = replace(self.size, weights=reply["disk"])
        if reply.get("work"):
            self.work = Work(*reply["work"])
        if reply.get("browser"):
            self.browser = Browser(**reply["browser"])

    def note_busy_peak(self) -> None:
        """Ask for the highest memory so far."""
        reply = self.ask("memory")
        if reply and self.memory:
            self.memory = replace(self.memory, busy_peak=reply["peak"])

    def time(self, shape: Shape, calls: int, warm: bool) -> list[float]:
        """Time calls of one shape.

        :raises WorkerFailed: when the worker fails.
        """
        assert self.worker is not None
        seconds: list[float] = self.worker.ask("time", input_ids=self.batches[shape], calls=calls, warm=warm)["seconds"]
        return seconds

    def timed(
        self,
        shape: Shape,
        threads: int,
        own: Rounds,
        reference: Rounds | None,
        peak: float | None,
    ) -> None:
        """Note what its calls took."""
        work = self.work.of(shape) if self.work else None
        self.latency.append(summarise(shape, threads, own, reference, work, peak))

    def encode(self, texts: Sequence[str], chunk: int, advance: Callable[[], None]) -> NDArray[np.float32] | None:
        """Encode texts, (n, D); None when the worker fails."""
        parts = []
        for start in range(0, len(texts), chunk):
            reply = self.ask("encode", texts=list(texts[start : start + chunk]))
            if reply:
                flat = np.frombuffer(base64.b64decode(reply["vectors"]), dtype="<f4")
                parts.append(flat.reshape(reply["shape"]))
            advance()
        return None if self.failed else np.concatenate(parts)

    def result(self) -> Result:
        """Sum up."""
        one = self.subject
        return Result(
            name=one.name,
            kind=one.kind,
            precision=one.precision,
            path=one.weights[0].as_posix() if one.weights else one.source,
            size=self.size,
            start=_start(self.loads),
            memory=self.memory,
            latency=tuple(self.latency),
            throughput=self.throughput,
            accuracy=self.accuracy,
            browser=self.browser,
            failed=self.failed,
        )


def _start(loads: Sequence[dict[str, float]]) -> Start | None:
    if not loads:
        return None
    imports, model, first_vector = (
        float(np.median([one[part] for one in loads])) for part in ("import", "model", "first_vector")
    )
    totals = [sum(one.values()) for one in loads]
    return Start(len(loads), imports, model, first_vector, (max(totals) - min(totals)) / float(np.median(totals)))
