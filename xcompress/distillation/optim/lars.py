"""LARS, layer-wise adaptive rate scaling (You et al., 2017): each weight matrix has a learning rate of its own."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

TRUST = 0.001
"""The trust coefficient of You et al. (2017)."""


class Lars(Optimizer):
    """Stochastic gradient descent with momentum, whose steps are in proportion to the weights.

    For each tensor of weights w with gradient g:

        r = trust |w| / (|g| + weight_decay |w|), and 1 where |w| or |g| is 0
        v <- momentum v + lr r (g + weight_decay w)
        w <- w - v

    Norms are over the whole tensor. A group of parameters with `adapt: False` has r = 1 and no weight decay: biases and
    the weights of norms are left out like this, as in BYOL (Grill et al., 2020). The learning rate is inside v, as
    printed, so that a schedule changes what is added to v and not what is in it.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust: float = TRUST,
        adapt: bool = True,
    ) -> None:
        """Take what a group of parameters does not say itself; each of `lr` ... `adapt` may stand in a group.

        :param params: weights, or groups of them as dictionaries.
        """
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "adapt": adapt}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Change all weights that have a gradient.

        :param closure: evaluates the model again; what it returns is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.sub_(self._velocity(weight, group))
        return loss

    def _velocity(self, weight: Tensor, group: dict[str, float]) -> Tensor:
        """Bring v of a weight up to date and return it, in the shape of the weight."""
        state = self.state[weight]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(weight)
        velocity: Tensor = state["velocity"].mul_(group["momentum"])
        return velocity.add_(_scaled_gradient(weight, group), alpha=group["lr"])


def _scaled_gradient(weight: Tensor, group: dict[str, float]) -> Tensor:
    """Return r (g + weight_decay w), in the shape of the weight."""
    gradient = weight.grad
    assert gradient is not None  # those without are left out
    if not group["adapt"]:
        return gradient
    decay = group["weight_decay"]
    return (gradient + decay * weight) * local_rate(weight.norm(), gradient.norm(), decay, group["trust"])


def local_rate(weight_norm: Tensor, gradient_norm: Tensor, weight_decay: float, trust: float) -> Tensor:
    """Return trust |w| / (|g| + weight_decay |w|), or 1 where |w| or |g| is 0; norms and result are scalars.

    The choice is made by the device that holds the norms: nothing waits for their values.
    """
    rate = trust * weight_norm / (gradient_norm + weight_decay * weight_norm)
    return torch.where((weight_norm > 0) & (gradient_norm > 0), rate, 1.0)
