import numpy as np
import pytest

from xcompress.distillation.training_data import target_width
from xcompress.errors import InputError
from xcompress.metrics import cosine_matrix
from xcompress.modeling.pca import principal_axes
from xcompress.recipe import load_recipe


def sample(count: int, dimension: int, rank: int, seed: int = 0) -> np.ndarray:
    """Sample vectors in a subspace, far from the origin, with a different spread on each axis."""
    generator = np.random.default_rng(seed)
    coordinates = generator.normal(size=(count, rank)) * np.linspace(3, 1, rank) + 2
    return (coordinates @ generator.normal(size=(rank, dimension))).astype(np.float32)


def test_axes_are_orthonormal_and_lose_the_smallest_eigenvalues() -> None:
    vectors = sample(300, 20, 20)
    axes = principal_axes(vectors, 6)
    assert axes.shape == (6, 20) and axes.dtype == np.float32
    np.testing.assert_allclose(axes @ axes.T, np.eye(6), atol=1e-6)
    lost = np.square(vectors - vectors @ axes.T @ axes).sum()
    eigenvalues = np.linalg.svd(vectors.astype(np.float64), compute_uv=False) ** 2
    assert lost == pytest.approx(eigenvalues[6:].sum(), rel=1e-4)
    kept = np.square(vectors @ axes.T).sum(0)
    np.testing.assert_allclose(kept, eigenvalues[:6], rtol=1e-4)


def test_cosines_in_a_subspace_through_the_origin_are_kept() -> None:
    vectors = sample(100, 32, 5)
    chosen = vectors[[3, 1, 7]]
    coordinates = chosen @ principal_axes(vectors, 5).T
    assert coordinates.shape == (3, 5)
    np.testing.assert_allclose(cosine_matrix(coordinates, coordinates), cosine_matrix(chosen, chosen), atol=1e-5)


def test_axes_are_about_the_origin_not_about_the_mean() -> None:
    vectors = np.float32([[10, 1], [10, -1], [10, 0.5], [10, -0.5]])
    np.testing.assert_allclose(principal_axes(vectors, 1), [[1, 0]], atol=1e-6)


def test_the_largest_coordinate_of_each_axis_is_positive() -> None:
    for seed in range(4):
        axes = principal_axes(sample(60, 8, 8, seed), 8)
        assert (axes[np.arange(8), np.abs(axes).argmax(1)] > 0).all()


@pytest.mark.parametrize(
    ("change", "key", "wider", "more"),
    [
        ("widths=pca", "widths: pca", "use head", "use head"),
        ("teacher.dimensions=6", r"teacher\.dimensions", "choose 4 or fewer", "choose 5 or fewer"),
    ],
)
def test_too_narrow_or_too_few_vectors_are_refused_with_both_numbers(
    change: str, key: str, wider: str, more: str
) -> None:
    recipe = load_recipe("minilm_ru3", [change])
    dimensions = recipe.teacher.dimensions if recipe.teacher else None
    with pytest.raises(InputError, match=f"{key} cannot widen vectors of width 4 to 6; {wider}$"):
        target_width(recipe, 6, dimensions, texts=100, dimension=4)
    with pytest.raises(
        InputError, match=f"{key} needs 6 sentences or more for 6 axes, but there are 5; add text, or {more}$"
    ):
        target_width(recipe, 6, dimensions, texts=5, dimension=8)
    assert target_width(recipe, 6, dimensions, texts=5, dimension=6) == 6


@pytest.mark.parametrize(
    ("widths", "has_teacher", "dimension", "advice"),
    [
        ("equal", True, 8, "use head or pca"),
        ("equal", True, 4, "use head"),
        ("head", False, 8, "use pca, as a head needs a teacher"),
        ("head", False, 4, "choose another assistant, as a head needs a teacher"),
    ],
)
def test_what_is_advised_against_unequal_widths_can_be_done(
    widths: str, has_teacher: bool, dimension: int, advice: str
) -> None:
    """The axes of a PCA do not widen vectors."""
    recipe = load_recipe("minilm_ru3", [f"widths={widths}"])
    recipe = recipe if has_teacher else recipe.model_copy(update={"teacher": None})
    with pytest.raises(InputError, match=f"the targets have {dimension} dimensions and the encoder 6; {advice}$"):
        target_width(recipe, 6, None, texts=100, dimension=dimension)
