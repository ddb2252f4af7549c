"""The moving teacher of calibrated similarity (Ham and Kim, 2021): an exponential moving average of the student."""

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from xcompress.modeling.student import Student

BLOCK = 1 << 18
"""Weights that are updated at a time: a float64 copy of them stays in the processor's cache."""


def decay_at(step: int, steps: int, base: float) -> float:
    """Return tau = 1 - (1 - base) (cos(pi k / K) + 1) / 2, which rises from `base` at k = 0 to 1 at k = K.

    :param step: k, the number of steps done.
    :param steps: K, the number of steps of the stage.
    :param base: tau at the first step.
    """
    return 1 - (1 - base) * (math.cos(math.pi * step / steps) + 1) / 2


class MovingTeacher(nn.Module):
    """A copy of the student whose weights xi follow those of the trained student, theta, by eq. 2.

    The averages are float64. Float32 loses changes below half the distance between two numbers, 3e-8 to 6e-8 of the
    weight. Measured with 1 - tau = 1e-5: where xi differed from theta by 0.2 %, a thousand updates in float32 moved no
    weight; at 0.4 % they moved 42 % of the weights, and those 1.7 times too far.
    """

    def __init__(self, student: Student) -> None:
        """Start at xi = theta, with memory of its own."""
        super().__init__()
        self.average = deepcopy(student).double().requires_grad_(False)
        self._float32_copies: dict[str, Tensor] = {}
        self.train(False)

    def train(self, mode: bool = True) -> "MovingTeacher":
        """Stay in eval mode, without dropout, when the model around it is set to train mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_positions: Tensor | None = None) -> Tensor:
        """Encode a batch with float32 copies of the averages, without gradients.

        :param input_ids: token ids, (N, L).
        :param attention_mask: 1 for tokens, 0 for padding, (N, L).
        :param token_positions: as for `Student`.
        :returns: sentence vectors, (N, D).
        """
        # keep the memory of the copies: on a CPU, allocating it again at each step takes longer
        averages, copies = dict(self.average.named_parameters()), self._float32_copies
        if any(copy.device != averages[name].device for name, copy in copies.items()) or not copies:
            copies |= {name: torch.empty_like(average, dtype=torch.float32) for name, average in averages.items()}
        torch._foreach_copy_(list(copies.values()), list(averages.values()))
        _, sentences = functional_call(self.average, copies, (input_ids, attention_mask, token_positions))
        return sentences  # type: ignore[no-any-return]

    @torch.no_grad()
    def update(self, student: Student, decay: float) -> None:
        """Update the averages by eq. 2: xi <- tau xi + (1 - tau) theta.

        :param student: holds theta, on the teacher's device.
        :param decay: tau, from 0 (xi becomes theta) to 1 (xi stays).
        """
        averages, weights = list(self.average.parameters()), list(student.parameters())
        if averages[0].is_cpu:
            update_in_blocks(averages, weights, decay)
        else:
            update_at_once(averages, weights, decay)


def update_in_blocks(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """Update float64 averages by eq. 2, as is fast on a CPU."""
    for average, weight in zip(averages, weights, strict=True):
        blocks = (torch.split(tensor.view(-1), BLOCK) for tensor in (average, weight))
        for xi, theta in zip(*blocks, strict=True):
            xi.mul_(decay).add_(theta, alpha=1 - decay)


def update_at_once(averages: Sequence[Tensor], weights: Sequence[Tensor], decay: float) -> None:
    """Update float64 averages by eq. 2, in a few kernels for all of them, as is fast on a GPU.

    The results have the bits of `update_in_blocks`.
    """
    thetas = [torch.empty_like(average) for average in averages]
    torch._foreach_copy_(thetas, list(weights))
    torch._foreach_mul_(list(averages), decay)
    torch._foreach_add_(list(averages), thetas, alpha=1 - decay)
