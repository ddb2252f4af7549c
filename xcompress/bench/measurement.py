"""One subject in the bench: its worker, and the figures measured so far."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.latency import Shape
from xcompress.bench.results import Accuracy, Browser, Latency, Memory, Result, Size, Start, Throughput
from xcompress.bench.subjects import Subject
from xcompress.bench.workers.client import WorkerClient, WorkerFailed, decode_vectors
from xcompress.bench.workers.multiply_adds import MultiplyAdds
from xcompress.errors import XCompressError

Batches = dict[Shape, list[list[int]]]
"""Token ids (N, L) by shape; empty for a subject that takes text only."""


@dataclass
class Measurement:
    """One subject's worker and figures. It changes with every step of the bench, until `result` sums it up."""

    subject: Subject
    batches: Batches = field(default_factory=dict)
    size: Size = field(default_factory=lambda: Size(0, 0, ""))
    tokenizer_memory: int | None = None
    worker: WorkerClient | None = None
    starts: list[dict[str, float]] = field(default_factory=list)
    """Seconds of the parts of each start."""
    memory: Memory | None = None
    multiply_adds: MultiplyAdds | None = None
    latency: list[Latency] = field(default_factory=list)
    throughput: Throughput | None = None
    accuracy: tuple[Accuracy, ...] = ()
    browser: Browser | None = None
    failed: str | None = None
    """Why the subject failed; it is not measured any further."""
    over_memory: bool = False
    """Whether it needs more memory than the device's ceiling."""

    def fail(self, error: XCompressError) -> None:
        """Record a failure and stop the worker."""
        self.failed = str(error)
        self.stop_worker()

    def stop_worker(self) -> None:
        """Stop the worker, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Send a request to the worker; return an empty reply if the subject has failed or fails now."""
        if self.failed or self.worker is None:
            return {}
        try:
            return self.worker.ask(do, **request)
        except WorkerFailed as error:
            self.fail(error)
            return {}

    def load(self, worker: WorkerClient, request: dict[str, object]) -> None:
        """Load the model in a new worker, and record the start, the memory and what else the reply holds."""
        self.stop_worker()
        self.worker = worker
        reply = self.ask("load", **request)
        if not reply:
            return
        self.starts.append(reply["seconds"])
        tokenizer = None if reply.get("browser") else self.tokenizer_memory  # which runs outside the browser
        self.memory = Memory(reply["bare"], reply["resident"], tokenizer, reply["peak"], None)
        if reply.get("disk"):
            self.size = replace(self.size, weights=reply["disk"])
        if reply.get("multiply_adds"):
            self.multiply_adds = MultiplyAdds(*reply["multiply_adds"])
        if reply.get("browser"):
            self.browser = Browser(**reply["browser"])

    def record_busy_peak(self) -> None:
        """Record the worker's highest memory so far, if it has run any shape."""
        reply = self.ask("memory")
        if reply and self.memory and self.latency:
            self.memory = replace(self.memory, busy_peak=reply["peak"])

    def time_calls(self, shape: Shape, calls: int, warm: bool) -> list[float]:
        """Time calls of one shape, after an untimed one if `warm`; return no seconds if the subject fails."""
        reply = self.ask("time", input_ids=self.batches[shape], calls=calls, warm=warm)
        return list(reply.get("seconds", ()))

    def encode(self, texts: Sequence[str], chunk: int, advance: Callable[[], None]) -> NDArray[np.float32] | None:
        """Encode texts to vectors (n, D), `chunk` at a time.

        :returns: None when the worker fails.
        """
        vectors = []
        for start in range(0, len(texts), chunk):
            batch = list(texts[start : start + chunk])
            if reply := self.ask("encode", texts=batch):
                try:
                    vectors.append(decode_vectors(reply, len(batch)))
                except WorkerFailed as error:
                    self.fail(error)
            advance()
        if len({block.shape[1] for block in vectors}) > 1:
            self.fail(WorkerFailed("its vectors have several lengths"))
        return None if self.failed else np.concatenate(vectors)

    def result(self) -> Result:
        """Return all figures."""
        subject, start = self.subject, None
        if self.starts:
            imports, model, first_vector = (
                float(np.median([seconds[part] for seconds in self.starts]))
                for part in ("import", "model", "first_vector")
            )
            totals = [sum(seconds.values()) for seconds in self.starts]
            spread = (max(totals) - min(totals)) / float(np.median(totals))
            start = Start(len(self.starts), imports, model, first_vector, spread)
        return Result(
            name=subject.name,
            kind=subject.kind,
            precision=subject.precision,
            path=subject.weights[0].as_posix() if subject.weights else subject.source,
            size=self.size,
            start=start,
            memory=self.memory,
            latency=tuple(self.latency),
            throughput=self.throughput,
            accuracy=self.accuracy,
            browser=self.browser,
            failed=self.failed,
            over_memory=self.over_memory,
        )
