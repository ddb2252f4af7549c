"""Model soups: the mean of several trainings or students."""

from pathlib import Path

import pytest
import torch

from tests.helpers.recipe import write_recipe
from tests.helpers.runs import CONTRAST, load_finite, run
from xcompress.distillation.plan import plan
from xcompress.errors import InputError
from xcompress.files import sha256_of
from xcompress.metrics import cosines
from xcompress.modeling.student import Student
from xcompress.recipe import load_recipe


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


def test_a_soup_needs_weights(recipe_file: Path) -> None:
    with pytest.raises(InputError, match="soup: released:tiny gives only vectors; name a student's folder"):
        load_recipe(recipe_file, ["assistant={source: a, soup: [{source: 'released:tiny'}]}"])


def test_a_soup_is_the_mean_of_trainings_with_different_seeds(recipe_file: Path, tmp_path: Path) -> None:
    finished, facts = run(recipe_file, tmp_path, CONTRAST, "stages.contrast.soup=2", "stages.contrast.seed=5")
    trainings = [Student.load(finished / f"1-contrast-of-seed-{seed}")[0].state_dict() for seed in (5, 6)]
    soup = load_finite(finished).state_dict()
    assert any(not torch.equal(first, second) for first, second in zip(*(x.values() for x in trainings), strict=True))
    for name, weight in soup.items():
        torch.testing.assert_close(weight, (trainings[0][name] + trainings[1][name]) / 2)
    assert "dev" in facts["1-contrast"]
    assert ["untrained" in facts[f"1-contrast-of-seed-{seed}"] for seed in (5, 6)] == [True, False]


def test_a_larger_soup_reuses_the_trainings_of_a_smaller_one(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(recipe_file, tmp_path, CONTRAST)
    run(recipe_file, tmp_path, CONTRAST, "stages.contrast.soup=2")
    capsys.readouterr()
    run(recipe_file, tmp_path, CONTRAST, "stages.contrast.soup=3")
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "done in" in line] == [
        "1-contrast-of-seed-4",
        "1-contrast",
    ]


def test_trainings_of_a_soup_share_the_pairs_and_the_start(recipe_file: Path, tmp_path: Path) -> None:
    """Where the pairs are drawn with another seed, no training is reused."""
    changes = [CONTRAST, "stages.contrast.soup=2", "student.embedding_init=random"]
    finished, _ = run(recipe_file, tmp_path, *changes, "stages.contrast.seed=5")
    first, second = (
        Student.load(finished / f"1-contrast-of-seed-{seed}")[0].embeddings.word.weight.detach().numpy()
        for seed in (5, 6)
    )
    assert cosines(first, second).min() > 0.9
    finished, _ = run(recipe_file, tmp_path, *changes, "stages.contrast.seed=6")
    fresh, _ = run(recipe_file, tmp_path / "fresh", *changes, "stages.contrast.seed=6")
    assert sha256_of(finished / "student/model.safetensors") == sha256_of(fresh / "student/model.safetensors")


def test_a_dry_run_counts_all_trainings_of_a_soup(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.distillation.plan._measure_flops", lambda _: 1e6)  # slow: no estimate rounds to 0
    stages = [
        plan(load_recipe(recipe_file, [CONTRAST, f"stages.contrast.soup={soup}"]), tmp_path / "run").stages[0]
        for soup in (1, 10)
    ]
    assert [stage.trainings for stage in stages] == [1, 10]
    assert stages[0].steps == stages[1].steps
    assert stages[0].seconds
    assert stages[1].seconds == pytest.approx(10 * stages[0].seconds, rel=0.2)


def test_seeds_of_a_soup_must_fit(recipe_file: Path) -> None:
    with pytest.raises(InputError, match=r"stages\.contrast\.seed: too large, as soup counts on from it"):
        load_recipe(recipe_file, [CONTRAST, f"stages.contrast.seed={2**32 - 2}", "stages.contrast.soup=3"])
