from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.helpers.export import kinds, ran
from xcompress.export import matmul as products
from xcompress.export.matmul import (
    GELU_LEAST,
    PAIR_STEPS,
    InputScale,
    Level,
    MatMul,
    MatMulWriter,
    Range,
    int4_weights,
    int8_weights,
    scale_for,
)
from xcompress.export.writer import Writer

WIDTH, OUT = 48, 32
Floats = NDArray[np.float32]


def made_site(*, least: float | None = None, bias: bool = True, width: int = WIDTH) -> MatMul:
    generator = np.random.default_rng(width)
    weight = (generator.normal(size=(width, OUT)) * generator.uniform(0.1, 2, OUT)).astype(np.float32)
    return MatMul("site", weight, generator.normal(size=OUT).astype(np.float32) if bias else None, least)


def tokens(least: float | None = None, width: int = WIDTH) -> Floats:
    """Make (3, 5, width) of very different lengths, and one row of zeros."""
    generator = np.random.default_rng(7)
    found = generator.normal(size=(3, 5, width)) * np.logspace(-2, 1, 5)[None, :, None]
    found[1, 2] = 0
    return np.maximum(found, -np.inf if least is None else least).astype(np.float32)


def range_of(values: Floats) -> Range:
    rows = values.reshape(-1, values.shape[-1])
    return Range(rows.min(0), rows.max(0))


def product(writes: MatMulWriter, site: MatMul, values: Floats) -> Floats:
    writer = Writer()
    writer.node("Identity", writes.write(writer, "x", site), name="y")
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None, width])
        for name, width in (("x", values.shape[-1]), ("y", OUT))
    ]
    return ran(writer.model(sides[:1], sides[1:]), {"x": values})[0]


def at(level: Level, site: MatMul, values: Floats, seen: Floats | None = None) -> Floats:
    """Compute a product at a level."""
    return product(MatMulWriter(level, ranges={site.name: range_of(values if seen is None else seen)}), site, values)


def static_by_hand(site: MatMul, values: Floats, scaling: InputScale) -> Floats:
    smooth = np.ones(len(site.weight), dtype=np.float32) if scaling.smooth is None else scaling.smooth
    weights = int8_weights(site.weight * smooth[:, None])
    found = np.empty((*values.shape[:-1], OUT), dtype=np.float32)
    for place in np.ndindex(values.shape[:-1]):
        steps = np.rint(values[place] * (1 / smooth) / scaling.scale) + int(scaling.zero)
        steps = np.clip(steps, 0, 255).astype(np.int64) - int(scaling.zero)
        found[place] = steps @ weights.values.astype(np.int64) * scaling.scale * weights.scales
    return found + (0 if site.bias is None else site.bias)


def token_by_hand(site: MatMul, values: Floats) -> Floats:
    """Follow the docstring: a scale for each token, of its largest value or its largest absolute value."""
    weights = int8_weights(site.weight)
    found = np.empty((*values.shape[:-1], OUT), dtype=np.float32)
    for place in np.ndindex(values.shape[:-1]):
        row = values[place]
        if site.least is None:
            scale, zero = np.abs(row).max() / 127, 128
        else:  # 32 of 255 steps for what is below 0, as long as they reach down to `least`
            scale, zero = max(row.max() / 223, -site.least / 32), 32
        steps = np.clip(np.rint(row / (scale or 1)) + zero, 0, 255).astype(np.int64) - zero
        found[place] = steps @ weights.values.astype(np.int64) * scale * weights.scales
    return found + (0 if site.bias is None else site.bias)


def test_int8_weights_are_off_by_half_a_step_at_most_and_use_all_steps() -> None:
    weight = made_site().weight
    weight[:, 3] = 0
    weight[:, 5] = 0
    weight[-1, 5] = -1e6
    found = int8_weights(weight)
    assert (found.values.dtype, found.scales.dtype, found.scales.shape) == (np.int8, np.float32, (OUT,))
    assert (np.abs(found.values * found.scales - weight) <= 0.501 * found.scales).all()
    sizes = np.abs(found.values.astype(int))
    pairs = (sizes + np.roll(sizes, 1, 0)).max(0)
    assert (pairs >= PAIR_STEPS - 1)[np.arange(OUT) != 3].all()
    assert not found.values[:, 3].any()
    assert found.values[-1, 5] == -127
    assert np.isfinite(found.scales).all()


