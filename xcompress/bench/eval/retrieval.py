"""Translation retrieval: the nearest neighbour of a sentence should be its translation."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from xcompress.bench.eval.intervals import Hits, share_figure
from xcompress.bench.eval.task import PairTask, summarize_scores
from xcompress.bench.results import Accuracy
from xcompress.corpus.graded import PIVOT
from xcompress.metrics import Encode, Vectors, unit_length

MUSE = "ar de es fr it ja ko nl pl pt ru th tr zh"
"""The languages that mUSE was trained on, besides English."""
XTREME = "af ar bg bn de el es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr nl pt ru sw ta te th tl tr ur vi zh"
"""The languages of Tatoeba in XTREME."""
GROUPS = {"14 languages": MUSE.split(), "36 languages": XTREME.split()}

NEIGHBOURS = 4
"""k of the margin score, as its authors chose it."""
_CELLS = 1 << 23
"""Similarities held in memory at once."""

Blocks = Callable[[], Iterator[Vectors]]
"""Yields all candidates (M, D) in blocks of rows, each time it is called."""


@dataclass(frozen=True)
class Retrieval(PairTask):
    """English sentences and their translations, by language, searched among each other and among distractors."""

    distractors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By language, English included."""
    margin: bool = False
    """Rank by the ratio margin instead of the cosine."""

    def sentences(self) -> Iterable[str]:
        """Yield both sides of every translation, and the distractors."""
        yield from super().sentences()
        yield from (text for language in (PIVOT, *self.pairs) for text in self.distractors.get(language, ()))

    def with_distractors(self, distractors: Mapping[str, Sequence[str]], count: int) -> Self:
        """Return the same task with distractors among the candidates.

        :param count: distractors per language, for the name.
        """
        return replace(self, name=f"{self.name} + {count:,} distractors", distractors=distractors)

    def summarize(self, scores: Mapping[str, Hits], reference: Mapping[str, Hits] | None) -> Accuracy:
        """Return the figures of both directions and their averages, and the drop."""
        metric = "nearest neighbour by margin, %" if self.margin else "nearest neighbour, %"
        # averages into English, from English, over both, and over the groups of languages that papers report
        to_english = {code: f"{code}>{PIVOT}" for code in self.pairs}
        from_english = {code: f"{PIVOT}>{code}" for code in self.pairs}
        groups = {
            f"xx>{PIVOT}": list(to_english.values()),
            f"{PIVOT}>xx": list(from_english.values()),
            "average": [*to_english.values(), *from_english.values()],
        }
        for name, codes in complete_groups(self.pairs).items():
            groups[name] = [*(to_english[code] for code in codes), *(from_english[code] for code in codes)]
        figures, averages = summarize_scores(share_figure, scores, reference, groups)
        return Accuracy(self.name, "retrieval", metric, self.rows, figures, averages)

    def score(self, encode: Encode) -> dict[str, Hits]:
        """Tell for each sentence whether its nearest neighbour is its translation, in both directions."""
        found = {}
        for code, rows in self.pairs.items():
            english, translated = zip(*rows, strict=True)
            for queries, targets, source, target in (
                (translated, english, code, PIVOT),
                (english, translated, PIVOT, code),
            ):
                distractors = self.distractors.get(target, ())
                found[f"{source}>{target}"] = hits(encode, queries, targets, distractors, self.margin)
        return found


def complete_groups(languages: Collection[str]) -> dict[str, list[str]]:
    """Return the groups whose languages are all present.

    The average of a part would be mistaken for the one that papers report.
    """
    return {name: group for name, group in GROUPS.items() if set(group) <= set(languages)}


def hits(
    encode: Encode,
    queries: Sequence[str],
    targets: Sequence[str],
    distractors: Sequence[str] = (),
    margin: bool = False,
) -> NDArray[np.bool_]:
    """Tell for each query (N,) whether it finds its target among all targets and the distractors.

    A sentence that occurs several times, as a target or as a distractor, is one candidate.

    :param margin: rank by the ratio margin instead of the cosine.
    """
    candidates = list(dict.fromkeys([*targets, *distractors]))
    number_of = {text: number for number, text in enumerate(candidates)}
    step = block_rows(len(queries))

    def blocks() -> Iterator[Vectors]:
        return (encode(candidates[start : start + step]) for start in range(0, len(candidates), step))

    nearest_candidate = (nearest_by_margin if margin else nearest)(encode(queries), blocks)
    correct: NDArray[np.bool_] = nearest_candidate == np.array([number_of[text] for text in targets])
    return correct


def block_rows(queries: int) -> int:
    """Return how many candidates one block holds."""
    return max(1, _CELLS // max(1, queries))


def nearest(queries: Vectors, blocks: Blocks) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest cosine; of equal ones, the first."""
    return _argmax(len(queries), _similarities(queries, blocks))


def nearest_by_margin(queries: Vectors, blocks: Blocks, neighbours: int = NEIGHBOURS) -> NDArray[np.int64]:
    """Return, for each query (N, D), the number of the candidate with the highest ratio margin.

    margin(x, y) = cos(x, y) / (mean of cos(x, z) over the k candidates nearest to x / 2 + mean of cos(z, y) over the k
    queries nearest to y / 2) (Artetxe and Schwenk, 2019). The blocks are read twice.

    :param neighbours: k, or all where there are fewer.
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
    return _argmax(len(queries), margins)


def _similarities(queries: Vectors, blocks: Blocks) -> Iterator[Vectors]:
    """Yield the cosines of all queries with each block, (N, block)."""
    unit = unit_length(queries.astype(np.float32))
    for block in blocks():
        yield unit @ unit_length(block.astype(np.float32)).T


def _argmax(queries: int, blocks: Iterator[Vectors]) -> NDArray[np.int64]:
    """Return the column of each row's highest score over all blocks."""
    highest = np.full(queries, -np.inf, dtype=np.float32)
    best = np.zeros(queries, dtype=np.int64)
    start = 0
    for scores in blocks:
        column = scores.argmax(axis=1)
        score = scores[np.arange(queries), column]
        better = score > highest
        highest[better], best[better] = score[better], start + column[better]
        start += scores.shape[1]
    return best


def _top(scores: Vectors, count: int) -> Vectors:
    """Return the highest scores of each row, unordered."""
    kept = min(count, scores.shape[1])
    top: Vectors = np.partition(scores, -kept, axis=1)[:, -kept:]
    return top
