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


def compared(i: int, count: int) -> list[int]:
    """All others of the group of i, and those at its place in the next two groups, where there are so many others."""
    group = [j for j in range(count) if j // GROUP == i // GROUP and j != i]
    return [*group, *[(i + GROUP) % count, (i + 2 * GROUP) % count][: count // GROUP - 1]]


@pytest.mark.parametrize("count", [GROUP, 2 * GROUP, N])
def test_each_pair_of_sides_is_correlated_with_the_teacher_of_another_width(count: int) -> None:
    teacher, sources, targets = (array[:count] for array in (*arrays(1, 5), *arrays(2, 7)))
    pairs = [(i, j) for i in range(count) for j in compared(i, count)]
    wanted = [cosine(teacher[i], teacher[j]) for i, j in pairs]
    expected = sum(
        1 - np.corrcoef(wanted, [cosine(left[i], right[j]) for i, j in pairs])[0, 1]
        for left, right in ((sources, sources), (sources, targets), (targets, targets))
    )
    given = tensors([teacher, sources, targets])
    assert correlation_loss(*given, GROUP).item() == pytest.approx(expected, rel=1e-12)
    assert gradcheck(lambda *vectors: correlation_loss(*vectors, GROUP), given)


def test_cosines_in_another_range_but_on_a_line_cost_nothing() -> None:
    """A constant component raises all cosines and narrows them, as the vectors of E5 have them."""
    (teacher,) = arrays(1, 5)
    unit = teacher / np.linalg.norm(teacher, axis=1, keepdims=True)
    raised = np.hstack([unit, np.full((N, 1), 3.0)])
    assert correlation_loss(*tensors([teacher, raised, raised]), GROUP).item() == pytest.approx(0, abs=1e-12)
    assert correlation_loss(*tensors([teacher, raised, -raised]), GROUP).item() == pytest.approx(2)


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