def test_pairs_of_products_fit_16_bits() -> None:
    generator = np.random.default_rng(1)
    equal = np.full((9, OUT), -1e30, dtype=np.float32)
    random = generator.normal(size=(501, 200)) * np.exp(generator.normal(size=(501, 1)))
    for weight in (equal, -equal, random.astype(np.float32), np.eye(OUT, dtype=np.float32)):
        values = np.abs(int8_weights(weight).values.astype(int))
        assert 255 * (values[:-1] + values[1:]).max() < 2**15
        assert values.max() <= 127


def test_pairs_of_products_of_4_bit_weights_fit_16_bits() -> None:
    generator = np.random.default_rng(1)
    random = generator.normal(size=(512, 192)) * np.exp(generator.normal(size=(512, 1)))
    for weight in (random, -np.abs(random), np.full((32, 31), -1e30), np.eye(32)):
        found = int4_weights(weight.astype(np.float32))
        assert found.int4 is not None
        values = np.abs(found.values.astype(int))
        assert 255 * (values[:-1] + values[1:]).max() < 2**15
        assert np.isfinite(found.scales).all()


def test_4_bit_weights_are_off_by_a_step_of_their_block_at_most() -> None:
    weight = made_site(width=64).weight
    found = int4_weights(weight)
    largest = np.repeat(np.abs(weight.reshape(2, 32, OUT)).max(1), 32, 0)
    off = np.abs(found.values * found.scales - weight)
    assert (off <= 1.1 * largest / 8).all()
    assert off.mean() < 0.04 * largest.mean()


@pytest.mark.parametrize(("inputs", "outputs"), [(40, 32), (24, 20)])
def test_weights_of_other_shapes_stay_int8(inputs: int, outputs: int) -> None:
    weight = np.random.default_rng(2).normal(size=(inputs, outputs)).astype(np.float32)
    found, plain = int4_weights(weight), int8_weights(weight)
    assert found.int4 is None
    np.testing.assert_array_equal(found.values, plain.values)


@pytest.mark.parametrize("level", ["static", "token"])
def test_products_in_4_bits_are_computed_as_those_in_8(level: Level) -> None:
    site, values = made_site(width=400), tokens(width=400)
    values[..., 17] *= 60
    ranges = {site.name: range_of(values)}
    exact = values @ site.weight + site.bias
    off = [
        np.abs(product(MatMulWriter(level, ranges=ranges, bits=bits), site, values) - exact).mean() for bits in (8, 4)
    ]
    assert off[0] < off[1] < 0.15 * np.abs(exact).mean()


def test_weights_are_fitted_to_the_inputs_that_were_seen() -> None:
    site, generator = made_site(), np.random.default_rng(3)
    values = (generator.normal(size=(1, 300, 6)) @ generator.normal(size=(6, WIDTH))).astype(np.float32)
    plain = range_of(values)
    fitted = replace(plain, moments=values[0].T @ values[0])
    exact = values @ site.weight + site.bias
    off = [
        np.abs(product(MatMulWriter("token", ranges={site.name: seen}, bits=4), site, values) - exact).mean()
        for seen in (fitted, plain)
    ]
    assert off[0] < 0.5 * off[1]


@pytest.mark.parametrize("bias", [True, False])
def test_a_static_product_is_what_a_loop_gives(bias: bool) -> None:
    site, values = made_site(bias=bias), tokens()
    expected = static_by_hand(site, values, scale_for(range_of(values)))
    np.testing.assert_allclose(at("static", site, values), expected, atol=1e-5 * np.abs(expected).max())


