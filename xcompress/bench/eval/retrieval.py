"""Translation retrieval: whether a sentence's nearest neighbour is its translation."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.bootstrap import Scores, percentage
from xcompress.bench.eval.task import figures
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import PIVOT, Encode

MUSE = "ar de es fr it ja ko nl pl pt ru th tr zh"
"""What mUSE was trained on, besides English."""
XTREME = "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th tl tr ur vi zh"
"""Those of Tatoeba that XTREME took."""
GROUPS = {"14 languages": MUSE.split(), "36 languages": XTREME.split()}


def whole_groups(languages: Collection[str]) -> dict[str, list[str]]:
    """Return the groups that are there as a whole: the average of a part would be taken for what papers print."""
    return {name: group for name, group in GROUPS.items() if set(group) <= set(languages)}


Vectors = NDArray[np.float32]
Blocks = Callable[[], Iterator[Vectors]]
"""Gives all candidates (M, D), some rows at a time, as often as it is called."""
NEIGHBOURS = 4
"""k of the margin score, as its authors chose it."""
_CELLS = 1 << 23
"""Similarities held in memory at once."""


def block_rows(queries: int) -> int:
    """Return how many candidates to give at a time."""
    return max(1, _CELLS // max(1, queries))


def nearest(queries: Vectors, blocks: Blocks) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest cosine; of equal ones, the first."""
    return _best(len(queries), _similarities(queries, blocks))


def nearest_by_margin(queries: Vectors, blocks: Blocks, neighbours: int = NEIGHBOURS) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest ratio margin.

    margin(x, y) = cos(x, y) / (mean of cos(x, z) over the k candidates nearest to x / 2 + mean of cos(z, y) over the k
    queries nearest to y / 2) (Artetxe and Schwenk, 2019). The blocks are gone through twice.

    :param neighbours: k, or as many as there are.
    """
    highest = np.empty((len(queries), 0), dtype=np.float32)
    around_candidates = []
    for similarity in _similarities(queries, blocks):
        highest = _top(np.concatenate([highest, similarity], axis=1), neighbours)
        around_candidates.append(_top(similarity.T, neighbours).mean(axis=1))
    around_queries = highest.mean(axis=1, keepdims=True)
    margins = (
        similarity / ((around_queries + around) / 2)
        for similarity, around in zip(_similarities(queries, blocks), around_candidates, strict=True)
    )
    return _best(len(queries), margins)


def _similarities(queries: Vectors, blocks: Blocks) -> Iterator[Vectors]:
    """Yield the cosines of all queries with each block, (N, block)."""
    normalised = _unit(queries)
    for block in blocks():
        yield normalised @ _unit(block).T


def _best(queries: int, blocks: Iterator[Vectors]) -> NDArray[np.int64]:
    """Return the column of each row's highest score over all blocks."""
    highest = np.full(queries, -np.inf, dtype=np.float32)
    found = np.zeros(queries, dtype=np.int64)
    start = 0
    for scores in blocks:
        column = scores.argmax(axis=1)
        score = scores[np.arange(queries), column]
        better = score > highest
        highest[better], found[better] = score[better], start + column[better]
        start += scores.shape[1]
    return found


def _top(scores: Vectors, count: int) -> Vectors:
    """Return the highest scores of each row, in no order."""
    kept = min(count, scores.shape[1])
    top: Vectors = np.partition(scores, -kept, axis=1)[:, -kept:]
    return top


def _unit(vectors: Vectors) -> Vectors:
    """Return vectors of length 1; zeros stay zeros."""
    single = vectors.astype(np.float32)
    lengths = np.linalg.norm(single, axis=1, keepdims=True)
    unit: Vectors = np.divide(single, lengths, out=np.zeros_like(single), where=lengths > 0)
    return unit


Translations = tuple[tuple[str, str], ...]
"""English sentences and their translations."""
NEAREST = "nearest neighbour, %"


