"""The accuracy gate, and the search for the products that need higher precision than int8.

The gate compares Spearman's correlation on graded sentence pairs before and after export. With `--precision auto`, the
search raises the level of single products (see `matmul`) until the gate and the bounds of `verify` hold.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, get_args

import numpy as np

from xcompress import console
from xcompress.bundle.engines import Session, open_on_cpu
from xcompress.corpus.graded import builtin, score
from xcompress.errors import GateError
from xcompress.export.graph import GraphOptions, write_graph
from xcompress.export.matmul import Level, matmuls
from xcompress.export.prepare import Prepared
from xcompress.export.text import language_codes, real_sentences, take_evenly
from xcompress.export.verify import Bounds, Reference, encode_with, find_violations
from xcompress.metrics import Encode, Vectors, cosines
from xcompress.modeling.student import encode, token_ids

LEVELS: tuple[Level, ...] = get_args(Level)
FP32 = LEVELS[-1]
MAX_STEPS = 28
"""Most steps of a search. A step raises one product, or several where one at a time could not raise all to float32."""
FP32_BYTES = 3
"""Bytes that a weight takes in float32 in addition to its one byte in int8."""
SAMPLE = 96
"""Sentences on which the costs of products are measured."""
_NAMED = 4
"""Most language pairs and products that an error names."""

Levels: TypeAlias = Mapping[str, Level]
"""The level of each product, by its name."""
Loss: TypeAlias = Callable[[Levels], float]
"""Measures `mean_loss` at some levels, on about a hundred sentences: enough to tell the products apart."""


@dataclass(frozen=True)
class Regression:
    """A language pair that lost more than the gate allows, or a figure beyond its bound."""

    name: str
    """The language pair, or what the figure measures."""
    before: float
    """Spearman's correlation times 100 in float32; of a figure, its bound."""
    after: float
    """The correlation after the export; of a figure, its value."""
    is_figure: bool = False

    @property
    def points(self) -> float:
        """The points lost; of a figure, how far it is below its bound, times 100."""
        return (100 if self.is_figure else 1) * (self.before - self.after)

    @property
    def summary(self) -> str:
        """The loss in a few words."""
        return str(self) if self.is_figure else f"{self.name} lost {self.points:.2f} points"

    def __str__(self) -> str:
        """Return the name and the loss, or the figure and its bound."""
        if self.is_figure:
            return f"{self.name} is {self.after:.5f}, bound {self.before:g}"
        return f"{self.name} by {self.points:.2f} ({self.before:.2f} to {self.after:.2f})"


@dataclass(frozen=True)
class Cost:
    """The loss that one product causes."""

    matmul: str
    gain: float
    """Decrease of the mean of 1 - cosine to float32 when this product alone is computed in float32."""

    def __str__(self) -> str:
        """Return the product and its share of the loss."""
        return f"{self.matmul} ({self.gain:.5f})"


def graded_scores(encode: Encode, languages: Sequence[str] = ()) -> dict[str, float]:
    """Score an encoder on the package's graded pairs.

    :param encode: called once, with all distinct sentences.
    :param languages: the model's; none means all.
    :returns: Spearman's correlation times 100 by language pair, such as `de-de` or `en-de`; empty where the package has
        no pair in these languages.
    """
    graded = builtin().within(language_codes(languages))
    return score(encode, graded) if graded.language_pairs else {}


def find_regressions(before: Mapping[str, float], after: Mapping[str, float], points: float) -> list[Regression]:
    """List the language pairs that lost more than `points`, the worst first; NaN counts as lost."""
    regressions = [
        Regression(pair, score, after[pair]) for pair, score in before.items() if not score - after[pair] <= points
    ]
    return sorted(regressions, key=lambda regression: -np.nan_to_num(regression.points, nan=np.inf))


def check_gate(
    before: Mapping[str, float],
    after: Mapping[str, float],
    points: float,
    measure_costs: Callable[[], Sequence[Cost]] = tuple,
    advice: str = "use a larger --gate",
) -> None:
    """Refuse an export that loses too much.

    :param before: scores in float32, as `graded_scores` returns them; without any, nothing is refused.
    :param points: the points that any language pair may lose.
    :param measure_costs: measures the cost of each product; called only when a pair lost too much.
    :param advice: what to do then.
    :raises GateError: with the pairs that lost most and the products that cost most.
    """
    regressions = find_regressions(before, after, points)
    if not regressions:
        return
    message = f"gate: {explain_regressions(regressions)}, allowed {points:g}"
    if costs := measure_costs():
        highest = ", ".join(map(str, costs[:_NAMED]))
        message += f"; the products that cost most (mean of 1 - cosine saved in fp32): {highest}"
    raise GateError(f"{message}; {advice}")


