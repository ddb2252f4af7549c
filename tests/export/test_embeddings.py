import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.export import ran
from xcompress.export.graph import TableKind, quantize_rows, write_lookup
from xcompress.export.writer import Writer

ROWS = 37
WIDTHS = (16, 32, 33, 40, 96)
BLOCK_OF = {16: 16, 32: 32, 48: 16, 96: 32}
"""Components that share a scale in an int4 row, by the row's width."""
IDS = np.array([[0, 36, 5], [7, 7, 1]])
KINDS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "int8": TensorProto.INT8, "int4": TensorProto.UINT8}


def table(width: int) -> NDArray[np.float32]:
    """Make rows of very different lengths; row 7 is all zeros, row 1 has a single value."""
    generator = np.random.default_rng(width)
    found = generator.normal(size=(ROWS, width)) * generator.uniform(0.01, 10, (ROWS, 1))
    found[[7, 1]] = 0
    found[1, -1] = -0.25
    return found.astype(np.float32)


def looked_up(rows: NDArray[np.float32], kind: TableKind) -> tuple[NDArray[np.float32], dict[str, object]]:
    """Look IDS up; return the rows, and what is stored."""
    writer = Writer()
    writer.node("Identity", write_lookup(writer, "table", rows, "ids", kind), name="found")
    model = writer.model(
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [None, None])],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [None, None, rows.shape[1]])],
    )
    return ran(model, {"ids": IDS})[0], {tensor.name: tensor for tensor in model.graph.initializer}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_only_rows_of_the_kind_are_stored_and_they_come_back_as_float32(kind: TableKind, width: int) -> None:
    found, stored = looked_up(table(width), kind)
    assert (found.shape, found.dtype) == ((2, 3, width), np.float32)
    rows = next(iter(stored.values()))
    if kind == "int4" and width in BLOCK_OF:
        assert (rows.data_type, list(rows.dims)) == (TensorProto.UINT8, [ROWS, width // 2])
    else:
        own = TensorProto.INT8 if kind == "int4" else KINDS[kind]
        assert (rows.data_type, list(rows.dims)) == (own, [ROWS, width])
    spread = np.abs(table(width)).max(1)[IDS][..., None]
    bound = {"fp32": 0, "fp16": 1 / 1024, "int8": 0.51 / 127, "int4": 1.01 / 8}[kind]
    assert (np.abs(found - table(width)[IDS]) <= bound * spread).all()
    if kind != "fp32":
        assert (found != table(width)[IDS]).any()


def test_rows_of_zeros_stay_zeros() -> None:
    for kind in KINDS:
        assert not looked_up(table(40), kind)[0][1, 0].any()
        assert np.isfinite(looked_up(np.zeros((ROWS, 40), np.float32), kind)[0]).all()


def test_int8_rows_have_a_scale_each_and_are_off_by_half_a_step() -> None:
    rows = table(40)
    found, stored = looked_up(rows, "int8")
    values, scales = (numpy_helper.to_array(stored[f"table.{part}"]) for part in ("rows", "scales"))
    assert (values.shape, scales.shape, scales.dtype) == ((ROWS, 40), (ROWS, 1), np.float32)
    assert (np.abs(values * scales - rows) <= 0.501 * scales).all()
    np.testing.assert_array_equal(np.abs(values.astype(int)).max(1), np.where(np.arange(ROWS) == 7, 0, 127))
    np.testing.assert_array_equal(found, (values * scales)[IDS])


@pytest.mark.parametrize("width", BLOCK_OF)
def test_int4_values_are_off_by_half_a_step_where_seven_steps_reach(width: int) -> None:
    rows = table(width)
    values, scales = quantize_rows(rows, BLOCK_OF[width])
    assert (values.shape, scales.shape) == ((ROWS, width), (ROWS, width // BLOCK_OF[width]))
    assert (values.dtype, scales.dtype) == (np.int8, np.float16)
    assert values.min() == -8
    assert values.max() <= 7
    steps = np.repeat(scales.astype(np.float32), BLOCK_OF[width], 1)
    off = np.abs(values * steps - rows)
    reached = rows / np.where(steps == 0, 1, steps) <= 7.5
    assert reached.mean() > 0.9
    assert (off[reached] <= 0.51 * np.abs(steps)[reached]).all()
    assert (off <= 1.01 * np.abs(steps)).all()
    assert not values[7].any()


@pytest.mark.parametrize("width", BLOCK_OF)
def test_the_looked_up_int4_rows_are_values_times_scales(width: int) -> None:
    rows = table(width)
    values, scales = quantize_rows(rows, BLOCK_OF[width])
    exact = values * np.repeat(scales.astype(np.float32), BLOCK_OF[width], 1)
    found, stored = looked_up(rows, "int4")
    np.testing.assert_array_equal(found, exact.astype(np.float16).astype(np.float32)[IDS])
    assert len(stored["table.rows"].raw_data) == ROWS * width // 2


def test_the_extreme_value_of_a_block_is_kept_almost_exactly() -> None:
    rows = table(96)
    values, scales = quantize_rows(rows, 32)
    blocks = np.abs(rows.reshape(ROWS, -1, 32))
    np.testing.assert_allclose(8 * np.abs(scales.astype(np.float32)), blocks.max(-1), rtol=1e-3)
    assert (values.reshape(ROWS, -1, 32).min(-1)[blocks.max(-1) > 0] == -8).all()


def test_fp16_rows_are_the_nearest_ones() -> None:
    np.testing.assert_array_equal(looked_up(table(33), "fp16")[0], table(33).astype(np.float16).astype(np.float32)[IDS])
