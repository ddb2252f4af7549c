"""A linear classifier on sentence vectors."""

import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

COSTS = (0.0001, 0.001, 0.01, 0.1, 1.0)
"""C of the logistic regression: the inverse of its regularisation."""
FOLDS = 5
SEED = 0


def available() -> bool:
    """Tell whether scikit-learn is installed."""
    return find_spec("sklearn") is not None


class Probe:
    """Logistic regression on vectors that are standardised as the training vectors are.

    C is the one with the best accuracy in a stratified cross-validation on the training rows alone. Papers print the
    mean of several runs of a classifier that starts at random; here the loss is convex, so that every run would find
    the same one, and a seed changes nothing but the folds.

    :param vectors: of the training rows, (N, D).
    :param seed: of the folds.
    """

    def __init__(self, vectors: NDArray[np.float32], labels: Sequence[str], seed: int = SEED) -> None:
        with warnings.catch_warnings():
            # a label rarer than the folds is no fault here
            warnings.simplefilter("ignore")
            self._model = _search(labels, seed).fit(vectors, np.asarray(labels))

    def label(self, vectors: NDArray[np.float32]) -> NDArray[np.str_]:
        """Return the label of each vector (N, D)."""
        labels: NDArray[np.str_] = self._model.predict(vectors)
        return labels


def _search(labels: Sequence[str], seed: int) -> Any:  # noqa: ANN401 - scikit-learn has no types
    """Make the untrained classifier; without a label that every fold can have, C is 0.01."""
    # imported when it is needed: it takes a second, and may be missing
    linear, pipeline = import_module("sklearn.linear_model"), import_module("sklearn.pipeline")
    choice, scaling = import_module("sklearn.model_selection"), import_module("sklearn.preprocessing")
    regression = linear.LogisticRegression(C=COSTS[2], max_iter=1000)
    model = pipeline.Pipeline([("scale", scaling.StandardScaler()), ("regression", regression)])
    if max(Counter(labels).values()) < FOLDS:
        return model
    folds = choice.StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    return choice.GridSearchCV(model, {"regression__C": list(COSTS)}, cv=folds)
