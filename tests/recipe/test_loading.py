import pickle
import re
from pathlib import Path

import pytest
import yaml

from xcompress.errors import InputError
from xcompress.recipe import load_recipe
from xcompress.recipe.loading import RecipeError, merge
from xcompress.recipe.shipped import bases_of, find_recipe, shipped

BASE = """
name: base
languages: [de, fr]
teacher: {source: teacher, prefix: "ask: "}
assistant: {source: assistant}
corpus:
  tsv:
    - {name: talks, language: de, source: talks.tsv}
    - {name: news, language: fr, source: news.tsv}
student: {unit_layers: 3, bottleneck: 64}
stages:
  assistant: {train: assistant, objectives: {teacher: 1}, epochs: 2}
  imitation: {train: student, objectives: {assistant: 1}, steps: 20}
  contrast: {train: student, objectives: {teacher: 1, contrast: 2}, steps: 30}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def write(folder: Path, text: str, name: str = "child.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_mappings_are_merged_and_lists_and_values_replaced(folder: Path) -> None:
    child = write(folder, "extends: base.yaml\nname: child\nlanguages: [nl]\nstudent: {unit_layers: 6}\n")
    base, recipe = load_recipe(folder / "base.yaml"), load_recipe(child)
    assert (recipe.name, recipe.languages) == ("child", ("nl",))
    assert (recipe.student.unit_layers, recipe.student.bottleneck) == (6, 64)
    assert (recipe.teacher, recipe.corpus, recipe.stages) == (base.teacher, base.corpus, base.stages)


DESCRIBED = """
name: described
extends: base.yaml
assistant:
  sha256: {config.json: abc}
  tokenizer: {source: base/tokenizer.json, sha256: abc}
  prefix: "query: "
  pooling: cls
  trust_remote_code: true
  shape: {vocabulary: 9, hidden: 4, layers: 2, heads: 2, intermediate: 8}
"""


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr("xcompress.recipe.loading.warn", said.append)
    return said


@pytest.mark.parametrize("by", ["extends", "override"])
def test_a_new_source_brings_nothing_that_describes_the_old_model(by: str, folder: Path, warnings: list[str]) -> None:
    described = write(folder, DESCRIBED, "described.yaml")
    if by == "extends":
        recipe = load_recipe(write(folder, "extends: described.yaml\nassistant: {source: mine}\n"))
    else:
        recipe = load_recipe(described, ["assistant.source=mine"])
    old, assistant = load_recipe(described).assistant, recipe.assistant
    assert old and assistant and old.shape and old.prefix
    assert assistant == type(assistant)(source="mine", pooling="cls")
    (warning,) = warnings
    assert "assistant.source is another model, so the prefix 'query: ' of the old one is left out" in warning


@pytest.mark.parametrize("by", ["extends", "override", "override in another order"])
def test_what_is_given_with_a_new_source_describes_it(by: str, folder: Path, warnings: list[str]) -> None:
    described = write(folder, DESCRIBED, "described.yaml")
    if by == "extends":
        text = 'assistant: {source: mine, prefix: "ask: ", tokenizer: {source: mine/tokenizer.json}}'
        assistant = load_recipe(write(folder, f"extends: described.yaml\n{text}\n")).assistant
    else:
        overrides = [
            "assistant.source=mine",
            "assistant.prefix='ask: '",
            "assistant.tokenizer.source=mine/tokenizer.json",
        ]
        assistant = load_recipe(described, overrides if by == "override" else overrides[::-1]).assistant
    assert assistant and assistant.tokenizer
    assert (assistant.source, assistant.prefix, assistant.sha256, assistant.shape) == ("mine", "ask: ", None, None)
    assert (assistant.tokenizer.source, assistant.tokenizer.sha256) == ("mine/tokenizer.json", None)
    assert warnings == []


def test_the_same_source_keeps_what_describes_it(folder: Path, warnings: list[str]) -> None:
    described = write(folder, DESCRIBED, "described.yaml")
    child = write(folder, "extends: described.yaml\nassistant: {source: assistant, pooling: mean}\n")
    old, new = load_recipe(described).assistant, load_recipe(child, ["assistant.source=assistant"]).assistant
    assert old and new == old.model_copy(update={"pooling": "mean"})
    assert warnings == []


def test_null_sets_null(folder: Path) -> None:
    assert load_recipe(write(folder, "extends: base.yaml\nstudent: {bottleneck: null}\n")).student.bottleneck is None


def test_null_takes_out_a_stage_and_an_objective_and_new_stages_come_last(folder: Path) -> None:
    text = """
