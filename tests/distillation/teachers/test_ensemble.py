from pathlib import Path

import numpy as np
import pytest

from tests.helpers.recipe import small_recipe
from xcompress.distillation.data.targets import VectorTable
from xcompress.distillation.initialization import principal_axes
from xcompress.distillation.materials import Materials
from xcompress.distillation.pipeline import distill
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder, unit_length
from xcompress.distillation.teachers.ensemble import SideBySide, open_teacher, stored_vectors, teacher_fingerprint
from xcompress.distillation.teachers.vectors import Vectors, VectorStore
from xcompress.files import read_json
from xcompress.metrics import cosine_matrix
from xcompress.modeling.student import Student, encode
from xcompress.recipe import Recipe, load_recipe

TEXTS = ["The bakery opens at six.", "A fox sleeps.", "He left the key under the mat."]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Two teachers, the second three times as heavy, reduced to 12 numbers."""
    folder = tmp_path_factory.mktemp("teaching")
    other = f"{{source: {folder / 'bert'}, pooling: cls, weight: 3}}"
    return small_recipe(folder, f"teacher.ensemble=[{other}]", "teacher.dimensions=12")


def unit(count: int, dimension: int, seed: int) -> np.ndarray:
    return unit_length(np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32))


def test_cosines_side_by_side_are_the_weighted_mean_of_the_cosines() -> None:
    one, other = unit(10, 4, seed=1), unit(10, 6, seed=2)
    both = SideBySide([Vectors([part.astype(np.float16)]) for part in (one, other)], [0.25**0.5, 0.75**0.5])
    assert both.shape == (10, 10) and len(both) == 10
    rows = both.rows(range(10))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    expected = 0.25 * cosine_matrix(one, one) + 0.75 * cosine_matrix(other, other)
    np.testing.assert_allclose(cosine_matrix(rows, rows), expected, atol=2e-3)
    np.testing.assert_array_equal(both.rows([7, 2]), rows[[7, 2]])


def test_stored_vectors_are_those_of_the_teachers(recipe: Recipe, tmp_path: Path) -> None:
    teacher = recipe.teacher
    assert teacher
    first, second = (open_encoder(one, key)(TEXTS) for key, one in teacher.members.items())
    expected = np.hstack([first * 0.25**0.5, second * 0.75**0.5])
    np.testing.assert_allclose(open_teacher(teacher)(TEXTS), expected, atol=1e-6)
    stored = stored_vectors(teacher, VectorStore(tmp_path))(TEXTS)
    np.testing.assert_allclose(stored.rows(range(3)), expected, atol=1e-3)
    alone = teacher.model_copy(update={"ensemble": (), "dimensions": None})
    np.testing.assert_allclose(stored_vectors(alone, VectorStore(tmp_path))(TEXTS).rows([1]), first[[1]], atol=1e-3)
    assert len(list(tmp_path.iterdir())) == 2, "each teacher's own are kept once, alone or joined"


def test_the_hash_changes_with_all_that_changes_what_is_learned(recipe: Recipe) -> None:
    teacher = recipe.teacher
    assert teacher
    lighter = teacher.ensemble[0].model_copy(update={"weight": 1.0})
    changes: list[dict[str, object]] = [
        {},
        {"dimensions": 8},
        {"weight": 2.0},
        {"ensemble": (lighter,)},
        {"ensemble": ()},
    ]
    assert len({teacher_fingerprint(teacher.model_copy(update=change)) for change in changes}) == len(changes)
    alone = teacher.model_copy(update={"ensemble": (), "dimensions": None})
    assert teacher_fingerprint(alone) == encoder_fingerprint(alone)


def test_a_run_learns_what_both_say_in_the_width_that_was_asked_for(recipe: Recipe, tmp_path: Path) -> None:
    run = distill(recipe, tmp_path / "run")
    student, _ = Student.load(run / "student")
    assert student.config.head_size == student.config.dimension == 12
    manifest = read_json(run / "manifest.json")
    assert {"teacher", "teacher.ensemble.0"} < manifest["models"].keys()
    assert manifest["steps"]["start"]["facts"]["widths"]["teacher"] == 64
    assert manifest["steps"]["start"]["facts"]["held_out_cosine_to_teacher"] > 0.5


def test_targets_go_to_the_teachers_own_vectors_of_them(recipe: Recipe, tmp_path: Path) -> None:
    contrast = recipe.stages["contrast"].model_copy(update={"objectives": {"teacher_targets": 1.0}})
    assert contrast.teacher_sides == ["target"]
    folder = distill(recipe.model_copy(update={"stages": {**recipe.stages, "contrast": contrast}}), tmp_path / "run")
    with open_run(folder) as run:
        materials = Materials(load_recipe(folder / "recipe.yaml"), run, 32, None)
        targets = list(materials.sentences("contrast", "target"))
        goals = materials.taught_targets.goal("contrast").take(range(len(targets)))
        assert recipe.teacher
        np.testing.assert_allclose(goals, materials.taught.change(open_teacher(recipe.teacher)(targets)), atol=3e-3)
    before, after = (
        np.square(encode(*Student.load(folder / name), targets) - goals).sum(1).mean()
        for name in ("3-imitation", "student")
    )
    assert after < before


def test_a_table_knows_how_wide_its_changed_vectors_are() -> None:
    vectors = unit(30, 8, seed=3)
    table = VectorTable({"all": [str(row) for row in range(30)]}, lambda texts: Vectors([vectors.astype(np.float16)]))
    assert table.dimension == 8
    axes = principal_axes(vectors, 5)
    table.change = lambda rows: rows @ axes.T
    assert table.dimension == table.goal("all").take([0]).shape[1] == 5
