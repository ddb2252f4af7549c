"""Dev scores on held-out pairs: agreement with the teacher's ranking, translation retrieval, and STS."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean

import numpy as np

from xcompress.corpus.graded import GradedSet, averages, score
from xcompress.corpus.pairs import Pair
from xcompress.metrics import Encode, cosine_matrix, retrieval_accuracy, spearman


@dataclass(frozen=True)
class DevSet:
    """Text that models are scored on, during and after training."""

    pairs: Sequence[Pair]
    """Held-out pairs that neither this run nor an earlier one of its lineage trained on."""
    teacher: Encode | None
    """The teacher's vectors of their English sentences; None without a teacher."""
    graded: GradedSet | None
    """STS sets; None where the recipe names none."""


@dataclass(frozen=True)
class DevScores:
    """Scores by language, in percent. An undefined correlation, as where all vectors are equal, counts as 0."""

    spearman: Mapping[str, float]
    """Between cos(T(s_i), T(s_j)) and cos(X(s_i), X(t_j)) over all pairs i, j of held-out sentences; empty if no T.
    Languages with fewer than two pairs have none."""
    retrieval: Mapping[str, float]
    """How often the nearest neighbour is the translation, mean of both directions; of pairs that share a sentence the
    first counts."""
    sts: Mapping[str, float]
    """Spearman between cosines and human scores, by language pair; empty where the recipe names no STS sets."""

    def means(self) -> dict[str, float]:
        """Average each kind of score over languages, STS over groups of language pairs."""
        kinds = {"spearman": self.spearman, "retrieval": self.retrieval}
        means = {kind: fmean(scores.values()) for kind, scores in kinds.items() if scores}
        return means | {f"sts {group}": mean for group, mean in averages(self.sts).items()}


def dev_scores(encode: Encode, dev: DevSet) -> DevScores:
    """Score a model on the dev set.

    :param encode: of the model.
    """
    texts = sorted({text for pair in dev.pairs for text in (pair.source, pair.target)})
    vectors = dict(zip(texts, encode(texts), strict=True))
    by_language: dict[str, list[Pair]] = {}
    for pair in dev.pairs:
        by_language.setdefault(pair.language, []).append(pair)
    agreement, retrieval = {}, {}
    for language, pairs in sorted(by_language.items()):
        sources = np.stack([vectors[pair.source] for pair in pairs])
        targets = np.stack([vectors[pair.target] for pair in pairs])
        if dev.teacher and len(pairs) > 1:
            teacher = dev.teacher([pair.source for pair in pairs])
            agreement[language] = spearman(
                cosine_matrix(teacher, teacher).ravel(), cosine_matrix(sources, targets).ravel()
            )
        rows = _distinct(pairs)
        retrieval[language] = retrieval_accuracy(sources[rows], targets[rows])
    sts = score(encode, dev.graded) if dev.graded else {}
    return DevScores(_numbers(agreement), retrieval, _numbers(sts))


def _numbers(scores: Mapping[str, float]) -> dict[str, float]:
    """Take NaN, which JSON does not have, for 0: to leave out such a language would raise the mean."""
    return {name: 0.0 if isnan(value) else value for name, value in scores.items()}


def _distinct(pairs: Sequence[Pair]) -> list[int]:
    """Return the rows of the pairs that share no sentence with an earlier one."""
    rows, seen = [], set[tuple[str, str]]()
    for row, pair in enumerate(pairs):
        sides = {("source", pair.source), ("target", pair.target)}
        if seen.isdisjoint(sides):
            rows.append(row)
            seen |= sides
    return rows
