"""Arrays as the tensors that tests of losses differentiate."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def tensors(arrays: Sequence[np.ndarray]) -> list[Tensor]:
    """Return arrays as tensors of float64 that take gradients."""
    return [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]
