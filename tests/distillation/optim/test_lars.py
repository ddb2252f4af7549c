from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from xcompress.distillation.optim.lars import TRUST, Lars

RATE, MOMENTUM, DECAY = 0.02, 0.9, 1e-2


class PlainLars:
    """LARS of one array, as it is printed."""

    def __init__(self, adapt: bool = True) -> None:
        self.adapt = adapt
        self.velocity: np.ndarray | float = 0.0

    def step(self, weight: np.ndarray, gradient: np.ndarray, rate: float = RATE) -> np.ndarray:
        decay = DECAY if self.adapt else 0.0
        weight_norm, gradient_norm = np.sqrt((weight**2).sum()), np.sqrt((gradient**2).sum())
        local = 1.0
        if self.adapt and weight_norm > 0 and gradient_norm > 0:
            local = 0.001 * weight_norm / (gradient_norm + decay * weight_norm)
        self.velocity = MOMENTUM * self.velocity + rate * local * (gradient + decay * weight)
        return weight - self.velocity


def steps(count: int, *shape: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(1)
    for _ in range(count):
        yield generator.normal(size=shape)


def parameter(start: np.ndarray) -> nn.Parameter:
    return nn.Parameter(torch.tensor(start, dtype=torch.float64))


def optimizer(*groups: dict[str, object]) -> Lars:
    return Lars(list(groups), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)


def step(lars: Lars, weight: nn.Parameter, gradient: np.ndarray) -> None:
    weight.grad = torch.tensor(gradient, dtype=torch.float64)
    lars.step()


@pytest.mark.parametrize("adapt", [True, False])
def test_three_steps_are_those_of_plain_arithmetic(adapt: bool) -> None:
    expected, *gradients = steps(4, 3, 4)
    weight, plain = parameter(expected), PlainLars(adapt)
    lars = optimizer({"params": [weight], "adapt": adapt})
    for gradient in gradients:
        step(lars, weight, gradient)
        expected = plain.step(expected, gradient)
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=0, atol=1e-12)


def test_the_norms_are_of_each_tensor_alone() -> None:
    large, small = parameter(np.full((2, 2), 10.0)), parameter(np.full((2, 2), 0.1))
    lars = Lars([large, small], lr=1.0)
    before = [weight.detach().clone() for weight in (large, small)]
    for weight in (large, small):
        weight.grad = torch.ones_like(weight)
    lars.step()
    for weight, start in zip((large, small), before, strict=True):
        assert ((start - weight).norm() / start.norm()).item() == pytest.approx(TRUST, rel=1e-12)


def test_a_scaled_gradient_makes_the_same_step() -> None:
    ends = []
    for scale in (1.0, 1e6):
        weight = parameter(np.ones((2, 3)))
        step(Lars([weight], lr=1.0), weight, scale * np.arange(1.0, 7.0).reshape(2, 3))
        ends.append(weight.detach())
    assert torch.allclose(*ends, rtol=0, atol=1e-12)
    assert not torch.equal(ends[0], torch.ones_like(ends[0]))


def test_a_zero_gradient_leaves_the_decay_at_the_whole_rate() -> None:
    start = np.array([[1.0, -2.0]])
    weight = parameter(start)
    step(optimizer({"params": [weight]}), weight, np.zeros((1, 2)))
    np.testing.assert_allclose(weight.detach().numpy(), start * (1 - RATE * DECAY), rtol=0, atol=1e-15)


def test_a_zero_weight_takes_the_whole_gradient() -> None:
    weight, gradient = parameter(np.zeros((1, 2))), np.array([[1.0, -2.0]])
    step(optimizer({"params": [weight]}), weight, gradient)
    np.testing.assert_allclose(weight.detach().numpy(), -RATE * gradient, rtol=0, atol=1e-15)


def test_a_weight_and_a_gradient_of_zero_stay_numbers() -> None:
    weight = parameter(np.zeros((1, 2)))
    step(optimizer({"params": [weight]}), weight, np.zeros((1, 2)))
    assert torch.equal(weight.detach(), torch.zeros(1, 2, dtype=torch.float64))


def test_weights_without_a_gradient_stay_as_they_are() -> None:
    used, unused = parameter(np.ones((2, 2))), parameter(np.ones((2, 2)))
    lars = optimizer({"params": [unused, used]})
    step(lars, used, np.ones((2, 2)))
    assert torch.equal(unused.detach(), torch.ones(2, 2, dtype=torch.float64)) and unused not in lars.state
    assert not torch.equal(used.detach(), torch.ones(2, 2, dtype=torch.float64))


def test_the_state_resumes_exactly() -> None:
    start, *gradients = steps(5, 3, 4)
    whole, first = parameter(start), parameter(start)
    uninterrupted, before = optimizer({"params": [whole]}), optimizer({"params": [first]})
    for gradient in gradients[:2]:
        step(uninterrupted, whole, gradient)
        step(before, first, gradient)
    second = nn.Parameter(first.detach().clone())
    after = Lars([second], lr=5.0, momentum=0.0)
    after.load_state_dict(before.state_dict())
    for gradient in gradients[2:]:
        step(uninterrupted, whole, gradient)
        step(after, second, gradient)
    assert torch.equal(second, whole)


def test_a_schedule_changes_the_rate_of_what_is_added_only() -> None:
    start, *gradients = steps(4, 2, 2)
    weight, plain, expected = parameter(start), PlainLars(), start
    lars = optimizer({"params": [weight]})
    schedule = LambdaLR(lars, lambda done: 1 / (done + 1))
    for done, gradient in enumerate(gradients):
        step(lars, weight, gradient)
        schedule.step()
        expected = plain.step(expected, gradient, RATE / (done + 1))
        np.testing.assert_allclose(weight.detach().numpy(), expected, rtol=0, atol=1e-12)