def explain_regressions(regressions: Sequence[Regression]) -> str:
    """Describe in one line what was lost where; all are language pairs, or all are figures."""
    more = f" and {len(regressions) - _NAMED} more" if len(regressions) > _NAMED else ""
    fell = "" if regressions[0].is_figure else "Spearman x 100 on graded pairs fell in "
    return f"{fell}{', '.join(map(str, regressions[:_NAMED]))}{more}"


def mean_loss(vectors: Vectors, reference: Vectors) -> float:
    """Return the mean of 1 - cosine of the rows of `vectors` (n, D) to those of `reference` (n, D)."""
    return float((1 - cosines(vectors, reference)).mean())


def matmul_costs(measure_loss: Loss, levels: Levels) -> list[Cost]:
    """Measure the cost of each product: the gain from computing it alone in float32.

    Measuring the reverse, one product quantised in a float32 graph, would take the larger graph each time, and would
    not show what a user gains by leaving out one product.

    :param levels: the present ones.
    :returns: the costs, highest first.
    """
    loss = measure_loss(levels)
    costs = [
        Cost(name, loss - measure_loss({**levels, name: FP32}))
        for name in console.tracked(list(levels), "products measured")
    ]
    return sorted(costs, key=lambda cost: -cost.gain)


@dataclass(frozen=True)
class Step:
    """One change of a product's level."""

    matmul: str
    level: Level
    """The new level."""
    worst: Regression | None
    """What was lost most after the step; None where the gate held."""
    bytes_added: int
    """Growth of the file; negative where a step lowers a level."""


