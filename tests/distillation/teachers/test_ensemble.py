from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.recipe import small_recipe
from tests.helpers.tensors import distinct_texts
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.labels import VectorTable
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.pipeline import distill
from xcompress.distillation.run_folder import open_run
from xcompress.distillation.stages import plan_text_stages
from xcompress.distillation.teachers.encoder import encoder_fingerprint, open_encoder
from xcompress.distillation.teachers.ensemble import FrozenEncoder, TeacherEnsemble, find_encoders
from xcompress.distillation.teachers.vectors import StoredVectors, VectorStore
from xcompress.distillation.training_data import prepare_training_data
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.metrics import cosine_matrix, unit_length
from xcompress.modeling import centering
from xcompress.modeling.centering import centering_map, mean_cosine
from xcompress.modeling.pca import principal_axes
from xcompress.modeling.student import Student, encode
from xcompress.recipe import Recipe, load_recipe

TEXTS = ["The bakery opens at six.", "A fox sleeps.", "He left the key under the mat."]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """Two teachers, the second with three times the weight, reduced to 12 dimensions."""
    folder = tmp_path_factory.mktemp("teaching")
    other = f"{{source: {folder / 'bert'}, pooling: cls, weight: 3}}"
    return small_recipe(folder, f"teacher.ensemble=[{other}]", "teacher.dimensions=12")


@pytest.fixture(scope="module")
def finished(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the recipe; its last stage pulls the vectors of target sentences to the teachers'."""
    contrast = recipe.stages["contrast"].model_copy(update={"objectives": {"teacher_targets": 1.0}, "steps": 40})
    assert contrast.teacher_sides == ["target"]
    changed = recipe.model_copy(update={"stages": {**recipe.stages, "contrast": contrast}})
    return distill(changed, tmp_path_factory.mktemp("finished") / "run")


def unit(count: int, dimension: int, seed: int) -> np.ndarray:
    return unit_length(np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32))


def test_the_cosine_of_concatenated_vectors_is_the_weighted_mean_of_the_cosines() -> None:
    first, second = unit(10, 4, seed=1), unit(10, 6, seed=2)
    both = StoredVectors(first.astype(np.float16), second.astype(np.float16), scales=[0.25**0.5, 0.75**0.5])
    assert len(both) == both.dimension == 10
    rows = both[range(10)]
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    expected = 0.25 * cosine_matrix(first, first) + 0.75 * cosine_matrix(second, second)
    np.testing.assert_allclose(cosine_matrix(rows, rows), expected, atol=2e-3)
    np.testing.assert_array_equal(both[[7, 2]], rows[[7, 2]])


def test_stored_vectors_are_those_of_the_teachers(recipe: Recipe, tmp_path: Path) -> None:
    teacher = recipe.teacher
    assert teacher
    first, second = (open_encoder(member, key)(TEXTS) for key, member in teacher.members.items())
    expected = np.hstack([first * 0.25**0.5, second * 0.75**0.5])
    ensemble = TeacherEnsemble.find(teacher)
    np.testing.assert_allclose(ensemble.load()(TEXTS), expected, atol=1e-6)
    stored = ensemble.stored_vectors(distinct_texts(TEXTS), VectorStore(tmp_path))
    np.testing.assert_allclose(stored[range(3)], expected, atol=1e-3)
    alone = TeacherEnsemble.find(teacher.model_copy(update={"ensemble": (), "dimensions": None}))
    rows = alone.stored_vectors(distinct_texts(TEXTS), VectorStore(tmp_path))[[1]]
    np.testing.assert_allclose(rows, first[[1]], atol=1e-3)
    assert len(list(tmp_path.iterdir())) == 2, "each teacher's vectors are stored once, alone or in an ensemble"


