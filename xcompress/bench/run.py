"""The bench: every subject in a fresh process, one working at a time, compared with the reference."""

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from xcompress import console
from xcompress.bench.accuracy import QUICK_STEP, Accuracy, Exam, prepare
from xcompress.bench.devices import all_threads, check_device, describe
from xcompress.bench.latency import FULL, QUICK, SHAPES, Effort, Latency, Shape, real_batches, summarise, take_turns
from xcompress.bench.process import Worker, WorkerFailed
from xcompress.bench.report import SCHEMA, Load, Memory, Report, Result, Size, load_warnings, noise_warnings
from xcompress.bench.subjects import REFERENCE, Place, Subject, find_bundle, subjects_of
from xcompress.console import Ticker
from xcompress.errors import XCompressError
from xcompress.files import sha256_of

CHUNK = 256
"""Sentences sent to a worker at once."""
Batches = dict[Shape, list[list[int]]]


@dataclass
class Seat:
    """A subject at work: its process, and what has been measured so far."""

    subject: Subject
    batches: Batches
    worker: Worker
    sha256: str
    load: Load | None = None
    memory: Memory | None = None
    latency: list[Latency] = field(default_factory=list)
    accuracy: tuple[Accuracy, ...] = ()
    failed: str | None = None

    def ask(self, do: str, **request: object) -> dict[str, Any]:
        """Ask the worker, unless it has failed; an empty reply means that it has."""
        if self.failed:
            return {}
        try:
            return self.worker.ask(do, **request)
        except WorkerFailed as error:
            self.drop(error)
            return {}

    def drop(self, error: XCompressError) -> None:
        """Give the subject up."""
        self.failed = str(error)
        self.worker.close()

    def time(self, shape: Shape, calls: int, warm: bool) -> list[float]:
        """Time calls of one shape.

        :raises WorkerFailed: when the worker fails.
        """
        seconds: list[float] = self.worker.ask("time", input_ids=self.batches[shape], calls=calls, warm=warm)["seconds"]
        return seconds

    def result(self) -> Result:
        """Sum up."""
        one = self.subject
        weights = sum(file.stat().st_size for file in one.weight_files())
        size = Size(weights, one.tokenizer.stat().st_size, self.sha256)
        parts = (size, self.load, self.memory, tuple(self.latency), self.accuracy, self.failed)
        return Result(one.name, one.kind, one.precision, one.weights.as_posix(), *parts)


def bench(
    bundle: Path | None = None,
    *,
    device: str = "cpu",
    data: Path | None = None,
    quick: bool = False,
    reference: Path | None = None,
) -> Report:
    """Measure size, memory, load time, latency and accuracy of a bundle and of the models it came from.

    :param bundle: the bundle's folder; None takes the newest `runs/*/bundle`.
    :param data: a folder with a graded similarity set to score besides the built-in one.
    :param quick: measure fewer rounds and fewer sentences.
    :param reference: a Student folder to compare with; None takes the run's own.
    :returns: the report, which is also written to bench.json and bench.md in the run's folder, or in the current folder
        for a bundle from elsewhere.
    :raises InputError: when there is nothing to measure or a file is not what it should be.
    :raises XCompressError: when every subject fails.
    """
    check_device(device)
    place = find_bundle(bundle)
    console.say(f"bundle: {place.bundle}{' (the newest)' if bundle is None else ''}")
    subjects = subjects_of(place, reference)
    exam = prepare(place, data, quick)
    report = _measure(place, subjects, exam, quick)
    for path in report.write(place.results):
        console.say(f"written: {path}")
    return report


def _measure(place: Place, subjects: Sequence[Subject], exam: Exam, quick: bool) -> Report:
    start, machine = perf_counter(), describe()
    effort = QUICK if quick else FULL
    sentences = exam.sentences()
    with ExitStack() as stack, console.bar("bench", _steps(len(subjects), effort, len(sentences))) as ticker:
        seats = _load(subjects, exam, stack, ticker)
        loaded = perf_counter()
        _time(seats, effort, 1, ticker)
        _note_busy_peak(seats)
        if machine.threads > 1:
            _time(seats, effort, machine.threads, ticker)
        timed = perf_counter()
        _examine(seats, exam, sentences, ticker)
    phases = {"load": loaded - start, "latency": timed - loaded, "accuracy": perf_counter() - timed}
    results = tuple(seat.result() for seat in seats)
    _require_one(results)
    return Report(
        schema=SCHEMA,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        bundle=place.bundle.as_posix(),
        run=place.run.as_posix() if place.run else None,
        quick=quick,
        seconds=phases,
        machine=machine,
        reference=next((one.name for one in results if one.name == REFERENCE and not one.failed), None),
        results=results,
        notes=tuple(_notes(place, results, quick)),
        warnings=(*_failures(results), *load_warnings(machine), *noise_warnings(results)),
    )


