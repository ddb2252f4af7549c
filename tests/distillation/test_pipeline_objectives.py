"""Runs without a teacher, without an assistant, and with every objective."""

import shutil
from pathlib import Path
from statistics import fmean

import pytest

from tests.helpers.recipe import (
    FROM_SCRATCH,
    losses,
    small_recipe,
    stages_of,
    write_corpus,
    write_labelled,
    write_monolingual,
)
from xcompress.corpus.graded import DATA, builtin
from xcompress.corpus.pairs import Pair
from xcompress.corpus.store import PairFile
from xcompress.distillation.collapse import CollapseError, DivergenceError
from xcompress.distillation.pipeline import distill
from xcompress.distillation.plan import plan
from xcompress.errors import InputError
from xcompress.files import read_json
from xcompress.modeling.student import Student
from xcompress.recipe import load_recipe

FLOAT32 = "precision=float32"
"""For trainings of many steps: most processors compute bfloat16 more slowly. Short ones use it with every objective."""
WHOLE_ENCODER = (
    "teacher=null",
    "widths=equal",
    "student={unit_layers: 4, recurrences: 1, bottleneck: null, max_tokens: 40, normalize: false}",
)


@pytest.mark.slow
def test_calibrated_similarity_runs_without_a_teacher(tmp_path: Path) -> None:
    three = stages_of(
        entail="objectives: {entailment: 1}, epochs: 1, learning_rate: 1.0e-3",
        grade="objectives: {graded: 1}, steps: 30, learning_rate: 1.0e-3",
        align="objectives: {moving_teacher: 1}, steps: 30, optimizer: lars, learning_rate: 0.2, moving_decay: 0.97",
    )
    more = f"labelled.augment={{cross_encoder: {tmp_path / 'assistant'}, epochs: 1, neighbours: 2}}"
    recipe = small_recipe(tmp_path, *WHOLE_ENCODER, *write_labelled(tmp_path / "labelled"), more, three)
    run = distill(recipe, tmp_path / "run")
    manifest = read_json(run / "manifest.json")
    text = ["tokens_entailment", "1-entail", "tokens_graded", "2-grade", "tokens_translations", "3-align"]
    assert list(manifest["steps"]) == ["reference", "corpus", "labelled", "start", "augmented", *text]
    graded, added = (manifest["steps"][step]["facts"] for step in ("labelled", "augmented"))
    assert graded["graded"] > 100 and added["added_by_cross_encoder"] > 100
    assert len(read_json(run / "augmented/graded.json")) == graded["graded"] + added["added_by_cross_encoder"]
    assert set(manifest["models"]) == {"assistant"} and "spearman" not in manifest["dev"]
    for step in ("2-grade", "3-align"):
        assert fmean(losses(run, step)[-3:]) < fmean(losses(run, step)[:3]), step
    student, _ = Student.load(run / "student")
    assert (student.config.depth, student.config.normalize, student.config.head_size) == (4, False, None)


@pytest.mark.exhaustive
def test_a_student_from_scratch_learns_from_translations_alone(tmp_path: Path) -> None:
    objectives = "{unified: 1, alignment: 2, similarity: 2}"
    stage = stages_of(dual=f"objectives: {objectives}, steps: 300, learning_rate: 1.0e-2, dropout: 0.1")
    recipe = small_recipe(tmp_path, *FROM_SCRATCH, stage)
    write_corpus(tmp_path, ("first", "second"))  # half of it is not enough
    run = distill(recipe, tmp_path / "run")
    manifest = read_json(run / "manifest.json")
    assert list(manifest["steps"]) == ["corpus", "start", "tokens_translations", "1-dual"] and not manifest["models"]
    assert not (run / "assistant").exists() and not (run / "reference").exists()
    assert fmean(losses(run, "1-dual")[-3:]) < 0.8 * fmean(losses(run, "1-dual")[:3])
    before, after = (manifest["steps"][step]["facts"]["dev"]["retrieval"] for step in ("start", "1-dual"))
    assert fmean(after.values()) > fmean(before.values())
    student, tokenizer = Student.load(run / "student")
    assert student.config.vocab_size == tokenizer.get_vocab_size() <= 400


