import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.export import kinds_as_run, ran
from xcompress.export.int4 import (
    Int4Weights,
    block_scales,
    pack_int4,
    quantize_rows,
    quantize_rows_gptq,
    round_to_int4,
)
from xcompress.export.writer import Writer
from xcompress.modeling.four_bits import block_size_for


def blocks(outputs: int = 10, inputs: int = 64, block: int = 16) -> Int4Weights:
    generator = np.random.default_rng(inputs)
    values = generator.integers(-8, 8, (outputs, inputs)).astype(np.int8)
    return Int4Weights.from_steps(
        values, generator.uniform(-127 / 8, 127 / 8, (outputs, inputs // block)).astype(np.float32)
    )


def opened(made: Int4Weights) -> tuple[NDArray[np.int8], dict[str, NDArray[np.generic]]]:
    """Return the weights as onnxruntime makes them, and what is stored."""
    writer = Writer()
    writer.node("Identity", made.write(writer, "w"), name="found")
    shape = list(made.values.shape[::-1])
    model = writer.model([], [helper.make_tensor_value_info("found", TensorProto.INT8, shape)])
    assert not kinds_as_run(model)["QLinearConv"], "weights are made once, when the graph is opened"
    return ran(model, {})[0], {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}


def test_onnxruntime_makes_the_same_weights_of_the_file() -> None:
    made = blocks()
    found, stored = opened(made)
    np.testing.assert_array_equal(found, made.to_int8().T)
    assert (found.dtype, stored["w.packed"].shape, stored["w.steps"].shape) == (np.int8, (1, 40, 8), (40, 1, 1))
    assert (stored["w.packed"].dtype, stored["w.steps"].dtype) == (np.uint8, np.int8)


def test_weights_are_values_times_the_step_of_their_block_in_eighths() -> None:
    made = blocks()
    for row, column in np.ndindex(made.values.shape):
        exact = int(made.values[row, column]) * int(made.steps[row, column // 16]) / 8
        assert abs(int(made.to_int8()[row, column]) - exact) <= 0.5
    assert np.abs(made.to_int8().astype(int)).max() <= 127


def test_two_values_share_a_byte() -> None:
    first, second = np.array([-8, 7, 0], np.int8), np.array([7, -8, 1], np.int8)
    np.testing.assert_array_equal(pack_int4(first, second), [0xF0, 0x0F, 0x98])


@pytest.mark.parametrize(("width", "block"), [(384, 32), (48, 16), (16, 16), (40, None), (1, None)])
def test_the_first_block_that_divides_is_taken(width: int, block: int | None) -> None:
    assert block_size_for(width) == block


def test_numbers_are_rounded_to_the_nearest_step_within_their_range() -> None:
    numbers = np.array([[0.0, 1.0, -2.0, 16.0], [0.5, 0.5, 0.5, -4.0]])
    scales = block_scales(numbers)
    np.testing.assert_array_equal(scales, np.array([-2, 0.5], np.float16))
    np.testing.assert_array_equal(round_to_int4(numbers, scales[:, None]), [[0, 0, 1, -8], [1, 1, 1, -8]])
    np.testing.assert_array_equal(round_to_int4(np.zeros(3), np.zeros(3, np.float16)), np.zeros(3))


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
