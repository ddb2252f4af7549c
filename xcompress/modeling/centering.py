"""Centring: a linear map of sentence vectors after which sentences with nothing in common have cosines near 0."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import normalize

from xcompress.metrics import nearest_rows, unit_length

NEAR_ZERO = 0.1
"""Largest mean cosine of vectors without their common direction."""
TOO_HIGH = 0.15
"""Mean cosine of mapped vectors above which the common direction is taken out once more."""
MOST_DOUBLINGS = 40
"""Of the ridge; then the direction is that of the mean."""
STEPS = 300
RATE = 1e-3
"""Peak learning rate of Adam."""
GROUPS = 64
"""Groups of similar sentences in a step."""
GROUP = 8
"""Sentences in a group: one and some of those nearest to it."""
NEAREST = 15
"""The others of a group are drawn from so many."""
NEAR_WEIGHT = 100.0
"""Weight of the cosines within groups, against that of all cosines."""
STIFFNESS = 100.0
"""Weight of the squared distance from the start for one sentence; N have a weight of 1 / N of it."""


def centering_map(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return a matrix W, (D, D), with cos(W x, W y) close to (cos(x, y) - c) / (1 - c) for sentence vectors x and y.

    c is the mean cosine of two different rows. The vectors of many encoders lie in a narrow cone, where c is far from 0
    (Ethayarajh, 2019). The wanted cosines keep the order of the old ones, but no linear map gives them exactly. W
    minimises the mean squared error. Pairs of similar sentences weigh most, as search and clustering need their order.
    W starts as the map that takes out the common direction (see `common_direction`), and is held to it where there are
    few vectors.

    :param vectors: of real sentences, (N, D), N at least 2.
    """
    units = torch.from_numpy(unit_length(vectors.astype(np.float64)).astype(np.float32))
    rows, dimension = units.shape
    zero = mean_cosine(units.numpy())
    spread = max(1 - zero, float(np.finfo(np.float32).eps))  # more than 0 where all rows are equal
    direction = common_direction(vectors)
    start = torch.eye(dimension) - torch.from_numpy(np.outer(direction, direction))

    # Find the sentences that are nearest to each.
    near, size = min(NEAREST, rows - 1), min(GROUP, rows)
    nearest = torch.tensor(list(nearest_rows(units.numpy(), near, units.device)))
    different = ~torch.eye(GROUPS * size, dtype=torch.bool)
    within = torch.eye(GROUPS).repeat_interleave(size, 0).repeat_interleave(size, 1).bool() & different

    # Fit the map to cosines of drawn groups.
    weight = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([weight], RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    generator = torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        # Draw a sentence of each group, and the others from those nearest to it.
        first = torch.randint(rows, (GROUPS,), generator=generator)
        places = torch.rand(GROUPS, near, generator=generator).argsort(1)[:, : size - 1]
        group = units[torch.cat([first[:, None], nearest[first].gather(1, places)], 1).ravel()]
        wanted = (group @ group.T - zero) / spread
        mapped = normalize(group @ weight.T, dim=1)
        errors = (mapped @ mapped.T - wanted).square()
        loss = errors[different].mean() + NEAR_WEIGHT * errors[within].mean()
        loss = loss + STIFFNESS / rows * (weight - start).square().sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    matrix = weight.detach().numpy()

    # Where that left the mean cosine high, take out the direction that the mapped vectors share.
    if mean_cosine(units.numpy() @ matrix.T) > TOO_HIGH:
        direction = common_direction(units.numpy() @ matrix.T)
        matrix = matrix - np.outer(direction, direction @ matrix)
    return matrix


def common_direction(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the direction that all vectors share, (D,), of unit length.

    The direction is that of (C + r I)^-1 m, with m the mean and C the covariance of the vectors scaled to unit length.
    But for the ridge r, it is the a with the least variance of a . u where a . m = 1. Where a . u is the same for all
    vectors, taking the direction out lowers their products by the same amount, and their order stays. Along the mean,
    which a large r gives, they differ more. So r starts at the mean of the diagonal of C, and is doubled until the mean
    cosine is at most `NEAR_ZERO` without the direction.

    :param vectors: of real sentences, (N, D).
    """
    units = unit_length(vectors.astype(np.float64))
    mean = units.mean(axis=0)
    covariance = (units - mean).T @ (units - mean) / len(units)
    ridge = np.trace(covariance) / len(covariance) + np.finfo(np.float64).eps  # more than 0 where all are equal
    direction: NDArray[np.float64] = mean
    for _ in range(MOST_DOUBLINGS):
        direction = np.linalg.solve(covariance + ridge * np.eye(len(covariance)), mean)
        direction /= np.linalg.norm(direction)
        rest = unit_length(units - np.outer(units @ direction, direction))
        if np.square(rest.mean(axis=0)).sum() <= NEAR_ZERO:
            break
        ridge *= 2
    return direction.astype(np.float32)


def mean_cosine(vectors: NDArray[np.floating]) -> float:
    """Return the mean cosine of two different rows of (N, D), N at least 2.

    It is (|sum of the unit vectors|^2 - N) / (N (N - 1)).
    """
    units = unit_length(vectors.astype(np.float64))
    count = len(units)
    return float((np.square(units.sum(axis=0)).sum() - count) / (count * (count - 1)))
