"""Training that cannot come to anything: all sentence vectors at one point, or no numbers any more."""

import math

from torch import Tensor
from torch.nn.functional import normalize

from xcompress.errors import XCompressError

NARROW = 1e-3
"""Vectors of a batch whose spread is below this, a mean cosine over 0.999, are at one point."""
NARROW_SHARE = 0.01
"""But where they are narrow from the beginning, as those of a student that starts from nothing or of a masked language
model are, only when less than this share of the spread is left: such a student is narrower still on its way."""
ROUNDING = 1e-6
"""A spread below this is none."""
NARROW_BATCHES = 20
UNDEFINED_BATCHES = 3
"""After so many in a row the weights themselves are no numbers."""


class CollapseError(XCompressError):
    """All sentences have the same vector: an objective without negatives was met that way."""


class DivergenceError(XCompressError):
    """Vectors hold values that are no finite numbers."""


class Collapse:
    """Watches the sentence vectors of each batch, and stops training that is lost.

    Eq. 1 of calibrated similarity is 0 where all vectors are equal, and a teacher that follows the student closely
    goes there with it.
    """

    def __init__(self, where: str = "training") -> None:
        """Begin to watch.

        :param where: what the message starts with, such as `stages.align`.
        """
        self.where = where
        self.batches = 0
        self.narrow = 0
        self.undefined = 0
        self.first: float | None = None

    def check(self, vectors: Tensor) -> None:
        """Look at the vectors of one batch, (N, D); a batch of one pair has no spread, and is only looked at for NaN.

        :raises CollapseError: when they were at one point in 20 successive batches.
        :raises DivergenceError: when some were no finite numbers in 3 successive batches.
        """
        if not len(vectors):
            return
        found = spread(vectors)
        self.batches += 1
        self.undefined = self.undefined + 1 if math.isnan(found) else 0
        if len(vectors) > 1 and not self.undefined:
            self.narrow = self.narrow + 1 if self._is_one_point(found) else 0
        self._stop(found)

    def _is_one_point(self, found: float) -> bool:
        if self.first is None:
            self.first = found
        return found < max(ROUNDING, min(NARROW, NARROW_SHARE * self.first))

    def _stop(self, found: float) -> None:
        if self.undefined == UNDEFINED_BATCHES:
            raise DivergenceError(
                f"{self.where}: diverged: sentence vectors of {UNDEFINED_BATCHES} successive batches are no finite "
                f"numbers, after {self.batches} batches; lower learning_rate, or raise warmup"
            )
        if self.narrow == NARROW_BATCHES:
            raise CollapseError(
                f"{self.where}: collapsed: all sentence vectors went to one point (mean cosine {1 - found:.6f} after "
                f"{self.batches} batches, {1 - (self.first or 0):.3f} in the first); lower learning_rate, bring "
                "ema_decay nearer to 1, or give another objective beside it"
            )


def spread(vectors: Tensor) -> float:
    """Return 1 - |m|^2, with m the mean of the vectors (N, D) at unit length, which is 1 - their mean cosine.

    0 where all have one direction, about 1 - 1 / N where they are independent, NaN where one is no finite number.
    """
    return 1 - float(normalize(vectors.float(), dim=-1).mean(0).square().sum())
