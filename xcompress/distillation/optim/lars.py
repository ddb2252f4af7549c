"""LARS, layer-wise adaptive rate scaling (You et al., 2017): every weight tensor has its own learning rate."""

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

TRUST = 0.001
"""The trust coefficient of You et al. (2017)."""


class Lars(Optimizer):
    """Stochastic gradient descent with momentum and steps in proportion to the weights.

    For each weight tensor w with gradient g:

        r = 0.001 |w| / (|g| + weight_decay |w|), and 1 where |w| or |g| is 0
        v <- momentum v + lr r (g + weight_decay w)
        w <- w - v

    Norms are over the whole tensor. A parameter group with `adapt: False` has r = 1 and no weight decay; it is for
    biases and the weights of norms, as in BYOL (Grill et al., 2020). The learning rate is inside v, as printed, so
    that a schedule affects only what is added to v.
    """

    def __init__(
        self, params: ParamsT, lr: float, momentum: float = 0.9, weight_decay: float = 0.0, adapt: bool = True
    ) -> None:
        """Set the defaults of parameter groups; a group may override each of `lr` ... `adapt`.

        :param params: weights, or parameter groups as dictionaries.
        """
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "adapt": adapt}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all weights that have a gradient."""
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if "velocity" not in state:
                    state["velocity"] = torch.zeros_like(weight)
                velocity = state["velocity"].mul_(group["momentum"])
                weight.sub_(velocity.add_(_scaled_gradient(weight, group), alpha=group["lr"]))


def _scaled_gradient(weight: Tensor, group: dict[str, float]) -> Tensor:
    """Return r (g + weight_decay w), in the shape of the weight."""
    gradient = weight.grad
    assert gradient is not None  # the caller leaves out weights without a gradient
    if not group["adapt"]:
        return gradient
    decay, weight_norm, gradient_norm = group["weight_decay"], weight.norm(), gradient.norm()
    rate = TRUST * weight_norm / (gradient_norm + decay * weight_norm)
    # the device that holds the norms chooses, so that nothing waits for their values
    rate = torch.where((weight_norm > 0) & (gradient_norm > 0), rate, 1.0)
    return (gradient + decay * weight) * rate