def test_live_vectors_that_are_not_finite_are_refused(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recipe.teacher
    monkeypatch.setattr(FrozenEncoder, "load", lambda _: lambda texts: np.full((len(texts), 2), np.nan))
    with pytest.raises(
        InputError, match=r"^teacher: the vectors of 3 of 3 texts hold NaN or infinity; fetch the model"
    ):
        TeacherEnsemble.find(recipe.teacher).load()(TEXTS)


def test_the_fingerprint_changes_with_whatever_changes_the_targets(recipe: Recipe) -> None:
    teacher = recipe.teacher
    assert teacher
    lighter = teacher.ensemble[0].model_copy(update={"weight": 1.0})
    changes: list[dict[str, object]] = [
        {},
        {"dimensions": 8},
        {"center": True},
        {"weight": 2.0},
        {"ensemble": (lighter,)},
        {"ensemble": ()},
    ]
    teachers = [TeacherEnsemble.find(teacher.model_copy(update=change)) for change in changes]
    assert len({ensemble.fingerprint for ensemble in teachers}) == len(changes)
    alone = teacher.model_copy(update={"ensemble": (), "dimensions": None})
    assert TeacherEnsemble.find(alone).fingerprint == encoder_fingerprint(alone)


def test_a_run_learns_the_ensemble_reduced_to_the_dimensions_of_the_recipe(finished: Path) -> None:
    student, _ = Student.load(finished / "student")
    assert student.config.head_size == student.config.dimension == 12
    manifest = read_json(finished / "manifest.json")
    assert {"teacher", "teacher.ensemble.0"} < manifest["models"].keys()
    assert manifest["steps"]["start"]["facts"]["widths"]["teacher"] == 64
    assert manifest["steps"]["start"]["facts"]["held_out_cosine_to_teacher"] > 0.5


def test_a_run_learns_centred_vectors(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centering, "STEPS", 20)  # any map will do
    assert recipe.teacher
    teacher = recipe.teacher.model_copy(update={"center": True})
    assert TeacherEnsemble.find(teacher.model_copy(update={"ensemble": (), "dimensions": None})).fingerprint != (
        encoder_fingerprint(teacher)
    ), "of one teacher, too"
    tables = []
    for section in (recipe.teacher, teacher):
        with open_run(tmp_path / f"center={section.center}") as run:
            changed = recipe.model_copy(update={"teacher": section})
            encoders, corpus = find_encoders(changed), corpus_step(changed, run, None)
            stages = plan_text_stages(changed, corpus, Monolingual())
            data = prepare_training_data(changed, run, corpus, Monolingual(), stages, encoders, width=32)
            assert data.teacher
            tables.append(data.teacher.of_text(data.fit_texts))
    plain, centred = tables
    np.testing.assert_allclose(centred, unit_length(plain @ centering_map(plain).T), atol=1e-3)
    before, after = map(mean_cosine, tables)
    assert abs(after) < 0.1 < before


def test_teacher_targets_pulls_targets_to_the_teachers_vectors_of_them(finished: Path) -> None:
    with open_run(finished) as run:
        again = load_recipe(finished / "recipe.yaml")
        encoders, corpus = find_encoders(again), corpus_step(again, run, None)
        stages = plan_text_stages(again, corpus, Monolingual())
        data = prepare_training_data(again, run, corpus, Monolingual(), stages, encoders, width=32)
        targets = list(data.sentences("contrast", "target"))
        assert data.teacher and encoders.teacher
        labels = data.teacher.targets().labels(("contrast", "target")).take(range(len(targets)))
        expected = data.teacher.sources.transform(encoders.teacher.load()(targets))
        np.testing.assert_allclose(labels, expected, atol=3e-3)
    before, after = (
        np.square(encode(*Student.load(finished / name), targets) - labels).sum(1).mean()
        for name in ("3-imitation", "student")
    )
    assert after < before


def test_the_dimension_of_a_table_is_that_of_its_transformed_vectors(tmp_path: Path) -> None:
    vectors = unit(30, 8, seed=3)
    texts = {"all": [str(row) for row in range(30)]}
    table = VectorTable.compute(texts, lambda *_: StoredVectors(vectors.astype(np.float16)), VectorStore(tmp_path))
    assert table.dimension == 8
    axes = principal_axes(vectors, 5)
    table = replace(table, transform=lambda rows: rows @ axes.T)
    assert table.dimension == table.labels("all").take([0]).shape[1] == 5
