import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from tests.helpers.tensors import tensors
from xcompress.distillation.losses.correlation import correlation_loss

N, GROUP = 12, 3


def arrays(count: int, width: int) -> list[np.ndarray]:
    return list(np.random.default_rng(1).normal(size=(count, N, width)))


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))


def compared(i: int) -> list[int]:
    """All others of the group of i, and those at its place in the next two groups."""
    group = [j for j in range(N) if j // GROUP == i // GROUP and j != i]
    return [*group, (i + GROUP) % N, (i + 2 * GROUP) % N]


def test_each_pair_of_sides_is_correlated_with_the_teacher_of_another_width() -> None:
    (teacher,), (sources, targets) = arrays(1, 5), arrays(2, 7)
    pairs = [(i, j) for i in range(N) for j in compared(i)]
    wanted = [cosine(teacher[i], teacher[j]) for i, j in pairs]
    expected = sum(
        1 - np.corrcoef(wanted, [cosine(left[i], right[j]) for i, j in pairs])[0, 1]
        for left, right in ((sources, sources), (sources, targets), (targets, targets))
    )
    assert correlation_loss(*tensors([teacher, sources, targets]), GROUP).item() == pytest.approx(expected, rel=1e-12)


def test_cosines_in_another_range_but_on_a_line_cost_nothing() -> None:
    """A constant component raises all cosines and narrows them, as the vectors of E5 have them."""
    (teacher,) = arrays(1, 5)
    unit = teacher / np.linalg.norm(teacher, axis=1, keepdims=True)
    raised = np.hstack([unit, np.full((N, 1), 3.0)])
    assert correlation_loss(*tensors([teacher, raised, raised]), GROUP).item() == pytest.approx(0, abs=1e-12)
    assert correlation_loss(*tensors([teacher, raised, -raised]), GROUP).item() == pytest.approx(2)


@pytest.mark.parametrize("groups", [1, 2])
def test_few_groups_are_compared_as_far_as_there_are_others(groups: int) -> None:
    given = [array[: groups * GROUP] for array in arrays(3, 5)]
    assert 0 < correlation_loss(*tensors(given), GROUP).item() < 6
    assert gradcheck(lambda *vectors: correlation_loss(*vectors, GROUP), tensors(given))


def test_equal_vectors_give_no_gradient_that_is_not_finite() -> None:
    teacher, sources = tensors([*arrays(1, 5), np.ones((N, 4))])
    loss = correlation_loss(teacher, sources, sources, GROUP)
    loss.backward()
    assert loss.item() == pytest.approx(3) and sources.grad is not None and sources.grad.isfinite().all()


def test_the_cosines_are_in_float32_under_autocast() -> None:
    given = [vectors.float().detach() for vectors in tensors(arrays(3, 64))]
    plain = correlation_loss(*given, GROUP)
    with torch.autocast("cpu", torch.bfloat16):
        assert correlation_loss(*given, GROUP) == plain
