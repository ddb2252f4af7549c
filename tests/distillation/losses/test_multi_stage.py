from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from tests.helpers.student import make_student
from tests.helpers.tensors import tensors
from xcompress.distillation.losses.multi_stage import (
    TEMPERATURE,
    assistant_loss,
    contrast_bool_loss,
    contrast_ce_loss,
    contrast_loss,
    embedding_loss,
    teacher_loss,
)
from xcompress.distillation.losses.stage import SentenceVectors, StepOutput, weighted_sum
from xcompress.recipe import ObjectiveName, Stage

N, D = 5, 7


def arrays(count: int, *shape: int) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.normal(size=shape or (N, D)) for _ in range(count)]


def mse(left: np.ndarray, right: np.ndarray) -> float:
    return sum((a - b) ** 2 for a, b in zip(left, right, strict=True)) / len(left)


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / (np.sqrt(left @ left) * np.sqrt(right @ right)))


def test_equation_2_regresses_both_sides_on_the_teachers_source() -> None:
    teacher, sources, targets = given = arrays(3)
    expected = sum(mse(teacher[i], sources[i]) + mse(teacher[i], targets[i]) for i in range(N)) / N
    assert teacher_loss(*tensors(given)).item() == pytest.approx(expected, rel=1e-12)


def test_equation_4_regresses_each_side_on_the_assistant() -> None:
    a_sources, a_targets, sources, targets = given = arrays(4)
    expected = sum(mse(a_sources[i], sources[i]) + mse(a_targets[i], targets[i]) for i in range(N)) / N
    assert assistant_loss(*tensors(given)).item() == pytest.approx(expected, rel=1e-12)


def objective(name: ObjectiveName, given: list[np.ndarray], *labels: str) -> float:
    """Return an objective for the first arrays as labels of these names, and the last two as sources and targets."""
    *of_labels, sources, targets = tensors(given)
    model = SentenceVectors(make_student(), Stage(train="student", objectives={name: 1}, steps=1))
    named = dict(zip(labels, of_labels, strict=True))
    return weighted_sum({name: 1}, StepOutput(model, {}, named, torch.cat([sources, targets]), sources, targets)).item()


def test_teacher_targets_regresses_targets_on_the_teachers_targets() -> None:
    teacher, _, targets = given = arrays(3)
    expected = sum(mse(teacher[i], targets[i]) for i in range(N)) / N
    assert objective("teacher_targets", given, "teacher_targets") == pytest.approx(expected, rel=1e-12)


def test_monolingual_regresses_each_sentence_on_its_own_vector() -> None:
    left, right, sources, targets = given = arrays(4)
    expected = sum(mse(left[i], sources[i]) + mse(right[i], targets[i]) for i in range(N)) / (2 * N)
    assert objective("monolingual", given, "teacher_sources", "teacher_targets") == pytest.approx(expected, rel=1e-12)


def test_monolingual_contrast_compares_cosines_within_the_sentences() -> None:
    given = arrays(4)
    teacher, sentences = [*given[0], *given[1]], [*given[2], *given[3]]
    expected = 0.0
    for i in range(2 * N):
        for j in range(2 * N):
            expected += (cosine(teacher[i], teacher[j]) - cosine(sentences[i], sentences[j])) ** 2 / (2 * N) ** 2
    found = objective("monolingual_contrast", given, "teacher_sources", "teacher_targets")
    assert found == pytest.approx(expected, rel=1e-12)


def test_equation_1_of_calibrated_similarity_regresses_targets_on_the_moving_teachers_sources() -> None:
    teacher, _, targets = given = arrays(3)
    expected = sum(mse(teacher[i], targets[i]) for i in range(N)) / N
    assert objective("moving_teacher", given, "moving_sources") == pytest.approx(expected, rel=1e-12)


def test_equation_5_compares_source_target_cosines_with_the_teachers() -> None:
    teacher, sources, targets = given = arrays(3)
    expected = 0.0
    for i in range(N):
        for j in range(N):
            expected += (cosine(teacher[i], teacher[j]) - cosine(sources[i], targets[j])) ** 2
    assert contrast_loss(*tensors(given)).item() == pytest.approx(expected / N**2, rel=1e-12)


def test_equation_8_takes_a_sentence_for_like_only_itself() -> None:
    teacher, sources, targets = given = arrays(3)
    teacher[3] = teacher[1]  # one sentence twice in a batch
    teacher[4, 0] = teacher[0, 0]  # of different ones, a component may be the same
    expected = 0.0
    for i in range(N):
        for j in range(N):
            label = 1.0 if i == j or {i, j} == {1, 3} else 0.0
            expected += (label - cosine(sources[i], targets[j])) ** 2
    assert contrast_bool_loss(*tensors(given)).item() == pytest.approx(expected / N**2, rel=1e-12)


def test_equation_9_is_a_cross_entropy_with_the_teachers_cosines_as_labels() -> None:
    teacher, sources, targets = given = arrays(3)
    expected = 0.0
    for i in range(N):
        partition = sum(np.exp(cosine(sources[i], targets[k]) / TEMPERATURE) for k in range(N))
        for j in range(N):
            share = np.exp(cosine(sources[i], targets[j]) / TEMPERATURE) / partition
            expected -= cosine(teacher[i], teacher[j]) * np.log(share)
    assert contrast_ce_loss(*tensors(given)).item() == pytest.approx(expected, rel=1e-12)


def test_equations_6_and_7_add_the_same_regression_to_the_contrast() -> None:
    stage = Stage(train="student", objectives={"teacher": 1, "contrast": 1}, steps=1)
    teacher, sources, targets = tensors(arrays(3))
    model = SentenceVectors(make_student(), stage)
    step = StepOutput(model, {}, {"teacher_sources": teacher}, torch.cat([sources, targets]), sources, targets)
    loss = weighted_sum(stage.objectives, step)
    expected = contrast_loss(teacher, sources, targets) + teacher_loss(teacher, sources, targets)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)


def test_equation_3_averages_over_tokens_and_leaves_padding_out() -> None:
    given = arrays(2, 2, 3, D)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    visible = [(0, 0), (0, 1), (0, 2), (1, 0)]
    expected = sum(mse(given[0][place], given[1][place]) for place in visible) / len(visible)
    assert embedding_loss(*tensors(given), mask).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("loss", "count"),
    [
        (teacher_loss, 3),
        (assistant_loss, 4),
        (contrast_loss, 3),
        (contrast_ce_loss, 3),
    ],
)
def test_gradients_are_right(loss: Callable[..., Tensor], count: int) -> None:
    assert gradcheck(loss, tuple(tensors(arrays(count))))


def test_gradients_of_equation_8_are_right() -> None:
    teacher, sources, targets = tensors(arrays(3))
    assert gradcheck(lambda left, right: contrast_bool_loss(teacher.detach(), left, right), (sources, targets))


def test_gradient_of_equation_3_is_right_and_none_reaches_padding() -> None:
    goal, tokens = tensors(arrays(2, 2, 3, D))
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    assert gradcheck(lambda left, right: embedding_loss(left, right, mask), (goal, tokens))
    embedding_loss(goal, tokens, mask).backward()
    assert tokens.grad is not None
    assert tokens.grad[1, 1:].abs().sum() == 0
    assert tokens.grad[0, 0].abs().sum() > 0


def test_a_perfect_student_has_no_loss() -> None:
    (vectors,) = tensors(arrays(1))
    assert teacher_loss(vectors, vectors, vectors).item() == 0
    assert contrast_loss(vectors, vectors, vectors).item() == pytest.approx(0, abs=1e-28)
