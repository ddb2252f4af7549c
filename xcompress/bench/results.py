"""The results of a bench: one report of all subjects, read and written as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from pydantic import Field

from xcompress.bench.machine import Machine
from xcompress.printable import printable

SCHEMA = 2
UNKNOWN = "-"
"""Precision of a subject that could not be opened, or whose weights are not known."""
NOISY = 0.15
"""Interquartile range over median above which a measurement counts as noisy."""

Kind = Literal["onnx", "openvino", "executorch", "litert", "pytorch", "python"]
Bytes = Annotated[int, Field(gt=-(2**63), lt=2**63)]
"""Memory may be less than that of the bare interpreter."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A ratio, or a rate."""
Interval = tuple[float, float, float]
"""A value, and the lower and upper end of its 95 % interval."""


@dataclass(frozen=True)
class Size:
    """Bytes on disk."""

    weights: Bytes
    tokenizer: Bytes
    sha256: str
    """Of the main weights file; empty if there is none."""

    @property
    def total(self) -> int:
        """Bytes of weights and tokenizer together."""
        return self.weights + self.tokenizer


@dataclass(frozen=True)
class Start:
    """Median seconds from a fresh process to the first vector, with one thread and the files in the system's cache."""

    processes: int
    """Number of fresh processes measured."""
    imports: Seconds
    """Import the library; in a browser, compile the runtime."""
    model: Seconds
    """Read the model and its tokenizer."""
    first_vector: Seconds
    spread: Share
    """(most - least) / median of the sum."""

    @property
    def total(self) -> float:
        """Seconds until the first vector."""
        return self.imports + self.model + self.first_vector


@dataclass(frozen=True)
class Memory:
    """Resident bytes of a fresh process with one thread; all but `bare` are over the bare interpreter."""

    bare: Bytes
    resident: Bytes
    """After loading, a first vector and three calls of 1 x 16 tokens."""
    tokenizer: Bytes | None
    """The tokenizer's share of `resident`, measured in another process; None in a browser and on another host."""
    peak: Bytes
    """The highest value until then."""
    busy_peak: Bytes | None
    """The highest value after all latency shapes with one thread; None if none was run with one thread."""


@dataclass(frozen=True)
class Latency:
    """Seconds of the calls of one subject, on batches without padding."""

    batch: int
    tokens: int
    threads: int
    rounds: Annotated[int, Field(ge=1)]
    calls: int
    least: Seconds
    p25: Seconds
    p50: Seconds
    p75: Seconds
    p95: Seconds
    p99: Seconds
    most: Seconds
    speedup: Share | None
    """Time of the reference over time of this subject: the median over the rounds of the ratio of their medians."""
    multiply_adds: int | None = None
    """Of all matrix products in one call."""
    peak_share: float | None = None
    """Multiply-adds per second over those of one large matrix product on this machine, of the same kind (int8 or
    float32) and with the same number of threads."""

    @property
    def call(self) -> tuple[int, int, int]:
        """Batch, tokens and threads: latencies of the same call can be compared."""
        return self.batch, self.tokens, self.threads

    @property
    def spread(self) -> float:
        """Interquartile range over median."""
        return (self.p75 - self.p25) / self.p50 if self.p50 else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the calls spread by more than `NOISY`."""
        return self.spread > NOISY


@dataclass(frozen=True)
class Throughput:
    """Real sentences from text to vectors, with all threads, in batches of similar length."""

    threads: int
    sentences: int
    tokens: int | None
    """Tokens of all sentences, special tokens included; None if the subject's tokens are unknown."""
    per_second: Share
    """Sentences per second: the median over the rounds."""
    spread: Share
    """Interquartile range over median."""
    tokenizer: float | None
    """The tokenizer's share of the time, from the least time of each; the tokenizer is timed separately."""
    speedup: Share | None
    single: Seconds | None = None
    """Seconds from one sentence to its vector, tokenizer included: the median."""


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % interval, and the drop against the reference on the same rows with its own interval.

    xcompress/bench/eval/intervals.py says how they are computed.
    """

    value: float
    low: float
    high: float
    drop: float | None = None
    """The reference's value minus this one; None for the reference itself, or without a reference."""
    drop_low: float | None = None
    drop_high: float | None = None

    @property
    def drop_interval(self) -> Interval | None:
        """The drop and its interval; None for the reference itself, or without a reference."""
        if self.drop is None or self.drop_low is None or self.drop_high is None:
            return None
        return self.drop, self.drop_low, self.drop_high


