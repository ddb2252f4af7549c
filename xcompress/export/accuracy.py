"""Which precision each product gets, tried out on graphs in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from xcompress import console
from xcompress.corpus.graded import builtin, score
from xcompress.errors import GateError
from xcompress.export.graph import GraphOptions, build, with_levels
from xcompress.export.matmul import Level, int8_bytes, matmuls
from xcompress.export.prepare import Prepared
from xcompress.export.text import codes_of, packaged_text, spread
from xcompress.export.verify import Bounds, Reference, beyond_bounds, encode_with, in_turn
from xcompress.metrics import cosines
from xcompress.modeling.student import encode, token_ids

STATIC, TOKEN, FP32 = LEVELS = ("static", "token", "fp32")
"""How a product with a constant weight (a site) is computed: in int8 with activation ranges found beforehand, in int8
with one scale per token, in float32. Each is more precise than the one before."""
_NAMED = 4
"""Pairs and sites named in an error."""

Vectors = NDArray[np.float32]
Encode = Callable[[list[str]], Vectors]
"""Maps n texts to their vectors (n, D)."""
Build = Callable[[Mapping[str, str]], Encode]
"""Makes an encoder whose sites have the given levels."""


@dataclass(frozen=True)
class Regression:
    """A language pair that lost more than the gate allows."""

    pair: str
    before: float
    """Spearman's correlation times 100 in float32."""
    after: float

    @property
    def points(self) -> float:
        """What it lost."""
        return self.before - self.after

    def __str__(self) -> str:
        """Say what fell by how much."""
        return f"{self.pair} by {self.points:.2f} ({self.before:.2f} to {self.after:.2f})"


@dataclass(frozen=True)
class Cost:
    """What one site costs."""

    site: str
    gain: float
    """By how much the mean of 1 - cosine to float32 falls when this site alone is computed in float32."""

    def __str__(self) -> str:
        """Name the site and its part of the loss."""
        return f"{self.site} ({self.gain:.5f})"


def graded_scores(encode: Encode, languages: Sequence[str] = ()) -> dict[str, float]:
    """Score vectors on the package's graded pairs.

    :param encode: is given every distinct sentence once.
    :param languages: the model's; none means all.
    :returns: Spearman's correlation times 100 by language pair, such as `de-de` or `en-de`; empty where the package has
        no pair in these languages.
    """
    graded = builtin().within(codes_of(languages))
    return score(lambda texts: encode(list(texts)), graded) if graded.language_pairs else {}


def fallen(before: Mapping[str, float], after: Mapping[str, float], points: float) -> list[Regression]:
    """List the pairs that lost more than `points`, the worst first; a score that is no number counts as lost."""
    falls = [
        Regression(pair, score, after[pair]) for pair, score in before.items() if not score - after[pair] <= points
    ]
    return sorted(falls, key=lambda fall: -np.nan_to_num(fall.points, nan=np.inf))


def check_gate(
    before: Mapping[str, float],
    after: Mapping[str, float],
    points: float,
    costs: Callable[[], Sequence[Cost]] = tuple,
) -> None:
    """Refuse an export that lost too much.

    :param before: scores in float32, as `graded_scores` gives them.
    :param points: what any pair may lose.
    :param costs: tells what each site costs; asked only when a pair fell.
    :raises GateError: naming the pairs that fell and the sites that cost most.
    """
    if not before:
        console.warn("the accuracy gate was not checked: the package has no graded pairs in the model's languages")
        return
    if falls := fallen(before, after, points):
        raise GateError(
            f"gate: {explained(falls)}, allowed {points:g}{_dearest(costs())}; use --precision auto, or a larger --gate"
        )


def explained(falls: Sequence[Regression]) -> str:
    """Say in one line which pairs fell."""
    more = f" and {len(falls) - _NAMED} more" if len(falls) > _NAMED else ""
    named = ", ".join(map(str, falls[:_NAMED]))
    what = "cosines to PyTorch x 100" if "cosine" in falls[0].pair else "Spearman x 100 on graded pairs"
    return f"{what} fell in {named}{more}"


def loss(vectors: Vectors, reference: Vectors) -> float:
    """Return the mean of 1 - cosine of rows of `vectors` (n, D) with those of `reference` (n, D)."""
    return float((1 - cosines(vectors, reference)).mean())


