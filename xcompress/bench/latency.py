"""Time single calls. Subjects take turns within one run, so that whatever slows the machine slows them alike."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from xcompress.bench.results import Latency
from xcompress.errors import InputError
from xcompress.tokenizer_file import read_tokenizer

TURN_SECONDS = 0.05
MAX_CALLS = 10
"""Most calls of a turn."""
SHORT_CALL = 0.1
"""Calls shorter than this are preceded by an untimed one in every turn, since the other subjects emptied the caches."""
MAX_BATCH, MIN_TOKENS, MAX_TOKENS = 512, 3, 512
PERCENTILES = {"least": 0, "p25": 25, "p50": 50, "p75": 75, "p95": 95, "p99": 99, "most": 100}


@dataclass(frozen=True)
class Shape:
    """A batch of sentences of exactly `tokens` tokens, special tokens included, without padding."""

    batch: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.tokens}"


SHAPES = (Shape(1, 16), Shape(1, 128), Shape(32, 32))


def parse_grid(text: str) -> tuple[Shape, ...]:
    """Parse shapes such as `1x16,1x128,32x32`.

    :raises InputError: naming the first that is not a shape.
    """
    shapes = []
    for part in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", part)
        shape = Shape(int(match[1]), int(match[2])) if match else Shape(0, 0)
        if not 1 <= shape.batch <= MAX_BATCH or not MIN_TOKENS <= shape.tokens <= MAX_TOKENS:
            raise InputError(
                f"--grid: {part!r} is not a shape; write batch x tokens, 1 to {MAX_BATCH} x {MIN_TOKENS} to "
                f"{MAX_TOKENS}, such as 1x16"
            )
        shapes.append(shape)
    return tuple(dict.fromkeys(shapes))


@dataclass(frozen=True)
class TimingConfig:
    """How often each time is taken."""

    seconds: float
    """Rounds of one shape with one number of threads are added until this time is over."""
    rounds: int
    """The least number of such rounds, however long they take."""
    processes: int = 3
    """Fresh processes in which the start is measured."""
    passes: int = 3
    """How often the sentences of the throughput are encoded."""
    sentences: int = 128
    """Sentences of the throughput."""


FULL = TimingConfig(seconds=1.5, rounds=5)
QUICK = TimingConfig(seconds=0.3, rounds=2, processes=1, passes=2, sentences=48)

Turn = Callable[[int, bool], list[float]]
"""Times a number of calls, after an untimed one if the flag is set; returns their seconds, or none if it fails."""
Rounds = list[list[float]]
"""Seconds of every call, by round."""


def take_turns(
    turns: Mapping[str, Turn],
    seconds: float,
    least_rounds: int,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Rounds]:
    """Let the subjects work one after the other, round after round, after a round of warm-up.

    A subject that fails takes no further turn.

    :param seconds: rounds are added until this time is over.
    :param least_rounds: so many rounds are made, however long they take.
    :param advance: called after the warm-up and after each of the first `least_rounds` rounds.
    :returns: the seconds of every call, by subject and round, of those that did not fail.
    """
    active = dict(turns)

    def attempt(name: str, calls: int, warm: bool) -> list[float]:
        timed = active[name](calls, warm)
        if not timed:
            del active[name]
        return timed

    pace = {name: min(attempt(name, 1, False), default=1.0) for name in turns}
    advance()
    rounds: dict[str, Rounds] = {name: [] for name in active}
    done, start = 0, perf_counter()
    while done < least_rounds or (active and perf_counter() - start < seconds):
        for name in list(active):
            rounds[name].append(attempt(name, calls_per_turn(pace[name]), pace[name] < SHORT_CALL))
        done += 1
        if done <= least_rounds:
            advance()
    return {name: rounds[name] for name in active}


def calls_per_turn(seconds: float) -> int:
    """Return how many calls of that length fill a turn."""
    return max(1, min(MAX_CALLS, int(TURN_SECONDS / seconds)))


def summarize_calls(
    shape: Shape,
    threads: int,
    rounds: Rounds,
    reference: Rounds | None,
    multiply_adds: int | None = None,
    peak: float | None = None,
) -> Latency:
    """Summarise one subject's calls, and compare them with the reference's round by round.

    :param multiply_adds: of one call.
    :param peak: multiply-adds per second that the machine reaches.
    """
    seconds = np.concatenate(rounds)
    percentiles = np.percentile(seconds, list(PERCENTILES.values())).tolist()
    points: dict[str, float] = dict(zip(PERCENTILES, percentiles, strict=True))
    return Latency(
        batch=shape.batch,
        tokens=shape.tokens,
        threads=threads,
        rounds=len(rounds),
        calls=len(seconds),
        **points,
        speedup=None if reference is None else speedup(rounds, reference),
        multiply_adds=multiply_adds,
        peak_share=multiply_adds / points["p50"] / peak if multiply_adds and peak else None,
    )


def speedup(rounds: Rounds, reference: Rounds) -> float:
    """Return how many times as fast as the reference: the median over the rounds of the ratio of their medians."""
    pairs = zip(rounds, reference, strict=False)
    return float(np.median([np.median(base) / np.median(seconds) for seconds, base in pairs]))


def spread(values: Sequence[float]) -> float:
    """Return interquartile range over median."""
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle)


def real_batches(
    tokenizer_file: Path, sentences: Sequence[str], grid: Sequence[Shape] = SHAPES
) -> dict[Shape, list[list[int]]]:
    """Join real sentences and cut their token ids to the exact length of every shape.

    :raises InputError: when the tokenizer cannot be read, or the sentences are too few to fill a shape.
    """
    tokenizer = read_tokenizer(tokenizer_file)
    tokenizer.no_padding()
    # Each row starts at another sentence.
    rows = max(shape.batch for shape in grid)
    step = max(1, len(sentences) // rows)
    rotated = [[*sentences[row * step :], *sentences[: row * step]] for row in range(rows)]
    texts = [" ".join(row[:128]) for row in rotated]
    batches = {}
    for shape in grid:
        tokenizer.enable_truncation(shape.tokens)
        batches[shape] = [encoding.ids for encoding in tokenizer.encode_batch(texts[: shape.batch])]
        shortest = min(map(len, batches[shape]))
        if shortest != shape.tokens:
            raise InputError(f"graded sentences: {shortest} of {shape.tokens} tokens; use a larger graded set")
    return batches
