import json
import shutil
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from tests.helpers.process import start
from tests.helpers.recipe import FROM_SCRATCH, stages_of, write_recipe
from xcompress.distillation.pipeline import _check_sources, distill
from xcompress.distillation.plan import plan
from xcompress.distillation.run_folder import open_run
from xcompress.errors import InputError
from xcompress.files import read_json, sha256_of
from xcompress.modeling.student import Student, encode
from xcompress.recipe import load_recipe


@pytest.fixture(scope="module")
def recipe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture(scope="module")
def run(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return distill(load_recipe(recipe_file), tmp_path_factory.mktemp("runs") / "small")


def weights(run: Path) -> str:
    return sha256_of(run / "student" / "model.safetensors")


def test_a_run_leaves_reference_assistant_and_student(run: Path) -> None:
    for name, layers, recurrences, prefix in (
        ("reference", 4, 1, "query: "),
        ("assistant", 4, 1, ""),
        ("student", 2, 2, ""),
    ):
        model, tokenizer = Student.load(run / name)
        assert (model.config.unit_layers, model.config.recurrences) == (layers, recurrences)
        assert model.config.prefix == prefix
        assert np.isfinite(encode(model, tokenizer, ["The boat is late."])).all()
    manifest = read_json(run / "manifest.json")
    assert manifest["finished"] and manifest["languages"] == ["en", "de", "fr"]
    assert manifest["student_hash"] == weights(run)


def test_every_stage_trains_and_is_scored_on_held_out_text(run: Path) -> None:
    steps = read_json(run / "manifest.json")["steps"]
    before, stages = ["reference", "corpus", "start"], ["1-assistant", "2-embedding", "3-imitation", "4-contrast"]
    assert list(steps) == [*before, "tokens_translations", *stages]
    for name in stages:
        facts = steps[name]["facts"]
        losses = [point["loss"] for point in facts["loss"]]
        assert fmean(losses[-3:]) < fmean(losses[:3]), name
        assert set(facts["dev"]["spearman"]) == set(facts["dev"]["retrieval"]) == {"de", "fr"}


def test_no_held_out_sentence_is_trained_on(run: Path) -> None:
    for language in ("de", "fr"):
        rows = [
            {
                cell
                for line in (run / "corpus" / f"{part}.{language}.tsv").read_text().splitlines()
                for cell in line.split("\t")
            }
            for part in ("train", "holdout")
        ]
        assert rows[0] and rows[1] and not rows[0] & rows[1]


def test_nothing_pickled_is_left_behind(run: Path) -> None:
    suffixes = {file.suffix for file in run.rglob("*") if file.is_file() and file.name != ".lock"}
    assert suffixes <= {".safetensors", ".json", ".npy", ".tsv", ".yaml"}


def test_a_second_call_reuses_every_step(run: Path, recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, manifest = weights(run), (run / "manifest.json").read_bytes()
    distill(load_recipe(recipe_file), run)
    assert (run / "manifest.json").read_bytes() == manifest
    assert capsys.readouterr().err.count("finished earlier, reused") == 7
    assert weights(run) == before


def test_a_finished_run_computes_no_vectors_again(
    run: Path, recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher is not loaded and no text is read, even where the cached vectors are gone."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("vectors"))
    monkeypatch.setattr("xcompress.distillation.pipeline.prepare_training_data", lambda *_: pytest.fail("prepared"))
    distill(load_recipe(recipe_file), copy)
    assert not (copy / "vectors").exists()


def test_half_a_corpus_and_a_damaged_copy_of_the_student_are_mended(
    run: Path, recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mended = Path(shutil.copytree(run, tmp_path / "run"))
    corpus, student = mended / "corpus/train.de.tsv", mended / "student/config.json"
    corpus.write_bytes(corpus.read_bytes()[: corpus.stat().st_size // 2])
    student.write_text("{}")
    assert (mended / "4-contrast/config.json").read_text() != "{}"
    distill(load_recipe(recipe_file), mended)
    said = capsys.readouterr().err
    assert "corpus: train.de.tsv is shorter than written" in said and "4-contrast: finished earlier, reused" in said
    assert corpus.read_bytes() == (run / "corpus/train.de.tsv").read_bytes()
    student.write_text("{}")
    distill(load_recipe(recipe_file), mended)
    assert "student: config.json is shorter than written" in (said := capsys.readouterr().err)
    assert "copied again from the step 4-contrast" in said
    assert student.read_text() == (run / "student/config.json").read_text()


def test_only_the_weights_of_the_student_are_linked_to_its_step(run: Path) -> None:
    """People edit the other files in place."""
    names = {file.name for file in (run / "student").iterdir() if file.stat().st_nlink > 1}
    assert names == {"model.safetensors"}


def test_a_changed_stage_runs_again_with_what_follows(
    run: Path, recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    distill(load_recipe(recipe_file, ["stages.imitation.steps=6"]), copy)
    printed = capsys.readouterr().err
    assert "2-embedding: finished earlier, reused" in printed
    assert "3-imitation: runs again, because of a change in stage.steps (6, was 12)" in printed
    assert "4-contrast: runs again, because of a change in student" in printed
    assert weights(copy) != weights(run)


def test_a_run_in_use_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "busy"
    with open_run(folder):
        process = start(["distill", str(recipe_file), "--run", str(folder)], tmp_path / "said")
        process.join()
    assert process.exitcode == 2
    said = (tmp_path / "said").read_text()
    assert "another process uses this run" in said
    assert "Traceback" not in said


def test_a_run_leaves_a_recipe_that_can_be_run_again(run: Path) -> None:
    again = load_recipe(run / "recipe.yaml")
    assert again.hash == read_json(run / "manifest.json")["recipe_hash"]


def test_the_manifest_names_sources_and_versions(run: Path) -> None:
    manifest = read_json(run / "manifest.json")
    assert set(manifest["models"]) == {"teacher", "assistant"} and manifest["models"]["teacher"]["hash"]
    assert manifest["libraries"]["torch"] and manifest["code"]
    assert manifest["steps"]["corpus"]["facts"]["fingerprint"]
    assert manifest["seconds"] == pytest.approx(sum(step["seconds"] for step in manifest["steps"].values()), abs=0.1)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.contrast.depth_weights=[1,1,1]", "stages.contrast.depth_weights: 3 values.* applied 2 times"),
        (
            "stages.assistant={train: assistant, steps: 2, objectives: {teacher: 1}, depth_weights: [1]}",
            "stages.assistant.depth_weights: weighs the recurrences of the student, and `train: assistant` runs none",
        ),
        ("vocabulary={method: train}", "vocabulary.method train: the tokenizer is WordLevel with WhitespaceSplit"),
        ("vocabulary={method: trim}", "vocabulary: the tokenizer is WordLevel, only .* can be trimmed"),
        ("student.unit_layers=3", "student.unit_layers: 3 does not divide the assistant's 4 layers"),
        (
            "student.bottleneck=32",
            "student.bottleneck: 32 is not smaller than the assistant's width 32; choose a smaller",
        ),
    ],
)
def test_an_impossible_student_is_refused_before_training(
    override: str, message: str, run: Path, recipe_file: Path, tmp_path: Path
) -> None:
    for folder in (tmp_path / "new", Path(shutil.copytree(run, tmp_path / "finished"))):
        before = sorted(folder.glob("*-*"))
        with pytest.raises(InputError, match=message):
            distill(load_recipe(recipe_file, [override]), folder)
        assert sorted(folder.glob("*-*")) == before and not (tmp_path / "new" / "corpus").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "labelled.graded=[./absent.csv]",
            r"^labelled\.graded\.0: \./absent\.csv: no such file or folder; put it there",
        ),
        (
            "vocabulary={method: trim, words: './{language}.txt'}",
            r"^vocabulary\.words: \./en\.txt: .* \(and 2 more; `xcompress recipe validate FILE` lists those",
        ),
        ("dev.sts=./absent", r"^dev\.sts: \./absent: no such file or folder"),
        ("teacher.source=./absent", r"^teacher\.source: \./absent: no such file or folder"),
    ],
)
def test_a_missing_source_is_refused_before_the_first_step(
    override: str, message: str, recipe_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        distill(load_recipe(recipe_file, [override]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_labelled_file_that_cannot_be_read_is_refused_before_the_teacher_runs(
    recipe_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "graded.csv").write_text("A dog runs.;A cat runs.;2\n")
    with pytest.raises(InputError, match=r"graded\.csv: 1 of 1 line is bad: 1 fewer than three columns"):
        distill(load_recipe(recipe_file, [f"labelled.graded=[{tmp_path}/graded.csv]"]), tmp_path / "run")
    assert (tmp_path / "run/corpus").exists() and not any((tmp_path / "run").glob("vectors/*"))


def test_a_finished_run_may_have_lost_what_it_no_longer_reads(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = load_recipe(run / "recipe.yaml", ["dev.sts=./absent"])
    with pytest.raises(InputError, match=r"dev\.sts: \./absent"):
        _check_sources(recipe, run)
    finished = tmp_path / "finished"
    finished.mkdir()
    (finished / "manifest.json").write_text(json.dumps({"recipe_hash": recipe.hash}))
    _check_sources(recipe, finished)
    assert not capsys.readouterr().err


def test_a_teacher_folder_without_a_model_is_refused(recipe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    recipe = load_recipe(recipe_file, [f"teacher.source={tmp_path / 'empty'}"])
    with pytest.raises(InputError, match=r"teacher.source: .*holds neither modules.json nor config.json"):
        distill(recipe, tmp_path / "run")


def test_a_teacher_whose_pooling_is_not_known_is_refused_before_text_is_read(recipe_file: Path, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file, [f"teacher.source={recipe_file.parent / 'assistant'}"])
    with pytest.raises(InputError, match=r"teacher.pooling: not given, .* set it to mean or cls"):
        distill(recipe, tmp_path / "run")
    assert not (tmp_path / "run/corpus").exists()


@pytest.mark.parametrize("content", ["{", "{}", "[]", '"x"', None])
def test_a_damaged_manifest_or_a_missing_recipe_of_a_finished_run_is_written_again(
    content: str | None, run: Path, recipe_file: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "copy"))
    if content is None:
        (folder / "recipe.yaml").unlink()
    else:
        (folder / "manifest.json").write_text(content)
    distill(load_recipe(recipe_file), folder)
    assert read_json(folder / "manifest.json")["student_hash"] == weights(run)
    assert (folder / "recipe.yaml").read_text() == (run / "recipe.yaml").read_text()


def test_what_a_recipe_no_longer_makes_is_removed(run: Path, recipe_file: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run, tmp_path / "copy"))
    for name in ("work/1-renamed-0", "labelled", "monolingual"):
        (folder / name).mkdir(parents=True)
    distill(load_recipe(recipe_file, [*FROM_SCRATCH, stages_of(a="objectives: {alignment: 1}, steps: 2")]), folder)
    left = ("reference", "assistant", "work", "labelled", "monolingual")
    assert not any((folder / name).exists() for name in left)


def test_float32_is_named_where_the_recipe_asks_for_it(recipe_file: Path, tmp_path: Path) -> None:
    changes = [stages_of(a="objectives: {contrast: 1}, steps: 1"), "precision=float32"]
    assert plan(load_recipe(recipe_file, changes), tmp_path / "run").device.endswith("float32")
    finished = distill(load_recipe(recipe_file, changes), tmp_path / "run")
    assert read_json(finished / "manifest.json")["machine"]["arithmetic"] == "float32"


def test_an_assistant_that_reads_less_than_the_student_is_to_read_is_said(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = stages_of(a="objectives: {contrast: 1}, steps: 1")
    distill(load_recipe(recipe_file, [stage, "student.max_tokens=200"]), tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "student.max_tokens: is 200, but the assistant reads 64 at most, and so will the student" in said
