"""What a bench found, as data: one report of all subjects, read and written as JSON."""

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from xcompress.bench.machine import Machine
from xcompress.errors import InputError

SCHEMA = 2
NOISY = 0.15
"""Interquartile range over median above which a measurement is called noisy."""

Kind = Literal["onnx", "pytorch", "python"]


@dataclass(frozen=True)
class Size:
    """Bytes on disk, and what the weights are."""

    weights: int
    tokenizer: int
    sha256: str
    """Of the weights file; empty where there is none of a single model."""


@dataclass(frozen=True)
class Start:
    """From a fresh process to the first vector with one thread, the files in the system's cache: medians in seconds."""

    processes: int
    """Fresh processes measured."""
    imports: float
    """Importing the library; in a browser, compiling the runtime."""
    model: float
    """Reading the model and its tokenizer."""
    first_vector: float
    spread: float
    """Of their sum: (most - least) / median."""

    @property
    def total(self) -> float:
        """Seconds until the first vector is there."""
        return self.imports + self.model + self.first_vector


@dataclass(frozen=True)
class Memory:
    """Bytes resident in a fresh process with one thread; all but `bare` are over the bare interpreter."""

    bare: int
    resident: int
    """After loading, a first vector and three calls of 1 x 16 tokens."""
    tokenizer: int | None
    """What of `resident` its tokenizer takes, measured by itself in another process."""
    peak: int
    """The highest until then."""
    busy_peak: int | None
    """The highest after all latency shapes with one thread; None when it did not come to that."""


@dataclass(frozen=True)
class Latency:
    """What the calls of one subject took, in seconds, on batches without padding."""

    batch: int
    tokens: int
    threads: int
    rounds: int
    calls: int
    least: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    most: float
    speedup: float | None
    """Time of the reference over time of this subject: the median over the rounds of the ratio of their medians."""
    multiply_adds: int | None = None
    """Of all products in one call."""
    peak_share: float | None = None
    """Multiply-adds per second over those of one large product of matrices on this machine, of the same kind (int8 or
    float32) and with as many threads."""

    @property
    def spread(self) -> float:
        """Interquartile range over median."""
        return (self.p75 - self.p25) / self.p50 if self.p50 else 0.0

    @property
    def noisy(self) -> bool:
        """Whether something else kept the machine busy."""
        return self.spread > NOISY


@dataclass(frozen=True)
class Throughput:
    """Real sentences from text to vectors, all threads, batches by length."""

    threads: int
    sentences: int
    tokens: int | None
    """Of all sentences, special tokens included; None for a subject whose tokens are not known."""
    per_second: float
    """Sentences: the median over the rounds."""
    spread: float
    """Interquartile range over median."""
    tokenizer: float | None
    """Share of the time that the tokenizer takes, measured by itself."""
    speedup: float | None
    single: float | None = None
    """Seconds from one sentence to its vector, tokenizer included: the median."""


@dataclass(frozen=True)
class Figure:
    """A value with its 95 % bootstrap interval, and what the subject has lost against the reference.

    The bootstrap draws rows with replacement; for the drop, the same rows for both (a paired bootstrap).
    """

    value: float
    low: float
    high: float
    drop: float | None = None
    """The reference's value less this one; None for the reference itself, and where there is none."""
    drop_low: float | None = None
    drop_high: float | None = None


@dataclass(frozen=True)
class Accuracy:
    """One subject's figures on one test."""

    test: str
    """Such as `built-in`, `stsb-multi-mt`, `tatoeba`."""
    kind: Literal["similarity", "retrieval", "classification", "agreement"]
    metric: str
    """What the figures are, with their unit, such as `Spearman x 100` or `nearest neighbour, %`."""
    rows: int
    """Rows of the largest language or pair."""
    figures: dict[str, Figure]
    """By language pair, by language, or by direction (`de>en`)."""
    averages: dict[str, Figure]
    """Means of figures over several pairs or languages, as the papers print them."""


@dataclass(frozen=True)
class Browser:
    """What only a browser tells."""

    version: str
    slow_down: float
    """How many times the processor was slowed down."""
    js_heap: int
    """Bytes in use after three calls of 1 x 16 tokens."""
    wasm_memory: int
    """Bytes of WebAssembly memory then."""
    parity: float
    """Least cosine between its vectors and those of onnxruntime outside the browser."""


@dataclass(frozen=True)
class Result:
    """Everything known about one subject; parts are missing when it failed."""

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
    """Why it could not be measured to the end."""


@dataclass(frozen=True)
class DeviceInfo:
    """What the subjects ran on."""

    name: str
    """As the user named it: cpu, mobile, wasm, cuda, ssh:HOST."""
    memory_ceiling: int | None = None
    """Bytes a process may have, enforced by the operating system."""
    emulated: tuple[str, ...] = ()
    """A line for each thing that is emulated, or left out, and so may differ on the real device."""


@dataclass(frozen=True)
class Report:
    """The outcome of one bench."""

    schema: int
    date: str
    xcompress: str
    device: DeviceInfo
    machine: Machine
    quick: bool
    seconds: dict[str, float]
    """How long each part of the bench took."""
    peaks: dict[str, float]
    """Multiply-adds per second of one large product, by kind and threads, such as `int8, 1 thread`."""
    reference: str | None
    """Name of the subject the others are compared with; None when there is none or it failed."""
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = field(default=())

    @property
    def base(self) -> Result | None:
        """The reference's result."""
        return next((one for one in self.results if one.name == self.reference), None)

    def to_json(self) -> str:
        """Return the report as indented JSON."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Report":
        """Read what `to_json` wrote.

        :raises InputError: when the text is not a report.
        """
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "text"
            raise InputError(f"bench report: {where}: {first['msg']}; run `xcompress bench` again") from error
