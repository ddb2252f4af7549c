"""Latency on request: subjects take turns within one run, so that whatever slows the machine slows them alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from tokenizers import Tokenizer

from xcompress.errors import InputError, XCompressError

NOISY = 0.15
"""Interquartile range over median above which a measurement is called noisy."""
TURN_SECONDS = 0.05
MOST_CALLS = 10
QUICK_CALL = 0.1
"""Calls faster than this are preceded by an untimed one in every turn, since the others have emptied the caches."""


@dataclass(frozen=True)
class Shape:
    """A batch of sentences of exactly `tokens` tokens, special tokens included, without padding."""

    batch: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.batch}x{self.tokens}"


SHAPES = (Shape(1, 16), Shape(1, 128), Shape(32, 32))


@dataclass(frozen=True)
class Effort:
    """How long one shape is measured with one number of threads."""

    seconds: float
    """Rounds are added until this time is over."""
    rounds: int
    """The least number of rounds, whatever time they take."""


FULL = Effort(seconds=1.5, rounds=5)
QUICK = Effort(seconds=0.5, rounds=3)


@dataclass(frozen=True)
class Latency:
    """What the calls of one subject took, in seconds."""

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
    most: float
    speedup: float | None
    """Time of the reference over time of this subject: the median over the rounds of the ratio of their medians."""

    @property
    def spread(self) -> float:
        """Interquartile range over median."""
        return (self.p75 - self.p25) / self.p50

    @property
    def noisy(self) -> bool:
        """Whether something else kept the machine busy."""
        return self.spread > NOISY


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


def summarise(shape: Shape, threads: int, rounds: Rounds, reference: Rounds | None) -> Latency:
    """Summarise one subject's calls, and compare them with the reference's round by round."""
    calls = np.concatenate([np.asarray(each) for each in rounds])
    least, p25, p50, p75, p95, most = (float(value) for value in np.percentile(calls, [0, 25, 50, 75, 95, 100]))
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
        most=most,
        speedup=None if reference is None else _speedup(rounds, reference),
    )


def _speedup(rounds: Rounds, reference: Rounds) -> float:
    pairs = zip(rounds, reference, strict=False)
    return float(np.median([np.median(theirs) / np.median(own) for own, theirs in pairs]))


def real_batches(tokenizer_file: Path, sentences: Sequence[str]) -> dict[Shape, list[list[int]]]:
    """Cut real sentences, several joined, to token ids of every shape exactly.

    :raises InputError: when the sentences are too few to fill a shape.
    """
    tokenizer = _tokenizer(tokenizer_file)
    step = max(1, len(sentences) // max(shape.batch for shape in SHAPES))
    rotated = [[*sentences[row * step :], *sentences[: row * step]] for row in range(max(s.batch for s in SHAPES))]
    texts = [" ".join(row[:64]) for row in rotated]
    return {shape: _cut(tokenizer, texts[: shape.batch], shape.tokens) for shape in SHAPES}


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
