"""Stop training that cannot succeed: all sentence vectors are equal (collapse), or not finite (divergence)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from xcompress.errors import XCompressError

NARROW = 1e-3
"""A batch has collapsed when the spread of its vectors is below this, a mean cosine over 0.999."""
NARROW_SHARE = 0.01
"""Where vectors are narrow from the beginning, a batch has collapsed only when less than this share of the first spread
is left. A student that starts from scratch, or from a masked language model, is narrow and gets narrower at first."""
ROUNDING = 1e-6
"""A spread below this is 0."""
NARROW_BATCHES = 20
BATCHES_READ_TOGETHER = 20
"""Reading a value of a GPU waits for all that it has to do, so the spread of this many batches is read at once."""
UNDEFINED_BATCHES = 3
"""After this many undefined batches in a row, the weights themselves are not finite."""


class CollapseError(XCompressError):
    """All sentences have the same vector, which minimises an objective without negatives."""


class DivergenceError(XCompressError):
    """Sentence vectors or weights hold values that are not finite."""


class Collapse(nn.Module):
    """Check the sentence vectors of each batch, and stop training that has collapsed or diverged.

    Eq. 1 of calibrated similarity is 0 where all vectors are equal, and a moving teacher that follows the student
    closely goes there with it.

    A module of the model in training, so that checkpoints have its counts: a stage that stopped goes on at a checkpoint
    from after the collapse, and would take the spread there for that of the first batch.
    """

    def __init__(self, where: str = "training", read_together: int | None = None) -> None:
        """Start with no batches seen.

        :param where: start of the error message, such as `stages.align`.
        :param read_together: after how many batches their spread is read; default: each on a CPU, 20 on a GPU.
        """
        super().__init__()
        self.where = where
        self.read_together = read_together
        self.unread: list[tuple[Tensor, int]] = []
        self.batches = 0
        self.narrow = 0
        self.undefined = 0
        self.first: float | None = None

    def get_extra_state(self) -> Tensor:
        """Return what a checkpoint keeps."""
        first = math.nan if self.first is None else self.first
        return torch.tensor([first, self.batches, self.narrow], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Go on with what a checkpoint kept."""
        first, batches, narrow = state.tolist()
        self.first = None if math.isnan(first) else first
        self.batches, self.narrow = int(batches), int(narrow)

    def check(self, vectors: Tensor) -> None:
        """Check the vectors of one batch, (N, D); a batch of one pair has no spread, and is only checked for NaN.

        :raises CollapseError: when all vectors were equal in 20 successive batches.
        :raises DivergenceError: when some were not finite in 3 successive batches.
        """
        if not len(vectors):
            return
        self.unread.append((spread(vectors), len(vectors)))
        if len(self.unread) >= (self.read_together or (1 if vectors.is_cpu else BATCHES_READ_TOGETHER)):
            spreads, sizes = zip(*self.unread, strict=True)
            self.unread.clear()
            for current, size in zip(torch.stack(spreads).tolist(), sizes, strict=True):
                self._judge(current, size > 1)

    def _judge(self, current: float, has_spread: bool) -> None:
        """Count a batch by its spread."""
        self.batches += 1
        self.undefined = self.undefined + 1 if math.isnan(current) else 0
        if has_spread and not self.undefined:
            if self.first is None:
                self.first = current
            limit = max(ROUNDING, min(NARROW, NARROW_SHARE * self.first))
            self.narrow = self.narrow + 1 if current < limit else 0
        if self.undefined == UNDEFINED_BATCHES:
            raise DivergenceError(
                f"{self.where}: diverged: sentence vectors of {UNDEFINED_BATCHES} successive batches are not finite, "
                f"after {self.batches} batches; lower learning_rate, or raise warmup"
            )
        if self.narrow == NARROW_BATCHES:
            first = self.first or 0
            advice = "lower learning_rate, bring ema_decay nearer to 1, or add another objective"
            if first < ROUNDING:
                advice = "they are so from the first batch on: give more text, or another encoder to start from"
            raise CollapseError(
                f"{self.where}: collapsed: all sentence vectors are nearly equal (mean cosine {1 - current:.6f} after "
                f"{self.batches} batches, {1 - first:.3f} in the first); {advice}"
            )


def check_weights(model: nn.Module, where: str) -> None:
    """Check that training has left all weights finite: the last steps, and embeddings alone, show in no batch.

    :param where: start of the error message, such as `stages.align`.
    :raises DivergenceError: when some are not.
    """
    broken = sum(not bool(weight.isfinite().all()) for weight in model.state_dict().values())
    if broken:
        raise DivergenceError(
            f"{where}: diverged: {broken} of {len(model.state_dict())} weights are not finite after training; lower "
            "learning_rate, or raise warmup"
        )


def spread(vectors: Tensor) -> Tensor:
    """Return 1 - |m|^2, a scalar, with m the mean of the vectors (N, D) at unit length, which is 1 - their mean cosine.

    0 where all have one direction, about 1 - 1 / N where they are independent, NaN where one is not finite.
    """
    value: Tensor = 1 - normalize(vectors.float(), dim=-1).mean(0).square().sum()
    return value
