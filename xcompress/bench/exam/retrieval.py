"""Translation retrieval: whether a sentence's nearest neighbour is its translation."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.exam.bootstrap import Scores, percentage
from xcompress.bench.exam.groups import whole_groups
from xcompress.bench.exam.marking import figures
from xcompress.bench.exam.nearest import Vectors, block_rows, nearest, nearest_by_margin
from xcompress.bench.results import Accuracy
from xcompress.corpus.similarity import PIVOT, Encode

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

    def mark(self, encode: Encode, base: Encode | None) -> Accuracy:
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
