"""The labelled step and the augmented step."""

from pathlib import Path

import pytest

from tests.helpers.foreign import save_encoder
from tests.helpers.recipe import small_recipe, stages_of, write_labelled
from xcompress.distillation.data.corpus import corpus_step
from xcompress.distillation.data.labelled import Labelled, augmented_step, labelled_step
from xcompress.distillation.pipeline import distill
from xcompress.distillation.plan import plan
from xcompress.distillation.run_folder import open_run
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.recipe.lineage import labelled_texts

STAGE = stages_of(a="objectives: {graded: 1}, steps: 2")


def step(folder: Path, *overrides: str, free: int = 0) -> Labelled:
    """Read graded pairs: two with a held-out sentence, and free ones."""
    recipe = small_recipe(folder, f"labelled.graded=[{folder}/graded.tsv]", *overrides)
    with open_run(folder / "run") as run:
        corpus = corpus_step(recipe, run, None)
        held_out = [pair.source for pair in corpus.read_held_out()][:2]
        rows = [
            f"{text}\tNobody is there.\t2\n" for text in [*held_out, *(f"This is new {row}." for row in range(free))]
        ]
        (folder / "graded.tsv").write_text("".join(rows))
        labelled = labelled_step(recipe, run, corpus)
        return augmented_step(recipe, run, labelled, None, corpus.step)


def test_pairs_that_are_held_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(step(tmp_path, STAGE, free=3).kinds["graded"].pairs) == 3
    assert "labelled: graded: 3 pairs, 2 left out as held out" in capsys.readouterr().err


def test_pairs_may_take_more_than_other_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.files._MOST_JSON", 20_000)
    assert len(step(tmp_path, STAGE, free=500).kinds["graded"].pairs) == 500
    assert len(labelled_texts(tmp_path / "run")) == 501
    with pytest.raises(InputError, match=r"graded\.json: holds .* too many for JSON"):
        read_json(tmp_path / "run" / "labelled" / "graded.json")


def test_a_stage_without_any_pair_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^labelled\.graded: no pair is left, as all 2 share a sentence with"):
        step(tmp_path, STAGE)


def test_a_kind_that_no_stage_reads_may_be_empty_but_augmenting_may_not_start_from_it(tmp_path: Path) -> None:
    assert not step(tmp_path).kinds["graded"].pairs
    with pytest.raises(InputError, match=r"^labelled\.augment: no English graded pair is left to start from"):
        step(tmp_path, f"labelled.augment={{cross_encoder: {tmp_path}/assistant}}")


def test_a_wrong_cross_encoder_is_refused_before_any_step_and_by_a_dry_run(tmp_path: Path) -> None:
    graded, _ = write_labelled(tmp_path)
    wrong = f"labelled.augment={{cross_encoder: {tmp_path}/assistant}}"
    recipe = small_recipe(tmp_path, graded, wrong)
    for run in (plan, distill):
        with pytest.raises(InputError, match=r"^labelled\.augment\.cross_encoder: .* has no output layer for grades"):
            run(recipe, tmp_path / "run")
    assert not list(tmp_path.glob("run/*/step.json"))
    augmented = small_recipe(tmp_path, graded, wrong.replace("assistant", "teacher"))
    with pytest.raises(InputError, match="has no output layer for grades"):  # of sentence-transformers, three modules
        distill(augmented, tmp_path / "run")


@pytest.mark.usefixtures("offline")
def test_a_wrong_cross_encoder_of_a_hub_is_refused_before_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its weights are fetched, of which the hub's cache has none here."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    recipe = small_recipe(tmp_path, write_labelled(tmp_path)[0], "labelled.augment={cross_encoder: org/name}")
    with pytest.raises(InputError, match=r"^org/name: .*could not be reached .*; check the network, or give a local f"):
        distill(recipe, tmp_path / "run")
    repository = tmp_path / "hub" / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("1" * 40)
    save_encoder(repository / "snapshots" / ("1" * 40), "bert")
    (repository / "snapshots" / ("1" * 40) / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"^labelled\.augment\.cross_encoder: .* has no output layer for grades"):
        distill(recipe, tmp_path / "run")
    assert not list(tmp_path.glob("run/*/step.json"))
