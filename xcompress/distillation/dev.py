"""Dev scores on held-out pairs: how well a model orders sentence pairs as the teacher does, and finds translations."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from xcompress.corpus.graded import averages, score
from xcompress.corpus.pairs import Pair
from xcompress.distillation.materials import Materials
from xcompress.distillation.teachers.vectors import VectorsOf
from xcompress.metrics import cosine_matrix, retrieval_accuracy, spearman


@dataclass(frozen=True)
class DevScores:
    """Scores by language, in percent."""

    spearman: Mapping[str, float]
    """Between cos(T(s_i), T(s_j)) and cos(X(s_i), X(t_j)) over all pairs i, j of held-out sentences; empty if no T."""
    retrieval: Mapping[str, float]
    """How often the nearest neighbour is the translation, mean of both directions."""
    sts: Mapping[str, float]
    """Spearman between cosines and human scores, by language pair; empty where the recipe names no STS sets."""

    def means(self) -> dict[str, float]:
        """Average each kind of score over languages, STS over groups of language pairs."""
        kinds = {"spearman": self.spearman, "retrieval": self.retrieval}
        means = {kind: fmean(scores.values()) for kind, scores in kinds.items() if scores}
        return means | {f"sts {group}": figure for group, figure in averages(self.sts).items()}


def dev_scores(vectors_of: VectorsOf, materials: Materials) -> DevScores:
    """Score a model on the held-out pairs that nothing it comes from was trained on.

    :param vectors_of: maps texts to the model's vectors.
    """
    holdout = materials.unseen
    texts = sorted({text for pair in holdout for text in (pair.source, pair.target)})
    rows = dict(zip(texts, vectors_of(texts), strict=True))
    by_language: dict[str, list[Pair]] = {}
    for pair in holdout:
        by_language.setdefault(pair.language, []).append(pair)
    agreement, retrieval = {}, {}
    for language, pairs in sorted(by_language.items()):
        left, right = np.stack([rows[pair.source] for pair in pairs]), np.stack([rows[pair.target] for pair in pairs])
        if materials.recipe.teacher:
            agreement[language] = _agreement(materials.teacher([pair.source for pair in pairs]), left, right)
        retrieval[language] = retrieval_accuracy(left, right)
    graded = materials.graded
    return DevScores(agreement, retrieval, score(vectors_of, graded) if graded else {})


def _agreement(goals: NDArray[np.float32], sources: NDArray[np.float32], targets: NDArray[np.float32]) -> float:
    return spearman(cosine_matrix(goals, goals).ravel(), cosine_matrix(sources, targets).ravel())
