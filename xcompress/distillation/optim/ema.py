"""The moving teacher of calibrated similarity (Ham and Kim, 2021): a student's weights, averaged over training."""

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call

from xcompress.modeling.student import Student

PIECE = 1 << 18
"""Weights that are updated at a time: few enough that a float64 copy of them stays in the processor's cache."""


def decay_at(step: int, steps: int, base: float) -> float:
    """Return tau = 1 - (1 - base) (cos(pi k / K) + 1) / 2: from `base` at k = 0 to 1 at k = K.

    :param step: k, the steps done.
    :param steps: K, all steps of the stage.
    :param base: tau at the beginning.
    """
    return 1 - (1 - base) * (math.cos(math.pi * step / steps) + 1) / 2


class MovingTeacher(nn.Module):
    """A student of its own weights xi, which follow those of the trained one, theta, by eq. 2.

    The averages are float64. In float32 a change is lost that is smaller than half the distance between two numbers,
    3e-8 to 6e-8 of the weight. With 1 - tau = 1e-5 and weights that differ from theta by 0.2 %, a thousand updates in
    float32 moved none of them; at 0.4 % they moved 42 % of them, and those 1.7 times too far.
    """

    def __init__(self, student: Student) -> None:
        """Start at xi = theta, in a copy that shares nothing with the student."""
        super().__init__()
        self.average = deepcopy(student).double().requires_grad_(False)
        self._single: dict[str, Tensor] = {}
        self.train(False)

    def train(self, mode: bool = True) -> "MovingTeacher":
        """Stay as in inference, without dropout, whatever the mode of the model that this is a part of."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode a batch in float32, without gradient.

        :param input_ids: token ids, (N, L).
        :param attention_mask: 1 for tokens, 0 for padding, (N, L).
        :returns: sentence vectors, (N, D).
        """
        _, sentences = functional_call(self.average, self._in_float32(), (input_ids, attention_mask))
        return sentences  # type: ignore[no-any-return]

    def _in_float32(self) -> dict[str, Tensor]:
        """Return the averages by name, in memory that is kept: on a CPU, new memory at each step costs more time."""
        for name, average in self.average.named_parameters():
            if name not in self._single or self._single[name].device != average.device:
                self._single[name] = torch.empty_like(average, dtype=torch.float32)
            self._single[name].copy_(average)
        return self._single

    @torch.no_grad()
    def update(self, student: Student, decay: float) -> None:
        """Eq. 2: xi <- tau xi + (1 - tau) theta.

        :param student: holds theta, on the device of the teacher.
        :param decay: tau, from 0 (xi becomes theta) to 1 (xi stays).
        """
        for average, weight in zip(self.average.parameters(), student.parameters(), strict=True):
            for xi, theta in zip(_pieces(average), _pieces(weight), strict=True):
                xi.mul_(decay).add_(theta, alpha=1 - decay)


def _pieces(weight: Tensor) -> Sequence[Tensor]:
    """Return views of a weight that cover it, each (PIECE,) or shorter."""
    return torch.split(weight.view(-1), PIECE)
