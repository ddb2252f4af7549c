"""The accuracy gate: how many points of graded similarity an export may lose in any language pair."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xcompress import console
from xcompress.corpus.similarity import builtin, score
from xcompress.errors import GateError
from xcompress.export.sentences import codes_of
from xcompress.metrics import cosines

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
class Fall:
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


def fallen(before: Mapping[str, float], after: Mapping[str, float], points: float) -> list[Fall]:
    """List the pairs that lost more than `points`, the worst first; a score that is no number counts as lost."""
    falls = [Fall(pair, score, after[pair]) for pair, score in before.items() if not score - after[pair] <= points]
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


def explained(falls: Sequence[Fall]) -> str:
    """Say in one line which pairs fell."""
    more = f" and {len(falls) - _NAMED} more" if len(falls) > _NAMED else ""
    named = ", ".join(map(str, falls[:_NAMED]))
    what = "cosines to PyTorch x 100" if "cosine" in falls[0].pair else "Spearman x 100 on graded pairs"
    return f"{what} fell in {named}{more}"


def loss(vectors: Vectors, reference: Vectors) -> float:
    """Return the mean of 1 - cosine of rows of `vectors` (n, D) with those of `reference` (n, D)."""
    return float((1 - cosines(vectors, reference)).mean())


def site_costs(
    build: Build,
    sites: Sequence[str],
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
    now = dict(levels or dict.fromkeys(sites, STATIC))
    whole = loss(build(now)(list(texts)), reference_vectors)
    costs = [
        Cost(site, whole - loss(build(now | {site: FP32})(list(texts)), reference_vectors))
        for site in console.tracked(sites, "sites measured")
    ]
    return sorted(costs, key=lambda cost: -cost.gain)


def _dearest(costs: Sequence[Cost]) -> str:
    if not costs:
        return ""
    named = ", ".join(map(str, costs[:_NAMED]))
    return f"; the sites that cost most (mean of 1 - cosine saved in fp32): {named}"
