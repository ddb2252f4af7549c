"""The recipes of calibrated similarity and of the lightweight dual transformer, here and at full scale."""

import re

import pytest

from tests.helpers import ROOT
from xcompress.distillation.optim.ema import decay_at
from xcompress.recipe import load_recipe
from xcompress.recipe.parameters import count_parameters
from xcompress.recipe.shipped import shipped
from xcompress.recipe.text import list_shipped
from xcompress.recipe.validation import problems

NAMES = ("calibrated_similarity", "lightweight_dual")
PAPER = {name: path for name, path in shipped().items() if re.match(rf"paper/({'|'.join(NAMES)})", name)}
FULL_SCALE = ("paper/calibrated_similarity_xlmr", "paper/lightweight_dual_fr")
COMPLETE = ("calibrated_similarity_from_labels", "lightweight_dual", *FULL_SCALE)
README = ROOT / "recipes" / "paper" / "README.md"
HEADINGS = {"vocabulary:", "student:", "stages:", "  dual:", "  tsv:"}
FIGURE = re.compile(r"\b\d\d\.\d\b")


def cells_of(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")[1:-1]]


def rows() -> dict[str, list[str]]:
    """Read the README's tables: scores by recipe, or by override of one."""
    found = [cells_of(line) for line in README.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {cells[2].strip("`"): [cell for cell in cells[3:] if cell] for cells in found}


@pytest.mark.parametrize("name", PAPER)
def test_scores_of_a_recipes_comment_are_those_of_the_readme(name: str) -> None:
    comment = next(one.row for one in list_shipped() if one.name == name)
    printed = rows()[name.removeprefix("paper/")]
    assert printed and FIGURE.findall(comment) == printed


def test_the_readme_names_all_of_them_and_no_others() -> None:
    named = {f"paper/{name}" for name in rows() if name.startswith(NAMES)}
    assert named == PAPER.keys()


@pytest.mark.parametrize("override", [name for name in rows() if "=" in name])
def test_overrides_of_the_readme_are_understood(override: str) -> None:
    calibrated, dual = FULL_SCALE
    is_dual = "objectives" in override or override.startswith("student") or "align" not in override
    recipe = dual if is_dual else calibrated
    changed, plain = load_recipe(recipe, [override]), load_recipe(recipe)
    assert changed.hash != plain.hash


@pytest.mark.parametrize("name", [*PAPER, "calibrated_similarity_from_labels"])
def test_nothing_but_the_users_text_is_missing(name: str) -> None:
    text = re.compile(r"(corpus\.tsv\.\d+\.source|labelled\.\w+\.\d+): data/.*: no such file .*")
    found = problems(load_recipe(name))
    assert found and [one for one in found if not text.fullmatch(one)] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_runnable_ones_need_nothing_but_a_registry(name: str) -> None:
    assert problems(load_recipe(name)) == []


@pytest.mark.parametrize("name", COMPLETE)
def test_every_key_has_a_comment_but_headings_items_of_lists_and_references(name: str) -> None:
    lines = shipped()[name].read_text(encoding="utf-8").splitlines()
    bare = {line for line in lines if line.strip() and "#" not in line}
    assert {line for line in bare if not line.lstrip().startswith(("- ", "source: wheel:"))} <= HEADINGS


def test_calibrated_similarity_at_full_scale_has_the_printed_settings() -> None:
    recipe = load_recipe("paper/calibrated_similarity_xlmr")
    corpus, align = recipe.corpus, recipe.stages["align"]
    assert (len(recipe.languages), corpus.unicode_form, corpus.max_tokens, corpus.max_pairs) == (
        14,
        "nfkc",
        128,
        2_000_000,
    )
    assert {tsv.language for tsv in corpus.tsv} == set(recipe.languages)
    assert [stage.objectives for stage in recipe.stages.values()] == [
        {"entailment": 1},
        {"graded": 1},
        {"moving_teacher": 1},
    ]
    assert (align.steps, align.batch_size, align.ema_decay) == (105_000, 256, 0.99999)
    assert (align.optimizer, align.learning_rate, align.momentum, align.weight_decay) == ("lars", 0.02, 0.9, 1e-6)
    assert (round(align.warmup * (align.steps or 0)), align.schedule, align.dropout) == (54_000, "cosine", 0)
    phase_1 = [recipe.stages[name] for name in ("entail", "grade")]
    assert {(stage.batch_size, stage.learning_rate, stage.warmup) for stage in phase_1} == {(16, 2e-5, 0.1)}
    assert {(stage.schedule, stage.dropout) for stage in phase_1} == {("linear", 0.1)}
    assert recipe.labelled.augment is not None and recipe.labelled.augment.neighbours == 10
    assert (recipe.teacher, recipe.normalizes, recipe.vocabulary.method) == (None, False, "keep")
    assert (recipe.student.unit_layers, recipe.student.recurrences, recipe.student.bottleneck) == (12, 1, None)


def test_the_small_teacher_moves_about_as_far_in_its_stage_as_the_printed_one() -> None:
    printed, small = (load_recipe(name).stages["align"] for name in (FULL_SCALE[0], NAMES[0]))
    left = [
        sum(1 - decay_at(step, stage.steps or 0, stage.ema_decay) for step in range(stage.steps or 0))
        for stage in (printed, small)
    ]
    assert left[1] == pytest.approx(left[0], rel=0.1)


def test_calibrated_similarity_without_labels_is_its_second_phase() -> None:
    small, whole = load_recipe("calibrated_similarity"), load_recipe("calibrated_similarity_from_labels")
    assert list(whole.stages) == ["entail", "grade", "align"]
    assert small.stages == {"align": whole.stages["align"]}
    assert not small.labelled.entailment and not small.labelled.graded
    given = ["labelled.entailment=[a.tsv, b.tsv]", "labelled.graded=[c.csv]"]
    assert load_recipe("calibrated_similarity_from_labels", given).labelled.entailment == ("a.tsv", "b.tsv")


@pytest.mark.parametrize("name", ["lightweight_dual", "paper/lightweight_dual_fr"])
def test_the_dual_transformer_has_the_printed_shape_and_objectives(name: str) -> None:
    recipe = load_recipe(name)
    student, dual = recipe.student, recipe.stages["dual"]
    assert (student.unit_layers, student.hidden, student.heads, student.intermediate) == (2, 512, 8, 1024)
    assert (recipe.vocabulary.method, recipe.vocabulary.size, student.bottleneck) == ("train", 50_000, None)
    assert (recipe.teacher, recipe.assistant, recipe.normalizes, len(recipe.languages)) == (None, None, False, 1)
    assert dual.objectives == {"unified": 1, "alignment": 2, "similarity": 2}
    assert (dual.batch_size, dual.learning_rate, dual.dropout, dual.weight_decay) == (128, 1e-3, 0.1, 0)
    counts = count_parameters(recipe).student
    assert counts is not None and counts.total is not None and round(counts.total / 1e6) == 30


@pytest.mark.parametrize(("language", "epochs", "warmup"), [("fr", 12, 3), ("de", 12, 3), ("es", 12, 3), ("it", 30, 6)])
def test_the_dual_transformer_of_each_language_is_as_long_as_printed(language: str, epochs: int, warmup: int) -> None:
    recipe = load_recipe(f"paper/lightweight_dual_{language}")
    assert recipe.languages == (language,) == tuple(tsv.language for tsv in recipe.corpus.tsv)
    assert recipe.stages["dual"].epochs == epochs
    assert recipe.stages["dual"].warmup * epochs == pytest.approx(warmup)