def matmul_costs(
    build: Build,
    matmuls: Sequence[str],
    texts: Sequence[str],
    reference_vectors: Vectors,
    levels: Mapping[str, str] | None = None,
) -> list[Cost]:
    """Measure what each site costs: what is won by computing it alone in float32 and leaving the others as they are.

    The other way round, quantising one site of a float32 graph, would be the larger graph each time, and would not show
    what a user gets for leaving one site out.

    :param texts: n sentences; about a hundred are enough to tell the sites apart.
    :param reference_vectors: float32 vectors (n, D) of these.
    :param levels: the level of every site as it is; `STATIC` by default.
    :returns: the costs, highest first.
    """
    now = dict(levels or dict.fromkeys(matmuls, STATIC))
    whole = loss(build(now)(list(texts)), reference_vectors)
    costs = [
        Cost(site, whole - loss(build(now | {site: FP32})(list(texts)), reference_vectors))
        for site in console.tracked(matmuls, "sites measured")
    ]
    return sorted(costs, key=lambda cost: -cost.gain)


def _dearest(costs: Sequence[Cost]) -> str:
    if not costs:
        return ""
    named = ", ".join(map(str, costs[:_NAMED]))
    return f"; the sites that cost most (mean of 1 - cosine saved in fp32): {named}"


MOST_STEPS = 28
"""A step raises one site; where there are too many sites to reach float32 in so many steps, several."""
FP32_BYTES = 3
"""Bytes that a weight of one byte needs more in float32."""

Passes = Callable[[Encode], list[Regression]]
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
class SearchResult:
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

    def falls(self, changes: Mapping[str, str]) -> list[Regression]:
        """Ask the gate with some levels changed."""
        return self.passes(self.build(self.levels | dict(changes)))

    def apply(self, changes: Mapping[str, str], falls: Sequence[Regression]) -> None:
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
) -> SearchResult:
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
    return SearchResult(state.start, state.levels, tuple(state.steps), _worst(falls), holds=True)


def trade_text(trade: SearchResult) -> list[str]:
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
        self.known = matmul_costs(state.build, list(state.levels), self.texts, reference_vectors, state.levels)

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


def _raise_until_held(state: _Search, falls: list[Regression], costs: _Costs) -> None:
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


def _worst(falls: Sequence[Regression]) -> float:
    return max((fall.points for fall in falls), default=0.0)


def _highest(cost: Cost) -> float:
    return -cost.gain


SAMPLE = 96
"""Sentences to tell with which products cost most."""


@dataclass(frozen=True)
class Opened:
    """A graph in memory, opened; maps texts to vectors (n, D)."""

    prepared: Prepared
    session: onnxruntime.InferenceSession

    def __call__(self, texts: list[str]) -> Vectors:
        """Encode texts."""
        config = self.prepared.student.config
        sequences = token_ids(self.prepared.tokenizer, texts, config)
        return encode_with(self.session, sequences, config.pad_token_id)


@dataclass(frozen=True)
class Candidate:
    """A student in one form, without a file."""

    prepared: Prepared
    form: GraphOptions

    def at(self, levels: Mapping[str, str]) -> "Candidate":
        """Return the trial with some products at other levels."""
        return replace(self, form=with_levels(self.form, levels))  # type: ignore[arg-type]

    def levels(self) -> dict[str, Level]:
        """Return every product's level."""
        return {name: self.form.products.level(site) for name, site in matmuls(self.prepared.student).items()}

    def open(self) -> "Opened":
        """Write the graph and open it for encoding."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        graph = build(self.prepared.student, self.form).SerializeToString()
        return Opened(self.prepared, onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"]))

    def costs(self) -> list[Cost]:
        """Measure what each product costs."""
        return matmul_costs(self._build, list(self.levels()), *self._sample(), levels=self.levels())

    def search(
        self,
        before: Mapping[str, float],
        points: float,
        languages: Sequence[str],
        reference: Reference,
        bounds: Bounds | None = None,
    ) -> SearchResult:
        """Raise products until no language pair loses more than some points, and vectors are within their bounds.

        Prints the trade.

        :param before: the scores to compare with.
        :raises GateError: when that cannot be reached.
        """
        limits = bounds or Bounds()

        def passes(encoder: Encode) -> list[Regression]:
            assert isinstance(encoder, Opened)
            falls = fallen(before, graded_scores(encoder, languages), points)
            beyond = [] if falls else beyond_bounds(encoder.session, reference, limits)
            return falls or [Regression(what, 100 * bound, 100 * figure) for what, bound, figure in beyond]

        trade = search(self._build, self.levels(), passes, int8_bytes(matmuls(self.prepared.student)), *self._sample())
        for line in trade_text(trade):
            console.say(line)
        return trade

    def _build(self, levels: Mapping[str, str]) -> Encode:
        return self.at(levels).open()

    def _sample(self) -> tuple[list[str], Vectors]:
        texts = spread(in_turn(packaged_text()), SAMPLE)
        return texts, encode(self.prepared.student, self.prepared.tokenizer, texts)
