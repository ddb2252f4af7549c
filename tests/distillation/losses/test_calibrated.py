import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from tests.helpers.tensors import tensors
from xcompress.distillation.losses.calibrated import (
    COSENT_SCALE,
    cosent_loss,
    entailment_features,
    graded_loss,
)

N, D = 5, 7
SCORES = torch.tensor([0.0, 1.0, 0.4, 0.25, 0.8], dtype=torch.float64)


def arrays(count: int, width: int = D) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.normal(size=(N, width)) for _ in range(count)]


def test_the_classifier_sees_both_vectors_and_their_distance_in_each_component() -> None:
    first, second = given = arrays(2)
    found = entailment_features(*tensors(given)).detach().numpy()
    assert found.shape == (N, 3 * D)
    for i in range(N):
        distances = [abs(u - v) for u, v in zip(first[i], second[i], strict=True)]
        np.testing.assert_array_equal(found[i], [*first[i], *second[i], *distances])


def test_graded_regresses_the_cosine_on_the_score() -> None:
    first, second = given = arrays(2)
    expected = 0.0
    for i, score in enumerate(SCORES.tolist()):
        cosine = first[i] @ second[i] / np.sqrt((first[i] @ first[i]) * (second[i] @ second[i]))
        expected += (cosine - score) ** 2 / N
    assert graded_loss(*tensors(given), SCORES).item() == pytest.approx(expected, rel=1e-12)


def test_cosent_compares_the_cosines_of_pairs_with_different_scores() -> None:
    first, second = given = arrays(2)
    scores = torch.tensor([0.0, 1.0, 0.4, 0.4, 0.8], dtype=torch.float64)
    cosines = [u @ v / np.sqrt((u @ u) * (v @ v)) for u, v in zip(first, second, strict=True)]
    total = 1.0
    for i in range(N):
        for j in range(N):
            if scores[i] < scores[j]:
                total += np.exp(COSENT_SCALE * (cosines[i] - cosines[j]))
    assert cosent_loss(*tensors(given), scores).item() == pytest.approx(np.log(total), rel=1e-12)
    assert cosent_loss(*tensors(given), 5 * scores).item() == pytest.approx(np.log(total), rel=1e-12)
    assert cosent_loss(*tensors(given), torch.ones(N)).item() == 0, "nothing to tell apart"


def test_a_perfect_student_has_no_loss() -> None:
    (vectors,) = tensors(arrays(1))
    assert graded_loss(vectors, 3 * vectors, torch.ones(N, dtype=torch.float64)).item() == pytest.approx(0, abs=1e-28)


def test_gradients_are_right() -> None:
    first, second = tensors(arrays(2))
    assert gradcheck(entailment_features, (first, second))
    assert gradcheck(lambda left, right: graded_loss(left, right, SCORES), (first, second))
    assert gradcheck(lambda left, right: cosent_loss(left, right, SCORES), (first, second))
