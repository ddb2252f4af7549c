import numpy as np
import pytest

from xcompress.modeling.pca import principal_axes


def vectors(count: int = 200, width: int = 12) -> np.ndarray:
    generator = np.random.default_rng(3)
    return (generator.normal(size=(count, width)) * np.linspace(3, 1, width) + 0.5).astype(np.float32)


def error(rows: np.ndarray, axes: np.ndarray) -> float:
    return float(np.square(rows - rows @ axes.T @ axes).sum())


def test_axes_are_orthonormal_and_fit_better_than_random_axes() -> None:
    rows = vectors()
    axes = principal_axes(rows, 5)
    assert axes.dtype == np.float32
    np.testing.assert_allclose(axes @ axes.T, np.eye(5), atol=1e-5)
    random = np.linalg.qr(np.random.default_rng(1).normal(size=(12, 5)))[0].T
    assert error(rows, axes) < error(rows, random)
    singular = np.linalg.svd(rows.astype(np.float64), compute_uv=False)
    assert error(rows, axes) == pytest.approx(np.square(singular[5:]).sum(), rel=1e-4)


def test_principal_axes_keep_the_most_squared_length_that_any_axes_can() -> None:
    generator = np.random.default_rng(0)
    rows = (generator.normal(size=(200, 12)) * np.arange(1, 13) + 2).astype(np.float32)
    for count in (1, 4, 11):
        axes = principal_axes(rows, count)
        assert (axes.shape, axes.dtype) == ((count, 12), np.float32)
        np.testing.assert_allclose(axes @ axes.T, np.eye(count), atol=1e-5)
        strengths = np.linalg.svd(rows, compute_uv=False)[:count]
        np.testing.assert_allclose(np.square(rows @ axes.T).sum(0), strengths**2, rtol=1e-4)


def test_the_largest_moment_comes_first() -> None:
    rows = vectors()
    lengths = np.square(rows @ principal_axes(rows, 12).T).sum(0)
    assert (np.diff(lengths) < 0).all()


def test_the_largest_coordinate_of_each_axis_is_positive() -> None:
    axes, unsigned = (principal_axes(vectors(), 12, fix_signs=fix) for fix in (True, False))
    assert (axes[np.arange(12), np.abs(axes).argmax(1)] > 0).all()
    np.testing.assert_array_equal(np.abs(axes), np.abs(unsigned))


@pytest.mark.parametrize("count", [3, 12])
def test_axes_are_the_eigenvectors_of_the_library_bit_for_bit(count: int) -> None:
    """Export shortens vectors by these axes; another bit would change exported models."""
    rows = vectors()
    exact = rows.astype(np.float64)
    expected = np.ascontiguousarray(np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :count].T, dtype=np.float32)
    found = np.ascontiguousarray(principal_axes(rows, count, fix_signs=False))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_signed_axes_are_signed_eigenvectors_bit_for_bit() -> None:
    """Distillation reduces a teacher's vectors by these axes; another bit would change students."""
    rows = vectors()
    exact = rows.astype(np.float64)
    axes = np.linalg.eigh(exact.T @ exact)[1][:, ::-1][:, :4].T
    expected = (axes * np.sign(axes[np.arange(4), np.abs(axes).argmax(1)])[:, None]).astype(np.float32)
    found = principal_axes(rows, 4)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    assert (found.flags.f_contiguous, found.flags.c_contiguous) == (
        expected.flags.f_contiguous,
        expected.flags.c_contiguous,
    )
