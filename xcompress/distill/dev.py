"""Dev scores on held-out pairs: how well a model orders sentence pairs as the teacher does, and finds translations."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.pairs import Pair
from xcompress.distill.materials import Materials
from xcompress.distill.targets import VectorsOf
from xcompress.metrics import retrieval_accuracy, spearman


@dataclass(frozen=True)
class DevScores:
    """Scores by language, in percent."""

    spearman: Mapping[str, float]
    """Between cos(T(s_i), T(s_j)) and cos(X(s_i), X(t_j)) over all pairs i, j of held-out sentences."""
    retrieval: Mapping[str, float]
    """How often the nearest neighbour is the translation, mean of both directions."""

    @property
    def mean_spearman(self) -> float:
        """Mean over languages."""
        return fmean(self.spearman.values())

    @property
    def mean_retrieval(self) -> float:
        """Mean over languages."""
        return fmean(self.retrieval.values())


def dev_scores(vectors_of: VectorsOf, materials: Materials) -> DevScores:
    """Score a model on the held-out pairs.

    :param vectors_of: maps texts to the model's vectors.
    """
    holdout = materials.holdout
    texts = sorted({text for pair in holdout for text in (pair.source, pair.target)})
    rows = dict(zip(texts, vectors_of(texts), strict=True))
    by_language: dict[str, list[Pair]] = {}
    for pair in holdout:
        by_language.setdefault(pair.language, []).append(pair)
    agreement, retrieval = {}, {}
    for language, pairs in sorted(by_language.items()):
        left, right = np.stack([rows[pair.source] for pair in pairs]), np.stack([rows[pair.target] for pair in pairs])
        agreement[language] = _agreement(materials.teacher([pair.source for pair in pairs]), left, right)
        retrieval[language] = retrieval_accuracy(left, right)
    return DevScores(agreement, retrieval)


def _agreement(goals: NDArray[np.float32], sources: NDArray[np.float32], targets: NDArray[np.float32]) -> float:
    return spearman(_cosine_matrix(goals, goals).ravel(), _cosine_matrix(sources, targets).ravel())


def _cosine_matrix(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    unit_left = left / np.linalg.norm(left, axis=1, keepdims=True)
    unit_right = right / np.linalg.norm(right, axis=1, keepdims=True)
    return np.asarray(unit_left @ unit_right.T, dtype=np.float32)
