"""Weights of 4 bits in a student that is trained, as `export` stores them."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

BLOCK_SIZES = (32, 16)
"""Numbers of a row that share a scale: the first of these sizes that divides the row's width."""


def block_size_for(width: int) -> int | None:
    """Return the block size for rows of a width, or None where no block size divides it."""
    return next((size for size in BLOCK_SIZES if width % size == 0), None)


class RoundToFourBits(nn.Module):
    """Round a weight (out, in) to 16 values in each block of a row, as an export in 4 bits does.

    An export first multiplies the columns of a product whose inputs it smooths, so that these are rounded twice.

    The gradient passes as if nothing was rounded (straight-through estimator; Bengio et al., 2013, arXiv:1308.3432).
    """

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, weight: Tensor) -> Tensor:
        """Return the rounded weight."""
        exact = weight.detach()
        largest = exact.abs().amax(1, keepdim=True).clamp(min=torch.finfo(exact.dtype).tiny)
        blocks = torch.unflatten(exact / largest, 1, (-1, self.block))
        # the number of largest magnitude becomes -8 steps; steps are stored in float16
        steps = blocks.gather(2, blocks.abs().argmax(2, keepdim=True)).div(-8).half().to(exact.dtype)
        values = (blocks / steps.where(steps != 0, 1)).round().clamp(-8, 7)
        rounded: Tensor = (values * steps).flatten(1) * largest
        return weight + (rounded - exact)


def round_weights(student: nn.Module) -> None:
    """Let a student compute with rounded token embeddings and products; what is trained are the weights before that."""
    for name, module in [*student.named_modules()]:
        if not (isinstance(module, nn.Linear) or name == "embeddings.word"):
            continue
        block = block_size_for(cast(Tensor, module.weight).shape[1])
        if block is not None:
            parametrize.register_parametrization(module, "weight", RoundToFourBits(block))


def keep_rounded(student: nn.Module) -> None:
    """Make the rounded weights those of the student."""
    for module in student.modules():
        if parametrize.is_parametrized(module, "weight"):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