def test_a_collapse_stops_the_stage_and_leaves_no_result(tmp_path: Path) -> None:
    align = "objectives: {moving_teacher: 1}, steps: 60, optimizer: lars, learning_rate: 1, moving_decay: 0.5"
    recipe = small_recipe(tmp_path, *WHOLE_ENCODER, stages_of(align=align))
    for _ in ("the first time", "from a checkpoint on, of after the collapse"):
        with pytest.raises(CollapseError, match="collapsed: all sentence vectors"):
            distill(recipe, tmp_path / "run")
        assert list((tmp_path / "run").glob("work/*/checkpoint-*/complete"))
    assert not (tmp_path / "run" / "1-align").exists() and not (tmp_path / "run" / "manifest.json").exists()


def test_weights_that_are_not_finite_are_not_published(tmp_path: Path) -> None:
    embedding = stages_of(a="objectives: {assistant: 1}, steps: 2, learning_rate: 1.0e+39")
    with pytest.raises(DivergenceError, match=r"stages\.a: diverged: \d+ of \d+ weights .* lower learning_rate"):
        distill(small_recipe(tmp_path, embedding), tmp_path / "run")
    assert not (tmp_path / "run" / "1-a").exists() and not (tmp_path / "run" / "manifest.json").exists()


def test_all_objectives_can_be_combined(tmp_path: Path) -> None:
    weights = "teacher: 1, contrast: 1, moving_teacher: 1, masked_word: 0.1, reconstruction: 0.1, unified: 0.1"
    objectives = f"{weights}, alignment: 0.1, similarity: 0.1, entailment: 0.1, graded: 1, cosent: 0.1"
    labelled = write_labelled(tmp_path / "labelled")
    from_scratch = [override for override in FROM_SCRATCH if not override.startswith("teacher")]
    stage = stages_of(all=f"objectives: {{{objectives}}}, steps: 6")
    run = distill(small_recipe(tmp_path, *from_scratch, *labelled, stage), tmp_path / "run")
    student, _ = Student.load(run / "student")
    assert student.config.head_size == 32 and losses(run, "1-all")[-1] > 0


def _held_out(run: Path) -> list[Pair]:
    files = (run / "corpus").glob("holdout.*.tsv")
    return [pair for file in files for pair in PairFile(file, file.name.split(".")[1])]


def test_a_stage_may_learn_from_graded_pairs_in_several_languages(tmp_path: Path) -> None:
    for language in ("en", "de", "fr"):
        shutil.copy(DATA / f"graded.{language}.tsv", tmp_path / f"graded.{language}.tsv")
    graded = f"labelled.graded=[{{source: '{tmp_path}/graded.{{language}}.tsv', languages: [en, de, fr]}}]"
    stage = stages_of(a="objectives: {teacher: 32, cosent: 1}, steps: 90, learning_rate: 1.0e-3")
    run = distill(small_recipe(tmp_path, FLOAT32, graded, stage), tmp_path / "run")
    facts = read_json(run / "manifest.json")["steps"]["labelled"]["facts"]
    held_out = {pair.source for pair in _held_out(run)} | {pair.target for pair in _held_out(run)}
    pairs = read_json(run / "labelled" / "graded.json")
    assert list(facts["aligned"].values()) == [len(pairs)]
    assert 3000 < len(pairs) < 2 * 3 * len(builtin().language_pairs["en-en"])
    assert held_out.isdisjoint({text for first, second, _ in pairs for text in (first, second)})
    assert fmean(losses(run, "1-a")[-9:]) < fmean(losses(run, "1-a")[:9])