@dataclass(frozen=True)
class Accuracy:
    """One subject's figures on one evaluation set."""

    test: str
    """Such as `built-in`, `stsb-multi-mt`, `tatoeba`."""
    kind: Literal["similarity", "retrieval", "classification", "agreement"]
    metric: str
    """The metric and its unit, such as `Spearman x 100` or `nearest neighbour, %`."""
    rows: int
    """Rows of the largest language or pair."""
    figures: dict[str, Figure]
    """By language pair, by language, or by direction (`de>en`)."""
    averages: dict[str, Figure]
    """Means over several pairs or languages, as papers report them."""

    @property
    def all_figures(self) -> dict[str, Figure]:
        """The averages, then the other figures."""
        return self.averages | {name: figure for name, figure in self.figures.items() if name not in self.averages}


@dataclass(frozen=True)
class Browser:
    """Figures that only a browser has."""

    version: str
    slow_down: float
    """Factor by which the processor was slowed down."""
    js_heap: Bytes
    """Bytes of JavaScript's heap after three calls of 1 x 16 tokens."""
    wasm_memory: Bytes
    """Bytes of WebAssembly memory at that time."""
    parity: float
    """Least cosine between the browser's vectors and those of native onnxruntime."""
    runtime: int | None = None
    """Bytes of onnxruntime-web, which a page downloads beside the model; None in older reports."""


@dataclass(frozen=True)
class Result:
    """All figures of one subject; some are missing if it failed."""

    name: str
    kind: Kind
    precision: str
    path: str
    size: Size
    start: Start | None = None
    memory: Memory | None = None
    latency: tuple[Latency, ...] = ()
    throughput: Throughput | None = None
    accuracy: tuple[Accuracy, ...] = ()
    browser: Browser | None = None
    failed: str | None = None
    """Why the subject could not be measured to the end."""
    over_memory: bool = False
    """Whether it failed because it needs more memory than the device's ceiling."""

    def accuracy_on(self, test: str) -> Accuracy | None:
        """Return the figures on a test; None where there are none."""
        return next((accuracy for accuracy in self.accuracy if accuracy.test == test), None)

    def latency_of(self, call: tuple[int, int, int]) -> Latency | None:
        """Return the latency of a call; None where it was not timed."""
        return next((latency for latency in self.latency if latency.call == call), None)

    def start_speedup(self, reference: "Result | None") -> float | None:
        """Return how many times as fast as the reference it starts; None where one of them was not measured."""
        if reference and reference.start and self.start and self.start.total:
            return reference.start.total / self.start.total
        return None


@dataclass(frozen=True)
class DeviceInfo:
    """The device that the subjects ran on."""

    name: str
    """cpu, mobile, wasm, webgpu, cuda or ssh:HOST."""
    memory_ceiling: Bytes | None = None
    """Bytes that a process may allocate, enforced by the operating system."""
    emulated: tuple[str, ...] = ()
    """A line for each thing that is emulated or left out, and may differ on a real device."""


@dataclass(frozen=True)
class Report:
    """The report of one bench."""

    schema: int
    date: str
    xcompress: str
    device: DeviceInfo
    machine: Machine
    quick: bool
    seconds: dict[str, float]
    """How long each step of the bench took."""
    peaks: dict[str, float]
    """Multiply-adds per second of one large matrix product, by kind and threads, such as `int8, 1 thread`."""
    reference: str | None
    """Name of the subject that the others are compared with; None if there is none or it failed."""
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def base(self) -> Result | None:
        """The result of the reference."""
        return next((result for result in self.results if result.name == self.reference), None)

    @property
    def thread_counts(self) -> list[int]:
        """The numbers of threads that latency was measured with, ascending."""
        return sorted({latency.threads for result in self.results for latency in result.latency})

    def to_json(self) -> str:
        """Return the report as indented JSON."""
        return printable(json.dumps(asdict(self), indent=2, ensure_ascii=False)) + "\n"
