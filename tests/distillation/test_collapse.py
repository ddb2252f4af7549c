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


def independent() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(1))


def nearly_equal() -> Tensor:
    """Vectors of one direction and different lengths, with a little noise."""
    lengths = torch.arange(1.0, N + 1).unsqueeze(1)
    return lengths * (torch.ones(N, D) + 0.001 * independent())


def not_finite(value: float = torch.nan) -> Tensor:
    vectors = independent()
    vectors[3, 5] = value
    return vectors


def check(collapse: Collapse, vectors: Tensor, times: int) -> None:
    for _ in range(times):
        collapse.check(vectors)


def test_spread_is_1_less_the_mean_cosine() -> None:
    vectors = independent().double().numpy()
    cosines = [left @ right / np.sqrt(left @ left * (right @ right)) for left in vectors for right in vectors]
    assert float(spread(torch.tensor(vectors))) == pytest.approx(1 - np.mean(cosines), rel=1e-5)


@pytest.mark.parametrize(("vectors", "expected"), [(torch.eye(4), 0.75), (torch.ones(4, 3), 0), (-torch.eye(1), 0)])
def test_spread_of_plain_cases(vectors: Tensor, expected: float) -> None:
    assert float(spread(vectors)) == pytest.approx(expected, abs=1e-6)


def test_equal_vectors_in_20_batches_stop_training() -> None:
    collapse = Collapse("stages.align")
    check(collapse, independent(), 5)
    check(collapse, nearly_equal(), NARROW_BATCHES - 1)
    with pytest.raises(CollapseError) as raised:
        collapse.check(nearly_equal())
    message = str(raised.value)
    assert message.startswith("stages.align: collapsed: ") and "\n" not in message
    assert "mean cosine 0.999999 after 25 batches, 0.081 in the first" in message
    assert "ema_decay" in message and "learning_rate" in message
    assert isinstance(raised.value, XCompressError) and raised.value.exit_code == 1


def test_a_batch_with_spread_restarts_the_count() -> None:
    collapse = Collapse()
    for _ in range(3):
        collapse.check(independent())
        check(collapse, nearly_equal(), NARROW_BATCHES - 1)
    collapse.check(independent())
    check(collapse, nearly_equal(), NARROW_BATCHES - 1)


def test_similar_vectors_are_no_collapse() -> None:
    vectors = torch.ones(N, D) + 0.1 * independent()  # a mean cosine of about 0.99
    assert 0.001 < spread(vectors) < 0.02
    check(Collapse(), vectors, 2 * NARROW_BATCHES)


@pytest.mark.parametrize("vectors", [torch.ones(1, D), torch.ones(0, D)])
def test_batches_of_one_pair_or_none_are_ignored(vectors: Tensor) -> None:
    check(Collapse(), vectors, 2 * NARROW_BATCHES)


def narrow(size: float) -> Tensor:
    """Vectors around one point, with a spread of about size^2."""
    return torch.ones(N, D) + size * independent()


def test_a_student_that_starts_narrow_may_become_narrower() -> None:
    collapse = Collapse()
    collapse.check(narrow(0.1))
    check(collapse, narrow(0.02), 2 * NARROW_BATCHES)
    assert spread(narrow(0.02)) < NARROW
    with pytest.raises(CollapseError):
        check(collapse, narrow(0.005), NARROW_BATCHES)


def test_vectors_that_are_equal_from_the_beginning_are_a_collapse() -> None:
    with pytest.raises(CollapseError, match=r"1\.000 in the first\); they are so from the first batch on: give more"):
        check(Collapse(), torch.ones(N, D), NARROW_BATCHES)


def test_a_checkpoint_keeps_the_first_spread_and_the_count() -> None:
    collapse, resumed = Collapse(), Collapse()
    resumed.load_state_dict(collapse.state_dict())
    assert (resumed.first, resumed.batches, resumed.narrow) == (None, 0, 0)
    collapse.check(independent())
    check(collapse, nearly_equal(), NARROW_BATCHES - 1)
    resumed.load_state_dict(collapse.state_dict())
    with pytest.raises(CollapseError, match=r"after 21 batches, 0\.081 in the first"):
        resumed.check(nearly_equal())


def test_a_batch_of_one_pair_does_not_restart_the_count() -> None:
    collapse = Collapse()
    collapse.check(independent())
    check(collapse, nearly_equal(), NARROW_BATCHES - 1)
    collapse.check(torch.ones(1, D))
    with pytest.raises(CollapseError):
        collapse.check(nearly_equal())


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_vectors_that_are_not_finite_are_a_divergence(value: float) -> None:
    collapse = Collapse()
    collapse.check(independent())
    check(collapse, not_finite(value), UNDEFINED_BATCHES - 1)
    with pytest.raises(
        DivergenceError, match=r"^training: diverged: .* after 4 batches; lower learning_rate"
    ) as raised:
        collapse.check(not_finite(value))
    assert raised.value.exit_code == 1


def test_single_batches_that_are_not_finite_are_ignored() -> None:
    collapse = Collapse()
    for _ in range(UNDEFINED_BATCHES):
        check(collapse, not_finite(), UNDEFINED_BATCHES - 1)
        collapse.check(independent())


def test_a_single_vector_that_is_not_finite_counts() -> None:
    with pytest.raises(DivergenceError):
        check(Collapse(), torch.full((1, D), torch.nan), UNDEFINED_BATCHES)


def test_spreads_that_are_read_together_are_judged_one_by_one() -> None:
    collapse = Collapse(read_together=8)
    check(collapse, independent(), 3)
    check(collapse, nearly_equal(), 20)
    assert collapse.batches == 16 and collapse.narrow == 13
    with pytest.raises(CollapseError, match="after 23 batches"):
        collapse.check(independent())


def test_a_divergence_that_is_read_later_names_its_own_batch() -> None:
    collapse = Collapse(read_together=10)
    collapse.check(independent())
    check(collapse, not_finite(), UNDEFINED_BATCHES)
    with pytest.raises(DivergenceError, match="after 4 batches"):
        check(collapse, independent(), 6)