@pytest.mark.parametrize(
    ("objectives", "length"),
    [
        ("teacher: 32, contrast: 1, monolingual: 32, monolingual_contrast: 1", "steps: 6"),
        ("monolingual: 32", "epochs: 2"),
    ],
    ids=["beside translations", "alone"],
)
def test_a_stage_may_learn_from_sentences_without_translations(objectives: str, length: str, tmp_path: Path) -> None:
    monolingual = write_monolingual(tmp_path / "text")
    stage = stages_of(a=f"objectives: {{{objectives}}}, {length}, learning_rate: 1.0e-3")
    run = distill(small_recipe(tmp_path, *monolingual, stage), tmp_path / "run")
    assert losses(run, "1-a")[-1] > 0
    facts = read_json(run / "manifest.json")["steps"]["monolingual"]["facts"]
    assert facts == {"en": 60, "de": 64, "fr": 60}


@pytest.mark.parametrize(
    ("objectives", "length", "batch_size"),
    [
        pytest.param("teacher: 32, cosent: 0.1", "steps: 40, correlation_pairs: 2", 8, id="beside others"),
        pytest.param("", "steps: 80", 64, id="alone", marks=pytest.mark.exhaustive),
    ],
)
def test_a_stage_may_learn_the_cosines_of_similar_sentences(
    objectives: str, length: str, batch_size: int, tmp_path: Path
) -> None:
    """Two teachers together are twice as wide as the student."""
    other = f"{{source: {tmp_path}/assistant, pooling: mean}}"
    teacher = f"correlation={{teacher: {{source: {tmp_path}/teacher, ensemble: [{other}]}}}}"
    stage = stages_of(a=f"objectives: {{correlation: 1, {objectives}}}, {length}, learning_rate: 1.0e-3")
    overrides = (FLOAT32, teacher, stage, f"stages.a.batch_size={batch_size}", *write_labelled(tmp_path / "labelled"))
    run = distill(small_recipe(tmp_path, *overrides), tmp_path / "run")
    manifest = read_json(run / "manifest.json")
    assert fmean(losses(run, "1-a")[-9:]) < fmean(losses(run, "1-a")[:9])
    assert set(manifest["models"]) >= {"correlation.teacher", "correlation.teacher.ensemble.0"}
    assert manifest["steps"]["groups"]["facts"]["sentences"] > 100


def test_another_draw_of_groups_trains_again_and_keeps_what_groups_are_made_of(tmp_path: Path) -> None:
    teacher = f"correlation={{teacher: {{source: {tmp_path}/teacher}}}}"
    run = distill(
        small_recipe(tmp_path, teacher, stages_of(a="objectives: {correlation: 1}, steps: 2")), tmp_path / "run"
    )
    keys = {name: step["key"] for name, step in read_json(run / "manifest.json")["steps"].items()}
    recipe = load_recipe(run / "recipe.yaml", ["stages.a.seed=77"])
    again = read_json(distill(recipe, run) / "manifest.json")["steps"]
    assert again["groups"]["key"] == keys["groups"] and again["1-a"]["key"] != keys["1-a"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("teacher=null", "widths=equal"), "stages.assistant.objectives: needs a teacher, but there is none"),
        (("assistant=null",), "stages.assistant: needs an assistant, but there is none"),
        ((*FROM_SCRATCH, "vocabulary.method=trim", stages_of(a="objectives: {alignment: 1}, steps: 1")), "use train"),
        (
            (*FROM_SCRATCH, "student.heads=null", stages_of(a="objectives: {alignment: 1}, steps: 1")),
            "student.heads: needed without an assistant",
        ),
        (("student.hidden=32",), "student.hidden: the assistant sets this size"),
        ((stages_of(a="objectives: {graded: 1}, steps: 1"),), "give labelled.graded"),
        (
            (*FROM_SCRATCH, "corpus.max_tokens=9", stages_of(a="objectives: {alignment: 1}, steps: 1")),
            "corpus.max_words",
        ),
    ],
)
def test_sections_that_do_not_fit_together_are_refused(
    tmp_path: Path, overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        small_recipe(tmp_path, *overrides)
    assert message in str(caught.value)


def test_a_vocabulary_without_a_mask_cannot_have_words_masked(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, *WHOLE_ENCODER, stages_of(a="objectives: {unified: 1}, steps: 1"))
    for refuse in (plan, distill):
        with pytest.raises(InputError, match="has none of <mask>"):
            refuse(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "corpus").exists()
