import re

import pytest

from tests.helpers import ROOT
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.shipped import bases_of, shipped
from xcompress.recipe.text import list_shipped
from xcompress.recipe.validation import problems

PAPER = {name: path for name, path in shipped().items() if name.startswith(("paper/xlmr_", "paper/minilm_"))}
BASES = {"paper/xlmr_b128_ru3", "paper/minilm_b128_ru3"}
TABLE = (ROOT / "recipes" / "paper" / "README.md").read_text(encoding="utf-8")
EVERYTHING = ("ted2020", "wikimatrix", "europarl", "newscommentary")


def paper(name: str) -> Recipe:
    return load_recipe(f"paper/{name}")


def row_of(name: str) -> list[str]:
    rows = [re.split(r"(?<!\\)\|", line) for line in TABLE.splitlines() if line.startswith("| ")]
    found = [[cell.strip() for cell in row[1:-1]] for row in rows if row[3].strip() == name]
    assert len(found) == 1, f"{name} stands {len(found)} times in recipes/paper/README.md"
    return found[0]


@pytest.mark.parametrize("name", PAPER)
def test_every_recipe_is_in_the_readme_with_the_scores_of_its_comment(name: str) -> None:
    comment = next(one.row for one in list_shipped() if one.name == name)
    _, _, _, monolingual, cross_lingual, *_ = row_of(name.removeprefix("paper/"))
    assert re.findall(r"monolingual ([\d.]+)", comment) == ([monolingual] if monolingual else [])
    assert re.findall(r"cross-lingual ([\d.]+)", comment) == [cross_lingual]


def test_the_readme_names_no_recipe_that_is_not_there() -> None:
    named = re.findall(r"\| ((?:xlmr|minilm)_\w+) \|", TABLE)
    assert sorted(f"paper/{name}" for name in named) == sorted(PAPER)


@pytest.mark.parametrize("name", sorted(PAPER.keys() - BASES))
def test_all_but_the_bases_extend_one_beside_them_and_are_short(name: str) -> None:
    bases = bases_of(PAPER[name])
    assert bases[-1].stem in ("xlmr_b128_ru3", "minilm_b128_ru3")
    assert {base.parent for base in bases} == {PAPER[name].parent}
    assert len(PAPER[name].read_text(encoding="utf-8").splitlines()) <= 22


@pytest.mark.parametrize("name", PAPER)
def test_nothing_but_the_users_text_is_missing(name: str) -> None:
    text = re.compile(r"corpus\.tsv\.\d+\.source: data/.*: no such file .*")
    assert [one for one in problems(load_recipe(name)) if not text.fullmatch(one)] == []


@pytest.mark.parametrize("name", sorted(BASES))
def test_the_bases_have_the_printed_settings(name: str) -> None:
    recipe = load_recipe(name)
    assert (recipe.teacher.normalize, recipe.assistant.pooling, recipe.widths) == (False, "mean", "equal")
    assert (recipe.student.max_tokens, recipe.vocabulary.method, recipe.student.embedding_init) == (
        128,
        "keep",
        "random",
    )
    stages = list(recipe.stages.values())
    assert [stage.train for stage in stages] == ["assistant", "embeddings", "student", "student"]
    objectives = [{"teacher": 1}, {"embedding": 1}, {"assistant": 1}, {"contrast": 1, "teacher": 1}]
    assert [stage.objectives for stage in stages] == objectives
    assert [stage.epochs for stage in stages] == [20, 20, 20, 60]
    assert [stage.text for stage in stages] == [EVERYTHING] * 3 + [("ted2020",)]
    assert {(stage.batch_size, stage.warmup, stage.optimizer) for stage in stages} == {(64, 0.1, "adamw")}


@pytest.mark.parametrize("name", PAPER)
def test_every_stage_has_the_optimizer_of_the_authors_configurations(name: str) -> None:
    stages = load_recipe(name).stages.values()
    settings = {(stage.learning_rate, stage.schedule, stage.weight_decay, stage.dropout) for stage in stages}
    assert settings == {(1.6e-4, "linear", 0.01, 0.1)}
    assert {stage.embedding_learning_rate for stage in stages} == {None}


@pytest.mark.parametrize("name", sorted(BASES))
def test_every_key_of_the_bases_has_a_comment(name: str) -> None:
    lines = PAPER[name].read_text(encoding="utf-8").splitlines()
    bare = [line for line in lines if line.strip() and "#" not in line and not line.startswith("    - {name: ")]
    assert bare == ["vocabulary:", "student:"]


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("xlmr_bnone_ru3", ["assistant", "imitation", "contrast"]),
        ("xlmr_xkd", ["xkd"]),
        ("minilm_xkd", ["xkd"]),
        ("xlmr_no_mcl", ["assistant", "embedding", "imitation", "contrast"]),
        ("xlmr_single_random", ["contrast"]),
        ("xlmr_single_predistilled", ["embedding", "imitation", "contrast"]),
        ("xlmr_stages_1_2", ["assistant", "embedding"]),
        ("xlmr_stages_1_2_3", ["assistant", "embedding", "imitation"]),
    ],
)
def test_stages_of_the_variants(name: str, stages: list[str]) -> None:
    assert list(paper(name).stages) == stages


@pytest.mark.parametrize(
    ("name", "objectives"),
    [
        ("xlmr_no_mcl", {"teacher": 1}),
        ("xlmr_no_mcl_no_recurrence", {"teacher": 1}),
        ("xlmr_no_recurrence", {"teacher": 1, "contrast": 1}),
        ("xlmr_bool", {"teacher": 1, "contrast_bool": 1}),
        ("xlmr_ce", {"teacher": 1, "contrast_ce": 1}),
        ("xlmr_single_random", {"teacher": 1}),
        ("xlmr_single_predistilled", {"teacher": 1}),
        ("xlmr_xkd", {"teacher": 1}),
    ],
)
def test_last_objectives_of_the_variants(name: str, objectives: dict[str, float]) -> None:
    assert list(paper(name).stages.values())[-1].objectives == objectives


def test_without_recurrence_the_unit_is_applied_once() -> None:
    for name in ("xlmr_no_recurrence", "xlmr_no_mcl_no_recurrence"):
        assert (paper(name).student.unit_layers, paper(name).student.recurrences) == (3, 1)
