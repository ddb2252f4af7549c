"""The bench: every subject in fresh processes, one working at a time, compared with the reference."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import xcompress
from xcompress import console
from xcompress.bench.devices.device import Device, DeviceOptions, check_device, open_device
from xcompress.bench.eval import EvalSuite, collect
from xcompress.bench.latency import FULL, QUICK, SHAPES, Effort, Shape, real_batches, speedup, spread, take_turns
from xcompress.bench.measurement import Batches, Measurement
from xcompress.bench.peak import Peaks
from xcompress.bench.report.notes import failures, load_warnings, noise_warnings, notes_of
from xcompress.bench.report.tables import markdown
from xcompress.bench.results import SCHEMA, Report, Result, Size, Throughput
from xcompress.bench.subjects import Subject, Subjects, find_subjects
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.console import Ticker
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError, XCompressError
from xcompress.files import sha256_of, write_text

CHUNK = 256
"""Sentences sent to a worker at once."""
CHECKED = 5
"""Sentences that are encoded on an emulated processor, too."""
SHORTEST = Shape(1, 16)
"""What is served three times before the memory is read; the grid need not hold it."""


@dataclass(frozen=True)
class BenchConfig:
    """What is measured, and how thoroughly."""

    grid: tuple[Shape, ...] = SHAPES
    threads: tuple[int, ...] | None = None
    """Counts of threads; None is one, and all."""
    quick: bool = False
    data: Path | None = None
    languages: tuple[str, ...] = ()
    """None means those of the bundles."""
    distractors: int = 0
    """Sentences more, among which a translation has to be found."""
    margin: bool = False
    """Rank translations by the ratio margin instead of the cosine."""

    @property
    def effort(self) -> Effort:
        """How long each figure takes."""
        return QUICK if self.quick else FULL

    def counts(self, most: int) -> tuple[int, ...]:
        """List the numbers of threads to measure with, where there are at most so many."""
        asked = self.threads or (1, most)
        if max(asked) > most:
            raise InputError(f"--threads {max(asked)}: there are {most} here; give 1 to {most}, or all")
        return tuple(sorted(set(asked)))


def bench(
    bundles: Sequence[str | Path] | str | Path | None = None,
    *,
    device: str = "cpu",
    reference: str | Path | None = None,
    plan: BenchConfig | None = None,
    wishes: DeviceOptions | None = None,
) -> Report:
    """Measure size, memory, start, latency, throughput and accuracy of bundles, side by side with a reference.

    :param bundles: folders of bundles, and other models to stand beside them, named as a reference is; None takes the
        newest `runs/*/bundle`.
    :param device: cpu, mobile, wasm, cuda or ssh:HOST.
    :param reference: what to compare with: a bundle, a student, an encoder or `python:module:name`; None takes the
        assistant of the run that the bundles belong to.
    :param plan: what is measured, and how thoroughly.
    :param wishes: what is asked of the device.
    :returns: the report, which `write` also puts into the run's folder, or into the current one for bundles from
        elsewhere.
    :raises InputError: when there is nothing to measure, or a file or device is not what it should be.
    :raises XCompressError: when every subject fails.
    """
    asked, wished = plan or BenchConfig(), wishes or DeviceOptions()
    check_device(device, wished)
    found = find_subjects(
        [bundles] if isinstance(bundles, str | Path) else list(bundles or ()), reference, steps=not asked.quick
    )
    for bundle in found.bundles:
        console.say(f"bundle: {bundle.folder}{'' if bundles else ' (the newest)'}")
    exam = _exam(found, asked)
    with ExitStack() as stack:
        station = open_device(device, wished, stack)
        counts = asked.counts(station.most_threads)
        subjects, base = station.subjects(found.subjects, found.reference)
        report = _Bench(station, asked, exam, counts, base, stack).measure(subjects)
    for path in write(report, found.run or Path()):
        console.say(f"written: {path}")
    return report


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write bench.json and bench.md (of other devices bench-mobile.json and so on), each whole or not at all.

    :returns: their paths.
    """
    device = re.sub(r"[^\w.-]+", "-", report.device.name)
    stem = "bench" if device == "cpu" else f"bench-{device}"
    paths = folder / f"{stem}.json", folder / f"{stem}.md"
    write_text(paths[0], report.to_json())
    write_text(paths[1], markdown(report))
    return paths