extends: base.yaml
stages:
  polish: {train: student, objectives: {teacher: 1}, steps: 5}
  imitation: null
  contrast: {objectives: {contrast: null, contrast_ce: 3}}
"""
    stages = load_recipe(write(folder, text)).stages
    assert list(stages) == ["assistant", "contrast", "polish"]
    assert stages["contrast"].objectives == {"teacher": 1, "contrast_ce": 3}
    assert stages["contrast"].steps == 30


def test_null_in_an_override_takes_out_a_stage_and_an_objective(folder: Path) -> None:
    overrides = ["stages.imitation=null", "stages.contrast.objectives.contrast=null"]
    stages = load_recipe(folder / "base.yaml", overrides).stages
    assert list(stages) == ["assistant", "contrast"]
    assert stages["contrast"].objectives == {"teacher": 1}


def test_chains_are_followed_nearest_last(folder: Path) -> None:
    middle = write(folder, "extends: base.yaml\nname: middle\nseed: 5\n", "middle.yaml")
    child = write(folder, "extends: middle.yaml\nname: child\n")
    recipe = load_recipe(child)
    assert (recipe.name, recipe.seed, recipe.languages) == ("child", 5, ("de", "fr"))
    assert bases_of(child) == [middle, folder / "base.yaml"]


def test_a_shipped_recipe_can_be_extended_by_name_from_anywhere(folder: Path) -> None:
    child = write(folder, "extends: paper/xlmr_b128_ru3\nname: mine\nstudent: {bottleneck: 96}\n")
    assert load_recipe(child).student.bottleneck == 96
    assert load_recipe(child).assistant == load_recipe("paper/xlmr_b128_ru3").assistant


def test_a_path_of_the_repository_means_the_shipped_recipe_unless_there_is_such_a_file(working_folder: Path) -> None:
    for path in ("recipes/minilm_ru3.yaml", "recipes/paper/xlmr_b128_ru3.yaml"):
        assert find_recipe(path) == shipped()[path.removeprefix("recipes/").removesuffix(".yaml")]
    for path in ("recipes/absent.yaml", "minilm_ru3.yaml"):
        with pytest.raises(InputError, match="no such recipe"):
            find_recipe(path)
    (working_folder / "recipes").mkdir()
    own = write(working_folder, BASE, "recipes/minilm_ru3.yaml")
    assert find_recipe("recipes/minilm_ru3.yaml").resolve() == own


def test_a_file_beside_goes_before_a_shipped_recipe(folder: Path) -> None:
    write(folder, BASE, "minilm_ru3")
    assert load_recipe(write(folder, "extends: minilm_ru3\n")).languages == ("de", "fr")


def test_merge_leaves_both_sides_as_they_were() -> None:
    base, changes = {"stages": {"one": {"steps": 1}}}, {"stages": {"one": {"steps": 2}}}
    assert merge(base, changes, "test") == {"stages": {"one": {"steps": 2}}}
    assert base == {"stages": {"one": {"steps": 1}}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: absent.yaml\n", r"child.yaml: extends absent.yaml, but .*absent.yaml is not a file; .*recipe list"),
        ("extends: paper/xlmr_b128_ru\n", "did you mean paper/xlmr_b128_ru"),
        ("extends: .\n", "child.yaml: extends ., but .* is not a file; .*recipe list"),
        ("extends: [a, b]\n", "child.yaml: extends: name one recipe file"),
        ("extends: child.yaml\n", "child.yaml: extends .*child.yaml, which is circular"),
        ("extends: other.yaml\n", "other.yaml: extends .*child.yaml, which is circular"),
        ("extends: base.yaml\nstages: {contrst: null}\n", "child.yaml: stages.contrst: .*has assistant, imitation"),
        (
            "extends: base.yaml\nstages: {contrast: {objectives: {contrst: null}}}\n",
            "stages.contrast.objectives.contrst: null removes it, but there is none; .* has teacher, contrast",
        ),
        (
            "extends: base.yaml\nstages: {contrast: {epochs: 1}}\n",
            r"has steps \(30\) and epochs \(1\); set one of",
        ),
    ],
)
def test_a_recipe_that_cannot_be_extended_is_one_line(text: str, message: str, folder: Path) -> None:
    write(folder, "extends: child.yaml\n", "other.yaml")
    with pytest.raises(InputError, match=message) as caught:
        load_recipe(write(folder, text))
    assert "\n" not in str(caught.value)


def test_errors_name_what_set_the_key(folder: Path) -> None:
    write(folder, BASE.replace("bottleneck: 64", "bottleneck: wide"), "base.yaml")
    child = write(folder, "extends: base.yaml\nname: child\n")
    with pytest.raises(InputError, match=r"child.yaml: student.bottleneck: .* 'wide'; .* \(set in .*base.yaml\)"):
        load_recipe(child)
    with pytest.raises(InputError, match=r"child.yaml: .* 'broad'; .* \(set in override 'student.bottleneck=broad'\)$"):
        load_recipe(child, ["student.bottleneck=broad"])
    with pytest.raises(InputError, match=r"unknown key student.botleneck; .* \(set in changes to the recipe\)$"):
        load_recipe(child, changes={"student": {"bottleneck": 8, "botleneck": 8}})


def test_an_error_crosses_to_another_process_with_all_faults(folder: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(folder, "extends: base.yaml\nsed: 1\nstudnt: {}\n"))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.faults) == (str(caught.value), caught.value.faults)
    assert len(copy.faults) == 2 and str(copy).startswith(f"{copy.faults[0]} (and 1 more;")


def test_a_misspelt_extends_is_recognised(folder: Path) -> None:
    with pytest.raises(InputError, match=r"unknown key extend; did you mean extends\?"):
        load_recipe(write(folder, BASE + "extend: base.yaml\n"))


def test_extends_is_no_override(folder: Path) -> None:
    with pytest.raises(InputError, match="write `extends` in a recipe file"):
        load_recipe(folder / "base.yaml", ["extends=minilm_ru3"])
    with pytest.raises(InputError, match="changes to the recipe: write `extends` in a recipe file"):
        load_recipe(folder / "base.yaml", changes={"extends": "minilm_ru3"})


def test_changes_are_merged_as_those_of_a_recipe_that_extends_it(folder: Path, warnings: list[str]) -> None:
    changes = {"student": {"bottleneck": 8}, "stages": {"imitation": None}, "teacher": {"source": "x"}, "dev": {}}
    child = write(folder, "extends: base.yaml\n" + yaml.safe_dump(changes))
    assert load_recipe(folder / "base.yaml", changes=changes) == load_recipe(child)
    assert len(warnings) == 2 and warnings[0].startswith("changes to the recipe: teacher.source is another model")
    with pytest.raises(InputError, match=r"changes to the recipe: stages\.x: null removes it, but there is none"):
        load_recipe(folder / "base.yaml", changes={"stages": {"x": None}})


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("corpus.tsv.0.source=x.tsv", "corpus.tsv is a list; set it as a whole: corpus.tsv=..."),
        ("student.bottleneck.width=3", "student.bottleneck is a value; set it as a whole: student.bottleneck=..."),
    ],
)
def test_an_override_inside_a_list_or_a_value_says_what_to_set(override: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        load_recipe("release", [override])