def test_a_static_product_with_an_outlier_channel_is_what_a_loop_gives() -> None:
    site, values = made_site(width=400), tokens(width=400)
    values[..., 17] *= 60
    scaling = scale_for(range_of(values))
    assert scaling.smooth is not None
    expected = static_by_hand(site, values, scaling)
    np.testing.assert_allclose(at("static", site, values), expected, atol=1e-5 * np.abs(expected).max())


def test_inputs_beyond_the_range_stop_at_its_ends() -> None:
    site, values = made_site(), tokens()
    expected = static_by_hand(site, values, scale_for(range_of(values / 4)))
    found = at("static", site, values, seen=values / 4)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("least", [None, GELU_LEAST])
def test_a_product_by_token_is_what_a_loop_gives(least: float | None, bias: bool) -> None:
    site, values = made_site(least=least, bias=bias), tokens(least)
    expected = token_by_hand(site, values)
    np.testing.assert_allclose(at("token", site, values), expected, atol=1e-5 * np.abs(expected).max())


def test_what_no_input_falls_below_is_covered_however_small_the_token() -> None:
    site = made_site(least=GELU_LEAST)
    values = np.full((1, 2, WIDTH), GELU_LEAST, dtype=np.float32)
    values[0, 1, 0] = 9
    exact = values @ site.weight + site.bias
    step = np.array([-GELU_LEAST / 32, 9 / 223])[:, None]  # half a step for each input
    assert (np.abs(at("token", site, values) - exact)[0] < 0.51 * step * np.abs(site.weight).sum(0) + 0.05).all()


@pytest.mark.parametrize("least", [None, GELU_LEAST])
def test_by_token_a_vector_does_not_depend_on_the_others(least: float | None) -> None:
    site, values = made_site(least=least), tokens(least)
    whole = at("token", site, values)
    for row, column in np.ndindex(3, 5):
        alone = at("token", site, values[row : row + 1, column : column + 1])
        np.testing.assert_array_equal(alone[0, 0], whole[row, column])


@pytest.mark.parametrize("level", ["static", "token", "fp32"])
@pytest.mark.parametrize("least", [None, GELU_LEAST])
def test_a_row_of_zeros_gives_the_bias(level: Level, least: float | None) -> None:
    site = made_site(least=least)
    np.testing.assert_array_equal(at(level, site, tokens(least))[1, 2], site.bias)


def test_products_are_near_the_exact_one_in_the_order_of_their_levels() -> None:
    site, values = made_site(), tokens()
    exact = values.astype(np.float64) @ site.weight + site.bias
    static, token, fp32 = (np.abs(at(level, site, values) - exact).mean() for level in ("static", "token", "fp32"))
    assert static > 1.5 * token > 0
    assert token < 0.02 * np.abs(exact).mean()
    assert fp32 < 1e-5


def test_the_range_is_covered() -> None:
    for low, high in ((-3, 7), (0, 5), (2, 5), (-5, -2), (0, 0), (-1e-20, 0), (-1e6, 1e-6)):
        scaling = scale_for(Range(np.full(8, low, np.float32), np.full(8, high, np.float32)))
        first, last = ((step - int(scaling.zero)) * float(scaling.scale) for step in (0, 255))
        half = 0.5001 * float(scaling.scale)
        assert first - half <= min(low, 0)
        assert last + half >= max(high, 0)
        assert scaling.smooth is None
        assert float(scaling.scale) > 0


def test_only_channels_far_beyond_the_others_are_smoothed() -> None:
    reach = np.linspace(0.5, 1, 400).astype(np.float32)
    assert scale_for(Range(-reach, reach)).smooth is None
    reach[7] = 1.3
    assert scale_for(Range(-reach, reach)).smooth is None
    reach[7] = 40
    smooth = scale_for(Range(-reach, reach)).smooth
    assert smooth is not None
    np.testing.assert_allclose(smooth, (reach / np.median(reach)) ** 0.7, rtol=1e-5)
    assert (reach / smooth).max() < 5 * np.median(reach)
    one_sided = scale_for(Range(-reach, np.zeros(400, np.float32)))
    assert one_sided.zero == 255
    np.testing.assert_array_equal(one_sided.smooth, smooth)