@dataclass(frozen=True)
class Retrieval:
    """Translations by language, and sentences among which they have to be found as well."""

    name: str
    pairs: Mapping[str, Translations]
    distractors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By language, English too."""
    margin: bool = False
    """Rank by the ratio margin instead of the cosine."""

    @property
    def rows(self) -> int:
        """Translations of the largest language."""
        return max(map(len, self.pairs.values()), default=0)

    def languages(self) -> set[str]:
        """List the languages other than English."""
        return set(self.pairs)

    def sentences(self) -> Iterable[str]:
        """Give both sides of every translation, and the distractors."""
        asked = [PIVOT, *self.pairs]
        yield from (text for rows in self.pairs.values() for pair in rows for text in pair)
        yield from (text for language in asked for text in self.distractors.get(language, ()))

    def within(self, languages: frozenset[str]) -> Self:
        """Keep the wanted languages."""
        return replace(self, pairs={code: rows for code, rows in self.pairs.items() if code in languages})

    def every(self, step: int) -> Self:
        """Keep every `step`-th translation of each language."""
        return replace(self, pairs={code: rows[::step] for code, rows in self.pairs.items()})

    def among(self, distractors: Mapping[str, Sequence[str]], count: int) -> Self:
        """Return the same test among distractors."""
        return replace(self, name=f"{self.name} + {count:,} distractors", distractors=distractors)

    def evaluate(self, encode: Encode, base: Encode | None) -> Accuracy:
        """Count how often the nearest neighbour is the translation, in both directions."""
        own, reference = self._scores(encode), self._scores(base) if base else None
        single, averages = figures(own, reference, _groups(self.pairs))
        metric = NEAREST.replace("neighbour", "neighbour by margin") if self.margin else NEAREST
        return Accuracy(self.name, "retrieval", metric, self.rows, single, averages)

    def _scores(self, encode: Encode) -> dict[str, Scores]:
        scores = {}
        for code, rows in self.pairs.items():
            english, other = zip(*rows, strict=True)
            scores[_to_english(code)] = percentage(self._hits(encode, other, english, PIVOT))
            scores[_from_english(code)] = percentage(self._hits(encode, english, other, code))
        return scores

    def _hits(self, encode: Encode, queries: Sequence[str], targets: Sequence[str], code: str) -> NDArray[np.bool_]:
        return hits(encode, queries, targets, self.distractors.get(code, ()), self.margin)


def hits(
    encode: Encode,
    queries: Sequence[str],
    targets: Sequence[str],
    distractors: Sequence[str] = (),
    margin: bool = False,
) -> NDArray[np.bool_]:
    """Tell for each query (N,) whether it finds its target among all targets and the distractors.

    A sentence that is there several times, as a target or as a distractor, counts once.

    :param margin: rank by the ratio margin instead of the cosine.
    """
    candidates = list(dict.fromkeys([*targets, *distractors]))
    place = {text: number for number, text in enumerate(candidates)}
    step = block_rows(len(queries))

    def blocks() -> Iterator[Vectors]:
        return (encode(candidates[start : start + step]) for start in range(0, len(candidates), step))

    found = (nearest_by_margin if margin else nearest)(encode(queries), blocks)
    right: NDArray[np.bool_] = found == np.array([place[text] for text in targets])
    return right


def _groups(languages: Collection[str]) -> dict[str, list[str]]:
    """List the averages, each with its figures: either direction, both, and both of the languages that papers group."""
    to_english, from_english = ([direction(code) for code in languages] for direction in (_to_english, _from_english))
    grouped = {
        name: [direction(code) for direction in (_to_english, _from_english) for code in group]
        for name, group in whole_groups(languages).items()
    }
    average = [*to_english, *from_english]
    return {f"xx>{PIVOT}": to_english, f"{PIVOT}>xx": from_english, "average": average, **grouped}


def _to_english(code: str) -> str:
    return f"{code}>{PIVOT}"


def _from_english(code: str) -> str:
    return f"{PIVOT}>{code}"
