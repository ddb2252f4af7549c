"""Arrays as the tensors that tests of losses differentiate, and texts as a store of vectors takes them."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import torch
from torch import Tensor

from xcompress.corpus.sequences import DistinctTexts


def tensors(arrays: Sequence[np.ndarray]) -> list[Tensor]:
    """Return arrays as tensors of float64 that take gradients."""
    return [torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays]


def distinct_texts(texts: Sequence[str]) -> DistinctTexts:
    """Return texts in their order, with a hash of them."""
    return DistinctTexts(texts, np.arange(len(texts)), sha256(repr(texts).encode()).hexdigest())
