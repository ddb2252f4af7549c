"""Run a bench: measure every subject in fresh processes, one at work at a time, and compare it with the reference."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np

import xcompress
from xcompress import console
from xcompress.bench.devices import DeviceOptions, check_device, open_device
from xcompress.bench.devices.device import Device
from xcompress.bench.eval import EvalSuite, collect
from xcompress.bench.latency import (
    FULL,
    MAX_TOKENS,
    QUICK,
    SHAPES,
    Rounds,
    Shape,
    TimingConfig,
    real_batches,
    speedup,
    spread,
    summarize_calls,
    take_turns,
)
from xcompress.bench.machine import STAT
from xcompress.bench.measurement import Batches, Measurement
from xcompress.bench.peak import Peaks, measure_peaks
from xcompress.bench.report.format import threads_text
from xcompress.bench.report.notes import failures, load_warnings, noise_warnings, notes_of
from xcompress.bench.report.tables import markdown
from xcompress.bench.results import SCHEMA, Report, Size, Throughput
from xcompress.bench.subjects import Subject, find_subjects
from xcompress.bench.workers.client import Worker, WorkerFailed
from xcompress.bundle.manifest import is_bundle, read_manifest
from xcompress.bundle.tokenizer import BundleTokenizer
from xcompress.console import Ticker
from xcompress.corpus.graded import builtin
from xcompress.corpus.languages import short_code
from xcompress.errors import InputError, XCompressError
from xcompress.files import check_writable, sha256_of, write_text
from xcompress.packages import install_command, is_installed

CHUNK = 256
"""Sentences sent to a worker at once."""
CHECKED_SENTENCES = 5
"""Sentences that are also encoded on an emulated processor."""
SHORTEST = Shape(1, 16)
"""Runs three times before the memory is read, even if the grid does not hold it."""


@dataclass(frozen=True)
class BenchConfig:
    """What is measured, and how thoroughly."""

    grid: tuple[Shape, ...] = SHAPES
    threads: tuple[int | Literal["all"], ...] = ()
    """Numbers of threads; all is as many as the device has. Empty is 1 and all."""
    quick: bool = False
    data: Path | None = None
    """Folder of evaluation sets."""
    languages: tuple[str, ...] = ()
    """Languages to evaluate; empty takes those that all bundles share."""
    distractors: int = 0
    """Further sentences among which a translation has to be found."""
    margin: bool = False
    """Rank translations by the ratio margin instead of the cosine."""

    @property
    def timing(self) -> TimingConfig:
        """How often each time is taken."""
        return QUICK if self.quick else FULL

    def thread_counts(self, max_threads: int) -> tuple[int, ...]:
        """Return the numbers of threads to measure with, ascending.

        :raises InputError: when one is below 1 or above `max_threads`.
        """
        counts = sorted({max_threads if count == "all" else count for count in self.threads or (1, "all")})
        if wrong := [count for count in counts if not 1 <= count <= max_threads]:
            has = threads_text(max_threads)
            raise InputError(f"--threads {wrong[-1]}: the device has {has}; give from 1 to that, or leave it out")
        return tuple(counts)


def bench(
    bundles: Sequence[str | Path] | str | Path | None = None,
    *,
    device: str = "cpu",
    reference: str | Path | None = None,
    config: BenchConfig | None = None,
    options: DeviceOptions | None = None,
) -> Report:
    """Measure size, memory, start, latency, throughput and accuracy of bundles, side by side with a reference.

    :param bundles: folders of bundles, names of released models, and other models to compare, in the forms that
        `reference` takes; None takes the newest `runs/*/bundle`.
    :param device: cpu, mobile, wasm, webgpu, cuda or ssh:HOST.
    :param reference: what to compare with: a bundle, a student, an encoder or `python:module:name`; None takes the
        assistant of the run that the bundles belong to.
    :param config: what is measured, and how thoroughly.
    :param options: options of the device.
    :returns: the report. It is also written to the run's folder, or to the current folder for bundles that belong to
        no run.
    :raises InputError: when there is nothing to measure, a file or the device cannot be used, or every subject fails.
    """
    config, options = config or BenchConfig(), options or DeviceOptions()
    check_device(device, options)
    # Find the subjects and the evaluation sets.
    named = [bundles] if isinstance(bundles, str | Path) else list(bundles or ())
    subjects = find_subjects(named, reference, steps=not config.quick)
    for path in report_files(device, subjects.run or Path()):
        check_writable(path)
    for bundle in subjects.bundles:
        console.say(f"bundle: {bundle.folder}{'' if bundles else ' (the newest)'}")
    for subject in subjects.subjects:
        if subject.broken:
            console.warn(f"{subject.name} is not measured: {subject.broken}")
    known = [bundle.languages for bundle in subjects.bundles if bundle.languages]
    shared = [code for code in known[0] if all(code in languages for languages in known)] if known else []
    suite = collect(
        config.data,
        list(config.languages) or shared,
        run=subjects.run,
        quick=config.quick,
        distractors=config.distractors,
        margin=config.margin,
    )
    suite = _check_languages(suite, config)
    # Measure, and write the report.
    with ExitStack() as stack:
        opened = open_device(device, options, stack)
        thread_counts = config.thread_counts(opened.max_threads)
        prepared, base = opened.prepare(subjects.subjects, subjects.reference)
        report = _Bench(opened, config, suite, thread_counts, base, stack).run(prepared)
    for path in write(report, subjects.run or Path()):
        console.say(f"written: {path}")
    return report


def _check_languages(suite: EvalSuite, config: BenchConfig) -> EvalSuite:
    """Add a note on the requested languages that no test set has; `collect` notes those that a data folder lacks.

    :raises InputError: when no test set has any of them.
    """
    requested = config.languages
    present = {language for task in suite.tasks for language in task.languages()}
    missing = [code for code in requested if short_code(code) not in present]
    if missing and len(missing) == len(requested):
        raise InputError(
            f"--languages: no test set has {', '.join(missing)}; name languages by their codes, such as de, "
            "or give sets with --data"
        )
    if not missing or config.data:
        return suite
    return replace(suite, notes=(*suite.notes, f"no test set has {', '.join(missing)}"))


def write(report: Report, folder: Path) -> tuple[Path, Path]:
    """Write bench.json and bench.md (for other devices bench-mobile.json and so on), each complete or not at all.

    :returns: their paths.
    """
    paths = report_files(report.device.name, folder)
    write_text(paths[0], report.to_json())
    write_text(paths[1], markdown(report))
    return paths


def report_files(device: str, folder: Path) -> tuple[Path, Path]:
    """Return the paths of a report on a device, as JSON and as Markdown."""
    name = re.sub(r"[^\w.-]+", "-", device)
    stem = "bench" if name == "cpu" else f"bench-{name}"
    return folder / f"{stem}.json", folder / f"{stem}.md"


@dataclass(frozen=True)
class _Bench:
    """The fixed parts of one bench: device, configuration, evaluation sets."""

    device: Device
    config: BenchConfig
    suite: EvalSuite
    thread_counts: tuple[int, ...]
    reference: str | None
    """Name of the subject to compare with."""
    stack: ExitStack
    """Stops the workers."""

    def run(self, subjects: Sequence[Subject]) -> Report:
        """Measure the subjects step by step.

        :raises InputError: when every subject fails.
        """
        marks = [("start", perf_counter())]
        timing, sentences = self.config.timing, self.suite.sentences()
        steps = len(subjects) * (timing.processes + -(-len(sentences) // CHUNK))
        steps += len(self.config.grid) * len(self.thread_counts) * (timing.rounds + 1) + timing.passes + 1
        with console.bar("bench", steps) as ticker:
            measurements = self._prepare(subjects)
            self._start(measurements, ticker)
            marks.append(("load", perf_counter()))
            peaks = measure_peaks(self.device.start_peak_worker(), self.thread_counts)
            for threads in self.thread_counts:
                self._time_latency(measurements, threads, peaks, ticker)
                if threads == 1:
                    for measurement in measurements:
                        measurement.record_busy_peak()
            marks.append(("latency", perf_counter()))
            self._time_throughput(measurements, ticker)
            marks.append(("throughput", perf_counter()))
            self._evaluate(measurements, sentences, ticker)
            marks.append(("accuracy", perf_counter()))
        seconds = {name: after - before for (_, before), (name, after) in pairwise(marks)}
        self._explain_failures(measurements)
        return self._report(measurements, peaks, seconds)

    def _prepare(self, subjects: Sequence[Subject]) -> list[Measurement]:
        """Read the sizes, make the batches and measure the tokenizers, once for each tokenizer."""
        prepared: dict[str, tuple[Batches, int | None]] = {}
        measurements = []
        for subject in subjects:
            measurement = Measurement(subject, failed=subject.broken)
            measurements.append(measurement)
            self.stack.callback(measurement.stop_worker)
            if subject.broken:
                continue
            # Reading all files puts them into the system's cache before the start is timed.
            digests = [sha256_of(path) for path in subject.weights]
            weights = sum(path.stat().st_size for path in subject.weights)
            tokenizer = subject.tokenizer
            measurement.size = Size(weights, tokenizer.stat().st_size if tokenizer else 0, next(iter(digests), ""))
            if tokenizer is None:
                continue
            in_bundle = is_bundle(tokenizer.parent)
            key = f"{sha256_of(tokenizer)} {in_bundle}"
            try:
                if key not in prepared:
                    batches = real_batches(tokenizer, builtin().sentences(), [*self.config.grid, SHORTEST])
                    memory = None if self.device.is_remote else _measure_tokenizer(tokenizer, in_bundle)
                    prepared[key] = batches, memory
            except InputError as error:
                measurement.fail(error)
                continue
            batches, measurement.tokenizer_memory = prepared[key]
            longest = subject.max_tokens or MAX_TOKENS
            measurement.batches = {shape: ids for shape, ids in batches.items() if shape.tokens <= longest}
            if SHORTEST not in measurement.batches:
                measurement.batches = {}
                measurement.fail(InputError(f"texts have at most {longest} tokens; a bench needs {SHORTEST.tokens}"))
        return measurements

    def _start(self, measurements: Sequence[Measurement], ticker: Ticker) -> None:
        """Start every subject in turn, several times; the last worker stays."""
        # The first process that opens a graph in 4 bits unpacks it into the cache, which is no part of later starts.
        in_4_bits = [each for each in measurements if not each.failed and each.subject.precision == "int4"]
        for measurement in in_4_bits if self.device.unpacks else ():
            with suppress(XCompressError), self.device.start_worker(measurement.subject) as worker:
                worker.ask("load", **self._load_request(measurement))
        for _ in range(self.config.timing.processes):
            for measurement in measurements:
                if not measurement.failed:
                    try:
                        worker = self.device.start_worker(measurement.subject)
                    except XCompressError as error:
                        measurement.fail(error)
                    else:
                        measurement.load(worker, self._load_request(measurement))
                ticker.advance(note=f"start: {measurement.subject.name}")

    def _load_request(self, measurement: Measurement) -> dict[str, object]:
        """Return the request `load`: the model, and what it encodes before its memory is read."""
        encoded = {"sentence": builtin().sentences()[0], "input_ids": measurement.batches.get(SHORTEST)}
        return self.device.load_request(measurement.subject) | encoded

    def _time_latency(self, measurements: Sequence[Measurement], threads: int, peaks: Peaks, ticker: Ticker) -> None:
        """Time all shapes with one number of threads."""
        for measurement in measurements:
            measurement.ask("threads", count=threads)
        for shape in self.config.grid:
            working = {each.subject.name: each for each in measurements if not each.failed and shape in each.batches}
            turns = {name: partial(measurement.time_calls, shape) for name, measurement in working.items()}
            advance = partial(ticker.advance, note=f"latency: {shape}, {threads_text(threads)}")
            timing = self.config.timing
            rounds = take_turns(turns, timing.seconds, timing.rounds, advance)
            reference = rounds.get(self.reference or "")
            for name, seconds in rounds.items():
                measurement = working[name]
                counted = measurement.multiply_adds
                multiply_adds = counted.of_call(shape.batch, shape.tokens) if counted else None
                peak = peaks.of(measurement.subject, threads)
                latency = summarize_calls(shape, threads, seconds, reference, multiply_adds, peak)
                measurement.latency.append(latency)

    def _time_throughput(self, measurements: Sequence[Measurement], ticker: Ticker) -> None:
        """Time real sentences from text to vectors, with the most threads."""
        texts = builtin().sentences()[: self.config.timing.sentences]
        replies: dict[str, list[dict[str, Any]]] = {}

        def take_turn(measurement: Measurement, calls: int, warm: bool) -> list[float]:
            reply = measurement.ask("throughput", texts=texts)
            if not reply:
                return []
            replies.setdefault(measurement.subject.name, []).append(reply)
            return [reply["seconds"]]

        working = {each.subject.name: each for each in measurements if not each.failed}
        turns = {name: partial(take_turn, measurement) for name, measurement in working.items()}
        advance = partial(ticker.advance, note="throughput")
        rounds = take_turns(turns, 0, self.config.timing.passes, advance)
        reference = rounds.get(self.reference or "")
        for name, seconds in rounds.items():
            threads, warm = self.thread_counts[-1], replies[name][1:]
            working[name].throughput = _summarize_passes(threads, len(texts), seconds, reference, warm)

    def _evaluate(self, measurements: Sequence[Measurement], sentences: Sequence[str], ticker: Ticker) -> None:
        """Encode all sentences of the evaluation sets, the reference first, and score the vectors."""
        base = None
        for measurement in sorted(measurements, key=lambda each: each.subject.name != self.reference):
            name = measurement.subject.name
            vectors = measurement.encode(sentences, CHUNK, partial(ticker.advance, note=f"accuracy: {name}"))
            if vectors is None:
                continue
            try:
                scores = self.suite.score(sentences, vectors)
            except InputError as error:  # a vector is not finite
                measurement.fail(error)
                continue
            measurement.accuracy = self.suite.summarize(scores, base)
            base = scores if name == self.reference else base

    def _explain_failures(self, measurements: Sequence[Measurement]) -> None:
        """Let the device say more about why a subject failed at work."""
        for measurement in measurements:
            if measurement.failed and measurement.batches:
                load, batches = self._load_request(measurement), list(measurement.batches.values())
                failure = self.device.explain_failure(measurement.subject, measurement.failed, load, batches)
                measurement.failed, measurement.over_memory = failure.why, failure.over_memory

    def _untimed_shapes(self, measurements: Sequence[Measurement]) -> Iterator[str]:
        """Yield a note for each subject whose texts have fewer tokens than some shapes."""
        for measurement in measurements:
            subject, timed = measurement.subject, measurement.batches
            shapes = ", ".join(str(shape) for shape in self.config.grid if shape not in timed)
            if shapes and timed and not measurement.failed:
                yield f"{subject.name}: not timed at {shapes}: it takes {subject.max_tokens} tokens of a text"

    def _report(self, measurements: Sequence[Measurement], peaks: Peaks, seconds: dict[str, float]) -> Report:
        working = [each.subject for each in measurements if not each.failed]
        checks = tuple(self.device.check_vectors(working, builtin().sentences()[:CHECKED_SENTENCES]))
        results = [measurement.result() for measurement in measurements]
        if all(result.failed for result in results) and not any(result.over_memory for result in results):
            raise InputError(f"bench: every subject failed; the first, {failures(results)[0]}")
        base = next((each.name for each in results if each.name == self.reference and not each.failed), None)
        # Say what was left out because a package of the extra `bench` is missing.
        left_out = [peaks.left_out] if peaks.left_out else []
        if not (STAT.exists() or is_installed("psutil") or self.device.is_remote):
            left_out.append(f"the load of other programs was not measured: needs psutil; {install_command('bench')}")
        return Report(
            schema=SCHEMA,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            xcompress=xcompress.__version__,
            device=self.device.info,
            machine=self.device.machine,
            quick=self.config.quick,
            seconds=seconds,
            peaks=peaks.labels(),
            reference=base,
            results=tuple(results),
            notes=(
                *notes_of(results, base, self.config.quick),
                *self._untimed_shapes(measurements),
                *checks,
                *self.suite.notes,
                *left_out,
            ),
            warnings=(*failures(results), *load_warnings(self.device.machine), *noise_warnings(results)),
        )


def _measure_tokenizer(path: Path, in_bundle: bool) -> int | None:
    """Return the resident bytes of a tokenizer in a process of its own; None when it cannot be opened there.

    :param in_bundle: open it as `Encoder` does, else with the tokenizers library.
    """
    if in_bundle:
        BundleTokenizer(path.parent, read_manifest(path.parent))  # makes what it keeps in the cache
    try:
        with Worker() as worker:
            return int(worker.ask("tokenizer", file=str(path), in_bundle=in_bundle)["resident"])
    except WorkerFailed:
        return None


def _summarize_passes(
    threads: int, sentences: int, rounds: Rounds, reference: Rounds | None, replies: Sequence[Mapping[str, Any]]
) -> Throughput:
    """Summarise one subject's passes.

    :param replies: the worker's replies, without that of the warm-up.
    """
    seconds = [value for calls in rounds for value in calls]
    # The tokenizer is timed after the whole: the least times are those that other programs have slowed least.
    whole = min(reply["seconds"] for reply in replies)
    tokenizer = min((reply["tokenizer"] for reply in replies if reply["tokenizer"]), default=None)
    single = [value for reply in replies for value in reply.get("single", ())]
    return Throughput(
        threads=threads,
        sentences=sentences,
        tokens=replies[-1]["tokens"],
        per_second=sentences / float(np.median(seconds)),
        spread=spread(seconds),
        tokenizer=min(1.0, tokenizer / whole) if tokenizer and whole else None,
        speedup=None if reference is None else speedup(rounds, reference),
        single=float(np.median(single)) if single else None,
    )
