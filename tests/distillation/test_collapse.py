import numpy as np
import pytest
import torch
from torch import Tensor

from xcompress.distillation.collapse import (
    NARROW,
    NARROW_BATCHES,
    UNDEFINED_BATCHES,
    Collapse,
    CollapseError,
    DivergenceError,
    spread,
)
from xcompress.errors import XCompressError

N, D = 8, 16


def spread_out() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1))


def at_one_point() -> Tensor:
    """Vectors of one direction and unlike lengths, but for a little noise."""
    lengths = torch.arange(1.0, N + 1).unsqueeze(1)
    return lengths * (torch.ones(N, D) + 0.001 * spread_out())


def not_numbers(value: float = torch.nan) -> Tensor:
    vectors = spread_out()
    vectors[3, 5] = value
    return vectors


def check(watch: Collapse, vectors: Tensor, times: int) -> None:
    for _ in range(times):
        watch.check(vectors)


def test_spread_is_1_less_the_mean_cosine() -> None:
    vectors = spread_out().double().numpy()
    cosines = [left @ right / np.sqrt(left @ left * (right @ right)) for left in vectors for right in vectors]
    assert spread(torch.tensor(vectors)) == pytest.approx(1 - np.mean(cosines), rel=1e-5)


@pytest.mark.parametrize(("vectors", "expected"), [(torch.eye(4), 0.75), (torch.ones(4, 3), 0), (-torch.eye(1), 0)])
def test_spread_of_plain_cases(vectors: Tensor, expected: float) -> None:
    assert spread(vectors) == pytest.approx(expected, abs=1e-6)


def test_one_point_in_20_batches_stops_training_with_the_reason() -> None:
    watch = Collapse("stages.align")
    check(watch, spread_out(), 5)
    check(watch, at_one_point(), NARROW_BATCHES - 1)
    with pytest.raises(CollapseError) as raised:
        watch.check(at_one_point())
    message = str(raised.value)
    assert message.startswith("stages.align: collapsed: ") and "\n" not in message
    assert "mean cosine 0.999999 after 25 batches, 0.081 in the first" in message
    assert "ema_decay" in message and "learning_rate" in message
    assert isinstance(raised.value, XCompressError) and raised.value.exit_code == 1


def test_a_batch_that_spreads_starts_the_count_again() -> None:
    watch = Collapse()
    for _ in range(3):
        watch.check(spread_out())
        check(watch, at_one_point(), NARROW_BATCHES - 1)
    watch.check(spread_out())
    check(watch, at_one_point(), NARROW_BATCHES - 1)


def test_like_vectors_are_not_one_point() -> None:
    vectors = torch.ones(N, D) + 0.1 * spread_out()  # a mean cosine of about 0.99
    assert 0.001 < spread(vectors) < 0.02
    check(Collapse(), vectors, 2 * NARROW_BATCHES)


@pytest.mark.parametrize("vectors", [torch.ones(1, D), torch.ones(0, D)])
def test_a_batch_of_one_or_none_says_nothing(vectors: Tensor) -> None:
    check(Collapse(), vectors, 2 * NARROW_BATCHES)


def narrow(size: float) -> Tensor:
    """Vectors around one point, with a spread of about size^2."""
    return torch.ones(N, D) + size * spread_out()


def test_a_student_that_starts_narrow_may_become_narrower() -> None:
    watch = Collapse()
    watch.check(narrow(0.1))
    check(watch, narrow(0.02), 2 * NARROW_BATCHES)
    assert spread(narrow(0.02)) < NARROW
    with pytest.raises(CollapseError):
        check(watch, narrow(0.005), NARROW_BATCHES)


def test_what_is_at_one_point_from_the_beginning_is_told_too() -> None:
    with pytest.raises(CollapseError):
        check(Collapse(), torch.ones(N, D), NARROW_BATCHES)


def test_a_batch_of_one_between_does_not_start_the_count_again() -> None:
    watch = Collapse()
    watch.check(spread_out())
    check(watch, at_one_point(), NARROW_BATCHES - 1)
    watch.check(torch.ones(1, D))
    with pytest.raises(CollapseError):
        watch.check(at_one_point())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_vectors_that_are_no_numbers_are_a_matter_of_their_own(value: float) -> None:
    watch = Collapse()
    watch.check(spread_out())
    check(watch, not_numbers(value), UNDEFINED_BATCHES - 1)
    with pytest.raises(
        DivergenceError, match=r"^training: diverged: .* after 4 batches; lower learning_rate"
    ) as raised:
        watch.check(not_numbers(value))
    assert raised.value.exit_code == 1


def test_single_batches_that_are_no_numbers_are_passed_over() -> None:
    watch = Collapse()
    for _ in range(UNDEFINED_BATCHES):
        check(watch, not_numbers(), UNDEFINED_BATCHES - 1)
        watch.check(spread_out())


def test_a_single_vector_that_is_no_number_counts() -> None:
    with pytest.raises(DivergenceError):
        check(Collapse(), torch.full((1, D), torch.nan), UNDEFINED_BATCHES)
