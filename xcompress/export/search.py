"""Search which sites of a graph to leave in higher precision until the accuracy gate holds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xcompress import console
from xcompress.errors import GateError
from xcompress.export.gate import (
    FP32,
    LEVELS,
    Build,
    Cost,
    Encode,
    Fall,
    Vectors,
    explained,
    loss,
    site_costs,
)

MOST_STEPS = 28
"""A step raises one site; where there are too many sites to reach float32 in so many steps, several."""
FP32_BYTES = 3
"""Bytes that a weight of one byte needs more in float32."""

Passes = Callable[[Encode], list[Fall]]
"""Tells which language pairs fall through the gate."""


@dataclass(frozen=True)
class Step:
    """A change of one site's level."""

    site: str
    level: str
    """The level it was raised, or in the end lowered, to."""
    worst_fall: float
    """Points that the worst pair had lost after it; 0 where the gate held."""
    bytes_added: int
    """What the change adds to the file; less than nothing where it was taken back."""


@dataclass(frozen=True)
class Trade:
    """What a search found."""

    start: Mapping[str, str]
    """The level of every site before."""
    levels: Mapping[str, str]
    """The level of every site now."""
    steps: tuple[Step, ...]
    before: float
    """Points that the worst pair had lost at the start; 0 where the gate held at once."""
    holds: bool

    @property
    def raised(self) -> dict[str, str]:
        """The sites above the level that they started at."""
        return {site: level for site, level in self.levels.items() if level != self.start[site]}

    @property
    def bytes_added(self) -> int:
        """What the file grows by."""
        return sum(step.bytes_added for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Describe the trade for the manifest."""
        return {"raised": self.raised, "bytes_added": self.bytes_added, "steps": [asdict(step) for step in self.steps]}


class _Search:
    """The state of one search: levels, steps, and what is known of the sites' costs."""

    def __init__(self, build: Build, start: Mapping[str, str], passes: Passes, bytes_of: Mapping[str, int]) -> None:
        self.build, self.passes, self.bytes_of = build, passes, bytes_of
        self.start, self.levels = dict(start), dict(start)
        self.steps: list[Step] = []

    def falls(self, changes: Mapping[str, str]) -> list[Fall]:
        """Ask the gate with some levels changed."""
        return self.passes(self.build(self.levels | dict(changes)))

    def apply(self, changes: Mapping[str, str], falls: Sequence[Fall]) -> None:
        """Keep a change and note it."""
        for site, level in changes.items():
            added = _bytes(level, self.bytes_of[site]) - _bytes(self.levels[site], self.bytes_of[site])
            self.steps.append(Step(site, level, _worst(falls), added))
        self.levels |= changes


def search(
    build: Build,
    start: Mapping[str, str],
    passes: Passes,
    bytes_of: Mapping[str, int],
    texts: Sequence[str],
    reference_vectors: Vectors,
) -> Trade:
    """Raise the sites that cost most, one level at a time, until the gate holds; then take back what is not needed.

    :param build: makes an encoder from the level of every site.
    :param start: the level of every site to start at; none is lowered below it.
    :param passes: tells which language pairs fall through the gate, none where it holds.
    :param bytes_of: bytes of each site's weight in int8.
    :param texts: n sentences to tell the sites' costs with; about a hundred are enough.
    :param reference_vectors: float32 vectors (n, D) of these.
    :raises GateError: when the gate does not hold even with every site in float32.
    """
    state = _Search(build, start, passes, bytes_of)
    falls = state.falls({})
    if falls:
        costs = _Costs(state, texts, reference_vectors)
        _raise_until_held(state, falls, costs)
        _take_back(state)
    return Trade(state.start, state.levels, tuple(state.steps), _worst(falls), holds=True)


def trade_text(trade: Trade) -> list[str]:
    """Put what a search found into lines to print."""
    if not trade.steps:
        return ["precision: the gate holds with every layer in int8"]
    lines = [f"precision: with every layer in int8 the worst pair lost {trade.before:.2f} points"]
    for step in trade.steps:
        after = f"worst pair lost {step.worst_fall:.2f}" if step.worst_fall else "gate holds"
        lines.append(f"  {step.site} to {step.level}: {after}, {step.bytes_added / 1e6:+.2f} MB")
    kept = ", ".join(f"{site} {level}" for site, level in trade.raised.items()) or "none"
    return [*lines, f"  in higher precision: {kept}; {trade.bytes_added / 1e6:+.2f} MB"]


class _Costs:
    """What the sites cost as they are now; a cost is measured again before it decides anything."""

    def __init__(self, state: _Search, texts: Sequence[str], reference_vectors: Vectors) -> None:
        self.state, self.texts, self.reference = state, list(texts), reference_vectors
        self.known = site_costs(state.build, list(state.levels), self.texts, reference_vectors, state.levels)

    def dearest(self, count: int) -> list[str]:
        """Return the sites below float32 that cost most.

        Raising one site rarely makes another cost more. So those that cost most before are measured again until they
        also do now, and the rest keep their old figures.
        """
        below = [cost for cost in self.known if self.state.levels[cost.site] != FP32]
        whole = self._loss({})
        fresh: list[Cost] = []
        while below and (len(fresh) < count or fresh[count - 1].gain < below[0].gain):
            site = below.pop(0).site
            fresh.append(Cost(site, whole - self._loss({site: FP32})))
            fresh.sort(key=_highest)
        self.known = sorted([*fresh, *below], key=_highest)
        return [cost.site for cost in fresh[:count]]

    def _loss(self, changes: Mapping[str, str]) -> float:
        return loss(self.state.build(self.state.levels | dict(changes))(self.texts), self.reference)


def _raise_until_held(state: _Search, falls: list[Fall], costs: _Costs) -> None:
    at_once = math.ceil((len(LEVELS) - 1) * len(state.levels) / MOST_STEPS)
    with console.bar("precision raised", MOST_STEPS) as ticker:
        while falls:
            changes = {site: _next(state.levels[site]) for site in costs.dearest(at_once)}
            if not changes:
                raise GateError(
                    f"gate: even with every layer in float32, {explained(falls)}; "
                    "use a larger --gate, or --precision fp32"
                )
            falls = state.falls(changes)
            state.apply(changes, falls)
            ticker.advance(1, ", ".join(changes))


def _take_back(state: _Search) -> None:
    """Lower each raised site as far as the gate still holds, the largest first."""
    raised = [site for site, level in state.levels.items() if level != state.start[site]]
    largest_first = sorted(raised, key=lambda site: -_bytes(state.levels[site], state.bytes_of[site]))
    for site in console.tracked(largest_first, "raises taken back where they can be"):
        for level in LEVELS[LEVELS.index(state.start[site]) : LEVELS.index(state.levels[site])]:
            if not state.falls({site: level}):
                state.apply({site: level}, [])
                break


def _next(level: str) -> str:
    return LEVELS[LEVELS.index(level) + 1]


def _bytes(level: str, weight: int) -> int:
    """Return what a site needs more at a level than in int8."""
    return FP32_BYTES * weight if level == FP32 else 0


def _worst(falls: Sequence[Fall]) -> float:
    return max((fall.points for fall in falls), default=0.0)


def _highest(cost: Cost) -> float:
    return -cost.gain