def test_channels_that_hardly_move_are_not_smoothed_without_end() -> None:
    reach = np.ones(400, np.float32)
    reach[3], reach[7] = 0, 40
    smooth = scale_for(Range(-reach, reach)).smooth
    assert smooth is not None
    assert smooth[3] == pytest.approx(0.05**0.7, rel=1e-5)


def test_smoothing_changes_no_product_and_makes_the_quantised_one_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    site, values = made_site(width=400), tokens(width=400)
    values[..., 17] *= 60
    smooth = scale_for(range_of(values)).smooth
    assert smooth is not None
    wide, exact = smooth.astype(np.float64), values.astype(np.float64) @ site.weight
    np.testing.assert_allclose((values / wide) @ (site.weight * wide[:, None]), exact, rtol=1e-9)
    error = np.abs(at("static", site, values) - site.bias - exact).mean()
    monkeypatch.setattr(products, "_OUTLIER_RATIO", 1e9)
    assert error < 0.6 * np.abs(at("static", site, values) - site.bias - exact).mean()


def test_levels_by_default_and_by_name() -> None:
    plain, after_gelu = made_site(), MatMul("other", made_site().weight, None, GELU_LEAST, "token")
    assert [MatMulWriter().level(site) for site in (plain, after_gelu)] == ["fp32", "fp32"]
    assert [MatMulWriter(None).level(site) for site in (plain, after_gelu)] == ["static", "token"]
    named = MatMulWriter(None, {"site": "fp32", "other": "static"})
    assert [named.level(site) for site in (plain, after_gelu)] == ["fp32", "static"]
    assert MatMulWriter("token", {"other": "fp32"}).level(plain) == "token"


def test_terms_sum_up_to_the_product_and_the_bias_goes_with_it_where_the_operator_takes_one() -> None:
    site = made_site()
    for level, terms in (("static", 1), ("token", 2), ("fp32", 2)):
        writes = MatMulWriter(level, ranges={"site": range_of(tokens())})
        assert len(writes.write_terms(Writer(), "x", site)) == terms
        assert len(writes.write_terms(Writer(), "x", MatMul("site", site.weight, None))) == 1


def test_a_site_used_again_stores_nothing_again() -> None:
    for level in ("static", "token", "fp32"):
        writer, writes = Writer(), MatMulWriter(level, ranges={"site": range_of(tokens())})
        stored = []
        for _ in range(3):
            writes.write(writer, "x", made_site())
            stored.append([tensor.name for tensor in writer.model([], []).graph.initializer])
        assert stored[0] == stored[2]


def test_halved_weights_are_stored_as_float16_and_turned_into_float32_once_outside_a_loop() -> None:
    writer, site, writes = Writer(), made_site(), MatMulWriter(half=True)
    body = Writer(writer)
    for place in (body, body, writer):
        writes.write(place, "x", site)
    model = writer.model([], [])
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert [array.dtype for array in stored.values() if array.ndim == 2] == [np.float16]
    assert kinds(model.graph)["Cast"] == 1
    assert [node.op_type for node in body.nodes] == ["MatMul", "Add"] * 2
    values = tokens()
    expected = values @ site.weight.astype(np.float16).astype(np.float32) + site.bias
    np.testing.assert_allclose(product(writes, site, values), expected, atol=1e-4)


@pytest.mark.parametrize("level", ["static", "token"])
def test_weights_of_a_product_that_is_written_twice_are_found_once(
    level: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        MatMulWriter, "quantize_weight", lambda _, site: asked.append(site.name) or int4_weights(site.weight)
    )
    writer, site = Writer(), made_site()
    writes = MatMulWriter(level, ranges={site.name: range_of(tokens())}, bits=4)
    stored = [(writes.write(writer, "x", site), len(writer._constants)) for _ in range(2)]
    assert asked == ["site"]
    assert stored[0][1] == stored[1][1]
