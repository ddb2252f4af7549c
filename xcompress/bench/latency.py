"""Latency on request: subjects take turns within one run, so that whatever slows the machine slows them alike."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from xcompress.bench.results import NOISY, Latency
from xcompress.errors import InputError, XCompressError

__all__ = ["FULL", "NOISY", "QUICK", "SHAPES", "Effort", "Latency", "Shape", "real_batches", "summarise", "take_turns"]

TURN_SECONDS = 0.05
MOST_CALLS = 10
QUICK_CALL = 0.1
"""Calls faster than this are preceded by an untimed one in every turn, since the others have emptied the caches."""
MOST_BATCH, MOST_TOKENS = 512, 512


@dataclass(frozen=True)
class Shape:
    """A batch of sentences of exactly `tokens` tokens, special tokens included, without padding."""

    batch: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.tokens}"


SHAPES = (Shape(1, 16), Shape(1, 128), Shape(32, 32))


def parse_grid(text: str) -> tuple[Shape, ...]:
    """Read shapes such as `1x16,1x128,32x32`.

    :raises InputError: naming what is no shape.
    """
    return tuple(dict.fromkeys(_shape(part.strip()) for part in text.split(",")))


def _shape(text: str) -> Shape:
    match = re.fullmatch(r"(\d{1,5})x(\d{1,5})", text)
    shape = Shape(int(match[1]), int(match[2])) if match else Shape(0, 0)
    if not 1 <= shape.batch <= MOST_BATCH or not 3 <= shape.tokens <= MOST_TOKENS:
        raise InputError(
            f"--grid: {text!r} is no shape; write batch x tokens, 1 to {MOST_BATCH} x 3 to {MOST_TOKENS}, such as 1x16"
        )
    return shape


@dataclass(frozen=True)
class Effort:
    """How long one shape is measured with one number of threads."""

    seconds: float
    """Rounds are added until this time is over."""
    rounds: int
    """The least number of rounds, whatever time they take."""
    processes: int = 3
    """Fresh processes in which the start is measured."""
    passes: int = 3
    """Times that the sentences of the throughput are encoded."""
    sentences: int = 128
    """Of the throughput."""


FULL = Effort(seconds=1.5, rounds=5)
QUICK = Effort(seconds=0.3, rounds=2, processes=1, passes=2, sentences=48)

Turn = Callable[[int, bool], list[float]]
"""Times a number of calls, after an untimed one if asked; returns seconds."""
Rounds = list[list[float]]


def take_turns(
    turns: Mapping[str, Turn],
    effort: Effort,
    drop: Callable[[str, XCompressError], None],
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Rounds]:
    """Let the subjects work one after the other, round after round, after a round of warm-up.

    :param drop: called with the name and the error of a subject that failed; it takes no further turn.
    :param advance: called after the warm-up and after each of the first `effort.rounds` rounds.
    :returns: the seconds of every call, by subject and round, of those that did not fail.
    """
    active = dict(turns)

    def attempt(name: str, calls: int, warm: bool) -> list[float]:
        try:
            return active[name](calls, warm)
        except XCompressError as error:
            drop(name, error)
            del active[name]
            return []

    pace = {name: min(attempt(name, 1, False), default=1.0) for name in turns}
    advance()
    rounds: dict[str, Rounds] = {name: [] for name in active}
    done, start = 0, perf_counter()
    while active and (done < effort.rounds or perf_counter() - start < effort.seconds):
        for name in list(active):
            rounds[name].append(attempt(name, calls_per_turn(pace[name]), pace[name] < QUICK_CALL))
        done += 1
        if done <= effort.rounds:
            advance()
    return {name: rounds[name] for name in active}


def calls_per_turn(seconds: float) -> int:
    """Return how many calls of that length fill a turn."""
    return max(1, min(MOST_CALLS, int(TURN_SECONDS / seconds)))


def summarise(
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
    calls = np.concatenate([np.asarray(each) for each in rounds])
    least, p25, p50, p75, p95, p99, most = (
        float(value) for value in np.percentile(calls, [0, 25, 50, 75, 95, 99, 100])
    )
    return Latency(
        batch=shape.batch,
        tokens=shape.tokens,
        threads=threads,
        rounds=len(rounds),
        calls=len(calls),
        least=least,
        p25=p25,
        p50=p50,
        p75=p75,
        p95=p95,
        p99=p99,
        most=most,
        speedup=None if reference is None else speedup(rounds, reference),
        multiply_adds=multiply_adds,
        peak_share=multiply_adds / p50 / peak if multiply_adds and peak else None,
    )


def speedup(rounds: Rounds, reference: Rounds) -> float:
    """Return how many times as fast: the median over the rounds of the ratio of their medians."""
    pairs = zip(rounds, reference, strict=False)
    return float(np.median([np.median(theirs) / np.median(own) for own, theirs in pairs]))


def spread(values: Sequence[float] | NDArray[np.float64]) -> float:
    """Return interquartile range over median."""
    low, middle, high = np.percentile(np.asarray(values), [25, 50, 75])
    return float((high - low) / middle)


def real_batches(
    tokenizer_file: Path, sentences: Sequence[str], grid: Sequence[Shape] = SHAPES
) -> dict[Shape, list[list[int]]]:
    """Cut real sentences, several joined, to token ids of every shape exactly.

    :raises InputError: when the sentences are too few to fill a shape.
    """
    tokenizer = _tokenizer(tokenizer_file)
    rows = max(shape.batch for shape in grid)
    step = max(1, len(sentences) // rows)
    rotated = [[*sentences[row * step :], *sentences[: row * step]] for row in range(rows)]
    texts = [" ".join(row[:128]) for row in rotated]
    return {shape: _cut(tokenizer, texts[: shape.batch], shape.tokens) for shape in grid}


def _tokenizer(file: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise InputError(f"{file}: not a tokenizer ({error}); make the folder again") from error
    tokenizer.no_padding()
    return tokenizer


def _cut(tokenizer: Tokenizer, texts: list[str], tokens: int) -> list[list[int]]:
    tokenizer.enable_truncation(tokens)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    shortest = min(map(len, rows))
    if shortest != tokens:
        raise InputError(f"graded sentences: {shortest} tokens where {tokens} are needed; use a larger graded set")
    return rows
