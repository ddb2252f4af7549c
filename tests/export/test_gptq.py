import numpy as np
import pytest
from numpy.typing import NDArray

from xcompress.export.int4 import quantize_rows, quantize_rows_gptq

BLOCK = 16
Floats = NDArray[np.float32]


def weights() -> Floats:
    return np.random.default_rng(0).normal(size=(24, 64)).astype(np.float32)


def inputs(mixed: float) -> Floats:
    """Make inputs (500, 64) whose channels have more in common the more they are mixed."""
    generator = np.random.default_rng(1)
    common = generator.normal(size=(500, 8)) @ generator.normal(size=(8, 64))
    return (mixed * common + generator.normal(size=(500, 64))).astype(np.float32)


def moved(rows: Floats, given: Floats, values: NDArray[np.int8], scales: NDArray[np.float16]) -> float:
    """Return how far products are off, relative to their length."""
    near = values * np.repeat(scales.astype(np.float32), BLOCK, 1)
    return float(np.linalg.norm(given @ (near - rows).T) / np.linalg.norm(given @ rows.T))


@pytest.mark.parametrize(("mixed", "share"), [(1.0, 0.6), (5.0, 0.3)])
def test_products_move_less_than_with_weights_rounded_one_by_one(mixed: float, share: float) -> None:
    rows, given = weights(), inputs(mixed)
    plain = moved(rows, given, *quantize_rows(rows, BLOCK))
    assert moved(rows, given, *quantize_rows_gptq(rows, given.T @ given, BLOCK)) < share * plain


def test_inputs_with_nothing_in_common_leave_each_weight_rounded_by_itself() -> None:
    rows = weights()
    for found, plain in zip(
        quantize_rows_gptq(rows, np.eye(64, dtype=np.float32), BLOCK), quantize_rows(rows, BLOCK), strict=True
    ):
        np.testing.assert_array_equal(found, plain)
        assert found.dtype == plain.dtype


def test_inputs_that_are_always_nought_do_no_harm() -> None:
    rows, given = weights(), inputs(1.0)
    given[:, 7] = 0
    values, scales = quantize_rows_gptq(rows, given.T @ given, BLOCK)
    assert moved(rows, given, values, scales) < 0.1
    nothing = quantize_rows_gptq(rows, np.zeros((64, 64), np.float32), BLOCK)
    np.testing.assert_array_equal(nothing[0], quantize_rows(rows, BLOCK)[0])