def _steps(subjects: int, effort: Effort, sentences: int) -> int:
    shapes = len(SHAPES) * (1 + (all_threads() > 1))
    return subjects + shapes * (effort.rounds + 1) + subjects * -(-sentences // CHUNK)


def _load(subjects: Sequence[Subject], exam: Exam, stack: ExitStack, ticker: Ticker) -> list[Seat]:
    sentences = exam.graded[0].sentences()
    made: dict[str, tuple[Batches, int | None]] = {}
    seats = []
    for subject in subjects:
        key = sha256_of(subject.tokenizer)
        weights = sha256_of(subject.weights)  # and so every subject finds its file in the system's cache
        made[key] = made.get(key) or (real_batches(subject.tokenizer, sentences), _tokenizer_memory(subject.tokenizer))
        batches, tokenizer = made[key]
        seats.append(Seat(subject, batches, stack.enter_context(Worker()), weights))
        _load_one(seats[-1], sentences[0], tokenizer)
        ticker.advance(note=f"load: {subject.name}")
    return seats


def _tokenizer_memory(file: Path) -> int | None:
    try:
        with Worker() as worker:
            return int(worker.ask("tokenizer", file=str(file))["resident"])
    except WorkerFailed:
        return None


def _load_one(seat: Seat, sentence: str, tokenizer: int | None) -> None:
    one = seat.subject
    request = {"kind": one.kind, "folder": str(one.folder), "precision": one.precision, "sentence": sentence}
    reply = seat.ask("load", **request, input_ids=seat.batches[SHAPES[0]])
    if reply:
        seconds = reply["seconds"]
        seat.load = Load(seconds["import"], seconds["model"], seconds["first_vector"])
        seat.memory = Memory(reply["bare"], reply["resident"], tokenizer, reply["peak"], None)


def _working(seats: Sequence[Seat]) -> dict[str, Seat]:
    return {seat.subject.name: seat for seat in seats if not seat.failed}


def _time(seats: Sequence[Seat], effort: Effort, threads: int, ticker: Ticker) -> None:
    for seat in seats:
        seat.ask("threads", count=threads)
    for shape in SHAPES:
        working = _working(seats)
        turns = {name: partial(seat.time, shape) for name, seat in working.items()}
        advance = partial(ticker.advance, note=f"latency: {shape}, {threads} thread{'s' * (threads > 1)}")
        rounds = take_turns(turns, effort, partial(_drop, working), advance)
        for name, own in rounds.items():
            working[name].latency.append(summarise(shape, threads, own, rounds.get(REFERENCE)))


def _drop(seats: Mapping[str, Seat], name: str, error: XCompressError) -> None:
    seats[name].drop(error)


def _note_busy_peak(seats: Sequence[Seat]) -> None:
    for seat in _working(seats).values():
        reply = seat.ask("memory")
        if reply and seat.memory:
            seat.memory = replace(seat.memory, busy_peak=reply["peak"])


def _examine(seats: Sequence[Seat], exam: Exam, sentences: Sequence[str], ticker: Ticker) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vectors.npy"
        for seat in _working(seats).values():
            parts = []
            for start in range(0, len(sentences), CHUNK):
                if seat.ask("encode", texts=sentences[start : start + CHUNK], file=str(file)) or not seat.failed:
                    parts.append(np.load(file))
                ticker.advance(note=f"accuracy: {seat.subject.name}")
            if not seat.failed:
                seat.accuracy = exam.mark(sentences, np.concatenate(parts))


def _failures(results: Sequence[Result]) -> list[str]:
    return [f"{result.name}: failed: {result.failed}" for result in results if result.failed]


def _require_one(results: Sequence[Result]) -> None:
    if all(result.failed for result in results):
        raise XCompressError(f"bench: every subject failed; the first, {_failures(results)[0]}")


def _notes(place: Place, results: Sequence[Result], quick: bool) -> list[str]:
    notes = []
    if place.run is None:
        notes.append("the bundle belongs to no run here: only what the bundle holds was measured")
    if REFERENCE not in (result.name for result in results):
        notes.append("no reference: name a Student folder with --reference to see the loss")
    if quick:
        notes.append(f"quick: every {QUICK_STEP}rd row of the graded sets, few rounds; leave it out for final figures")
    calls = [latency.calls for result in results for latency in result.latency]
    return [*notes, f"{min(calls)} to {max(calls)} calls per latency figure"] if calls else notes