@dataclass(frozen=True)
class SearchResult:
    """The levels that a search chose, and its steps."""

    start: Levels
    """Before the search."""
    levels: Levels
    """After it."""
    steps: tuple[Step, ...]
    before: Regression | None
    """What was lost most at the start; None where the gate held at once."""

    @property
    def raised(self) -> dict[str, Level]:
        """The products above their level at the start."""
        return {name: level for name, level in self.levels.items() if level != self.start[name]}

    @property
    def bytes_added(self) -> int:
        """Growth of the file."""
        return sum(step.bytes_added for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the manifest."""
        steps = [
            {
                "site": step.matmul,
                "level": step.level,
                "worst_fall": step.worst.points if step.worst else 0.0,
                "bytes_added": step.bytes_added,
            }
            for step in self.steps
        ]
        return {"raised": self.raised, "bytes_added": self.bytes_added, "steps": steps}

    def to_lines(self) -> list[str]:
        """Describe the search in lines to print."""
        if self.before is None:
            return ["precision: the gate holds with every product in int8"]
        lines = [f"precision: with every product in int8, {self.before.summary}"]
        for step in self.steps:
            after = step.worst.summary if step.worst else "gate holds"
            lines.append(f"  {step.matmul} to {step.level}: {after}, {step.bytes_added / 1e6:+.2f} MB")
        kept = ", ".join(f"{name} {level}" for name, level in self.raised.items()) or "none"
        return [*lines, f"  in higher precision: {kept}; {self.bytes_added / 1e6:+.2f} MB"]


@dataclass
class Search:
    """A search for the levels with which the gate holds."""

    start: Levels
    """Those at the start; no product goes below its own."""
    find: Callable[[Levels], list[Regression]]
    """Lists what is lost beyond the gate at some levels; empty where the gate holds."""
    measure_loss: Loss
    bytes_of: Mapping[str, int]
    """Bytes of each product's weight in int8."""
    advice: str
    """What to do where the vectors are too far off even with every product in float32."""
    levels: dict[str, Level] = field(init=False)
    """The present ones."""
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.levels = dict(self.start)

    def run(self) -> SearchResult:
        """Raise the products that cost most, one level at a time, until the gate holds; then undo what is not needed.

        :raises GateError: when the gate does not hold even with every product in float32.
        """
        regressions = self.find(self.levels)
        if regressions:
            self.raise_until_gate_holds(regressions)
            self.undo_unneeded()
        return SearchResult(dict(self.start), self.levels, tuple(self.steps), _worst(regressions))

    def apply(self, changes: Levels, regressions: Sequence[Regression]) -> None:
        """Keep a change and record it."""
        for name, level in changes.items():
            added = self._extra_bytes(name, level) - self._extra_bytes(name, self.levels[name])
            self.steps.append(Step(name, level, _worst(regressions), added))
        self.levels |= changes

    def raise_until_gate_holds(self, regressions: list[Regression]) -> None:
        """Raise the products that cost most, until nothing is lost beyond the gate."""
        at_once = math.ceil((len(LEVELS) - 1) * len(self.levels) / MAX_STEPS)
        costs = matmul_costs(self.measure_loss, self.levels)
        with console.bar("precision raised", MAX_STEPS) as ticker:
            while regressions:
                names, costs = self._highest_costs(costs, at_once)
                changes = {name: LEVELS[LEVELS.index(self.levels[name]) + 1] for name in names}
                if not changes:
                    larger = "" if regressions[0].is_figure else ", or use a larger --gate"
                    raise GateError(
                        f"gate: even with every product in float32, {explain_regressions(regressions)}; "
                        f"{self.advice}{larger}"
                    )
                regressions = self.find(self.levels | changes)
                self.apply(changes, regressions)
                ticker.advance(1, ", ".join(changes))

    def undo_unneeded(self) -> None:
        """Lower each raised product as far as the gate still holds, the largest first."""
        raised = [name for name, level in self.levels.items() if level != self.start[name]]
        largest_first = sorted(raised, key=lambda name: -self._extra_bytes(name, self.levels[name]))
        for name in console.tracked(largest_first, "raised levels undone where possible"):
            for level in LEVELS[LEVELS.index(self.start[name]) : LEVELS.index(self.levels[name])]:
                if not self.find(self.levels | {name: level}):
                    self.apply({name: level}, [])
                    break

    def _highest_costs(self, costs: list[Cost], count: int) -> tuple[list[str], list[Cost]]:
        """Return the `count` products below float32 that cost most, and all costs, highest first.

        Raising one product rarely makes another cost more. So those that cost most before are measured again until
        they still do, and the rest keep their old costs.
        """
        old = [cost for cost in costs if self.levels[cost.matmul] != FP32]
        loss = self.measure_loss(self.levels)
        fresh: list[Cost] = []
        while old and (len(fresh) < count or fresh[count - 1].gain < old[0].gain):
            name = old.pop(0).matmul
            fresh.append(Cost(name, loss - self.measure_loss(self.levels | {name: FP32})))
            fresh.sort(key=lambda cost: -cost.gain)
        return [cost.matmul for cost in fresh[:count]], sorted([*fresh, *old], key=lambda cost: -cost.gain)

    def _extra_bytes(self, name: str, level: Level) -> int:
        """Return the bytes of a product at a level, in addition to those in int8."""
        return FP32_BYTES * self.bytes_of[name] if level == FP32 else 0


def _worst(regressions: Sequence[Regression]) -> Regression | None:
    return max(regressions, key=lambda regression: regression.points, default=None)


@dataclass(frozen=True)
class GraphEncoder:
    """An opened graph; maps texts to vectors (n, D)."""

    prepared: Prepared
    session: Session

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Encode texts."""
        config = self.prepared.student.config
        sequences = token_ids(self.prepared.tokenizer, texts, config)
        return encode_with(self.session, sequences, config.pad_token_id)


@dataclass(frozen=True)
class Candidate:
    """A student with options for its graph, which is built when needed."""

    prepared: Prepared
    options: GraphOptions

    def with_levels(self, levels: Levels) -> "Candidate":
        """Return the candidate with these levels of the products."""
        return Candidate(self.prepared, self.options.with_levels(levels))

    def levels(self) -> dict[str, Level]:
        """Return the level of each product."""
        return {
            name: self.options.matmul_writer.level(matmul) for name, matmul in matmuls(self.prepared.student).items()
        }

    def open(self) -> GraphEncoder:
        """Build the graph and open it for encoding, from a file: in memory there would be several copies of it."""
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps files that are mapped
            file = Path(folder) / "model.onnx"
            write_graph(self.prepared.student, self.options, file, external=False)
            return GraphEncoder(self.prepared, open_on_cpu(file))

    def costs(self) -> list[Cost]:
        """Measure the cost of each product."""
        return matmul_costs(self._loss(), self.levels())

    def search(
        self,
        before: Mapping[str, float],
        points: float,
        languages: Sequence[str],
        reference: Reference,
        bounds: Bounds,
        advice: str,
    ) -> SearchResult:
        """Raise products until no language pair loses more than some points, and all figures are within their bounds.

        Prints the result.

        :param before: the scores to compare with.
        :param advice: what to do where that is impossible.
        :raises GateError: then.
        """

        def find(levels: Levels) -> list[Regression]:
            encoder = self.with_levels(levels).open()
            if regressions := find_regressions(before, graded_scores(encoder, languages), points):
                return regressions
            violations = find_violations(encoder.session, reference, bounds)
            return [Regression(what, bound, figure, is_figure=True) for what, figure, bound in violations]

        sizes = {name: matmul.weight.size for name, matmul in matmuls(self.prepared.student).items()}
        result = Search(self.levels(), find, self._loss(), sizes, advice).run()
        for line in result.to_lines():
            console.say(line)
        return result

    def _loss(self) -> Loss:
        """Return what measures the loss to PyTorch's vectors."""
        texts = take_evenly(real_sentences(), SAMPLE)
        reference = encode(self.prepared.student, self.prepared.tokenizer, texts)
        return lambda levels: mean_loss(self.with_levels(levels).open()(texts), reference)