def _exam(found: Subjects, plan: BenchConfig) -> EvalSuite:
    own = [bundle.languages for bundle in found.bundles if bundle.languages]
    shared = [code for code in own[0] if all(code in other for other in own)] if own else []
    return collect(
        plan.data,
        list(plan.languages) or shared,
        run=found.run,
        quick=plan.quick,
        distractors=plan.distractors,
        margin=plan.margin,
    )


@dataclass
class _Bench:
    """One bench at work."""

    station: Device
    plan: BenchConfig
    exam: EvalSuite
    counts: tuple[int, ...]
    base: str | None
    stack: ExitStack

    def measure(self, subjects: Sequence[Subject]) -> Report:
        marks = [("start", perf_counter())]
        sentences = self.exam.sentences()
        with console.bar("bench", self._steps(len(subjects), len(sentences))) as ticker:
            seats = self._seated(subjects)
            self._start(seats, ticker)
            marks.append(("load", perf_counter()))
            peaks = Peaks.measure(self.station.bare_worker(), self.counts)
            for count in self.counts:
                self._time(seats, count, peaks, ticker)
                if count == 1:
                    _each_working(seats, Measurement.note_busy_peak)
            marks.append(("latency", perf_counter()))
            self._throughput(seats, ticker)
            marks.append(("throughput", perf_counter()))
            self._examine(seats, sentences, ticker)
            marks.append(("accuracy", perf_counter()))
        seconds = {name: after - before for (_, before), (name, after) in pairwise(marks)}
        self._explain(seats)
        working = [seat.subject for seat in seats if not seat.failed]
        checks = tuple(self.station.checks(working, builtin().sentences()[:CHECKED]))
        return self._report([seat.result() for seat in seats], peaks, seconds, checks)

    def _steps(self, subjects: int, sentences: int) -> int:
        effort, shapes = self.plan.effort, len(self.plan.grid) * len(self.counts)
        each = effort.processes + -(-sentences // CHUNK)
        return subjects * each + shapes * (effort.rounds + 1) + effort.passes + 1

    def _seated(self, subjects: Sequence[Subject]) -> list[Measurement]:
        made: dict[str, tuple[Batches, int | None]] = {}
        seats = [self._seat(subject, made) for subject in subjects]
        for seat in seats:
            self.stack.callback(seat.leave)
        return seats

    def _seat(self, subject: Subject, made: dict[str, tuple[Batches, int | None]]) -> Measurement:
        if subject.broken:
            return Measurement(subject, {}, Size(0, 0, ""), failed=subject.broken)
        size = _size(subject)  # reads the files, and so every subject finds its own in the system's cache
        try:
            batches, memory = self._tokens(subject, made)
        except InputError as error:
            return Measurement(subject, {}, size, failed=str(error))
        return Measurement(subject, batches, size, memory)

    def _tokens(self, subject: Subject, made: dict[str, tuple[Batches, int | None]]) -> tuple[Batches, int | None]:
        """Make a subject's batches, and weigh its tokenizer; both once for each tokenizer."""
        if subject.tokenizer is None:
            return {}, None
        key = sha256_of(subject.tokenizer)
        if key not in made:
            batches = real_batches(subject.tokenizer, builtin().sentences(), [*self.plan.grid, SHORTEST])
            made[key] = batches, _tokenizer_memory(subject.tokenizer)
        return made[key]

    def _start(self, seats: Sequence[Measurement], ticker: Ticker) -> None:
        """Start every subject in turn, several times; the last worker stays."""
        sentence = builtin().sentences()[0]
        for _ in range(self.plan.effort.processes):
            for seat in seats:
                if not seat.failed:
                    self._start_one(seat, sentence)
                ticker.advance(note=f"start: {seat.name}")

    def _start_one(self, seat: Measurement, sentence: str) -> None:
        request = self.station.request(seat.subject)
        try:
            worker = self.station.worker(seat.subject)
        except XCompressError as error:
            seat.drop(error)
            return
        seat.load(worker, {**request, "sentence": sentence, "input_ids": seat.batches.get(SHORTEST)})

    def _explain(self, seats: Sequence[Measurement]) -> None:
        """Say more about why a subject failed at work."""
        sentence = builtin().sentences()[0]
        for seat in seats:
            if seat.failed and seat.batches:
                given = {"sentence": sentence, "input_ids": seat.batches[SHORTEST]}
                seat.failed = self.station.explained(seat.subject, seat.failed, given, list(seat.batches.values()))

    def _time(self, seats: Sequence[Measurement], threads: int, peaks: Peaks, ticker: Ticker) -> None:
        for seat in seats:
            seat.ask("threads", count=threads)
        for shape in self.plan.grid:
            working = {seat.name: seat for seat in seats if not seat.failed and seat.batches}
            turns = {name: partial(seat.time, shape) for name, seat in working.items()}
            advance = partial(ticker.advance, note=f"latency: {shape}, {threads} thread{'s' * (threads > 1)}")
            rounds = take_turns(turns, self.plan.effort, partial(_drop, working), advance)
            for name, own in rounds.items():
                peak = peaks.of(working[name].subject, threads)
                working[name].timed(shape, threads, own, rounds.get(self.base or ""), peak)

    def _throughput(self, seats: Sequence[Measurement], ticker: Ticker) -> None:
        texts = builtin().sentences()[: self.plan.effort.sentences]
        replies: dict[str, list[dict[str, Any]]] = {}

        def turn(seat: Measurement, calls: int, warm: bool) -> list[float]:
            assert seat.worker is not None
            reply = seat.worker.ask("throughput", texts=texts)
            replies.setdefault(seat.name, []).append(reply)
            return [reply["seconds"]]

        working = {seat.name: seat for seat in seats if not seat.failed}
        turns = {name: partial(turn, seat) for name, seat in working.items()}
        effort = Effort(0, self.plan.effort.passes)
        rounds = take_turns(turns, effort, partial(_drop, working), partial(ticker.advance, note="throughput"))
        for name, own in rounds.items():
            base = rounds.get(self.base or "")
            working[name].throughput = _throughput(self.counts[-1], len(texts), own, base, replies[name][1:])

    def _examine(self, seats: Sequence[Measurement], sentences: Sequence[str], ticker: Ticker) -> None:
        base = None
        for seat in sorted(seats, key=lambda one: one.name != self.base):
            if seat.failed:
                continue
            advance = partial(ticker.advance, note=f"accuracy: {seat.name}")
            vectors = seat.encode(sentences, CHUNK, advance)
            if vectors is None:
                continue
            seat.accuracy = self.exam.evaluate(sentences, vectors, base)
            base = vectors if seat.name == self.base else base

    def _report(
        self, results: Sequence[Result], peaks: Peaks, seconds: dict[str, float], checks: tuple[str, ...]
    ) -> Report:
        if all(result.failed for result in results):
            raise InputError(f"bench: every subject failed; the first, {failures(results)[0]}")
        base = next((one.name for one in results if one.name == self.base and not one.failed), None)
        noted = (*notes_of(results, base, self.plan.quick), *checks, *self.exam.notes)
        warnings = (*failures(results), *load_warnings(self.station.machine), *noise_warnings(results))
        return Report(
            schema=SCHEMA,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            xcompress=xcompress.__version__,
            device=self.station.device,
            machine=self.station.machine,
            quick=self.plan.quick,
            seconds=seconds,
            peaks=peaks.described(),
            reference=base,
            results=tuple(results),
            notes=noted,
            warnings=warnings,
        )


def _each_working(seats: Sequence[Measurement], act: Callable[[Measurement], None]) -> None:
    for seat in seats:
        if not seat.failed:
            act(seat)


def _drop(seats: Mapping[str, Measurement], name: str, error: XCompressError) -> None:
    seats[name].drop(error)


def _size(subject: Subject) -> Size:
    tokenizer = subject.tokenizer.stat().st_size if subject.tokenizer else 0
    digest = sha256_of(subject.weights[0]) if subject.weights else ""
    return Size(sum(file.stat().st_size for file in subject.weights), tokenizer, digest)


def _tokenizer_memory(file: Path) -> int | None:
    try:
        with Worker() as worker:
            return int(worker.ask("tokenizer", file=str(file))["resident"])
    except WorkerFailed:
        return None


def _throughput(
    threads: int,
    sentences: int,
    own: list[list[float]],
    reference: list[list[float]] | None,
    replies: Sequence[Mapping[str, Any]],
) -> Throughput:
    seconds = [one for each in own for one in each]
    shares = [reply["tokenizer"] / reply["seconds"] for reply in replies if reply["tokenizer"] and reply["seconds"]]
    single = [one for reply in replies for one in reply.get("single", ())]
    return Throughput(
        threads=threads,
        sentences=sentences,
        tokens=replies[-1]["tokens"],
        per_second=sentences / float(np.median(seconds)),
        spread=spread(seconds),
        tokenizer=float(np.median(shares)) if shares else None,
        speedup=None if reference is None else speedup(own, reference),
        single=float(np.median(single)) if single else None,
    )
