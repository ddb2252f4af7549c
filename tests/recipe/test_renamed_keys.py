"""Keys that were renamed: both names are read, as one key, and hashes stay what they were."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.helpers import ROOT
from xcompress.errors import InputError
from xcompress.recipe import load_recipe
from xcompress.recipe.parameters import count_parameters
from xcompress.recipe.section import OLD_NAMES
from xcompress.recipe.shipped import shipped
from xcompress.recipe.text import recipe_text

HASHES = {
    "calibrated_similarity": "61d19099dd03aa16",
    "calibrated_similarity_from_labels": "71b82404e6333735",
    "four_stages": "4fa7686a5efb184b",
    "lightweight_dual": "8d1015a18141a7be",
    "minilm_eight": "81ea6326015146d7",
    "minilm_ru3": "f89a5d09f24bde59",
    "paper/calibrated_similarity_xlmr": "a09a2f8e9d3cd096",
    "paper/lightweight_dual_de": "d1e598d049966f5c",
    "paper/lightweight_dual_es": "8418908629fe74ec",
    "paper/lightweight_dual_fr": "fb97eea20fd8f505",
    "paper/lightweight_dual_it": "993af351a69bacb0",
    "paper/minilm_b128_ru12": "be340d22a6201ef3",
    "paper/minilm_b128_ru3": "0276593046126aa9",
    "paper/minilm_b128_ru6": "5a55e89246c86695",
    "paper/minilm_b256_ru3": "6d2261cd5d2e6af6",
    "paper/minilm_bnone_ru3": "d0a3594de9763d77",
    "paper/minilm_xkd": "e424eba66f040d3d",
    "paper/xlmr_b128_ru12": "0402c01adc7da1e1",
    "paper/xlmr_b128_ru3": "00e9f06341c08fac",
    "paper/xlmr_b128_ru6": "392546f59a2a9a4d",
    "paper/xlmr_b256_ru3": "a6c62215ee0f8ba2",
    "paper/xlmr_bnone_ru3": "f7d56545e3d8fa5b",
    "paper/xlmr_bool": "9b380d12f13e9e15",
    "paper/xlmr_ce": "2264e53dac9bd864",
    "paper/xlmr_no_mcl": "48d706a20733249f",
    "paper/xlmr_no_mcl_no_recurrence": "80a8939449fb4f4b",
    "paper/xlmr_no_recurrence": "68d075f23d2a26f9",
    "paper/xlmr_single_predistilled": "739e07b07d56cea5",
    "paper/xlmr_single_random": "61d0bcea8f18ac19",
    "paper/xlmr_stages_1_2": "e5cee3584be87b82",
    "paper/xlmr_stages_1_2_3": "76534b625cf89bac",
    "paper/xlmr_xkd": "d5a42f3a7dbeb431",
    "release": "b872e4c3dc605d0d",
    "release_14": "cfd7fe0938d6df4b",
    "release_correlation": "f80bae7f46445ac7",
    "release_correlation_int4": "6ad7f2c7cf99d559",
    "release_eight": "88367013c067290b",
    "release_four_bits": "c4150ed0bbe33a45",
    "release_graded": "6f577646ca6b2b5c",
    "release_groups": "3edb122fabe056bd",
    "release_joint": "ea77f3cda80f0673",
    "release_mean_int4": "7e2eedf20e1b5c97",
    "release_tiny": "1fe398217396d494",
    "release_tiny_correlation": "ae2ca2ab3cd265c2",
    "release_tiny_correlation_int4": "5938007b214d40d6",
    "release_tiny_graded": "c0940d6a81264f12",
    "release_tiny_groups": "4fc07868c693c4a5",
    "release_tiny_joint": "5278c3e81f3cbbbe",
    "release_tiny_mean_int4": "96e30c64a34894e0",
}
"""Hashes of the shipped recipes, which manifests of runs hold: renaming a key must not change them."""

BASE = """
name: base
languages: [de]
teacher: {source: teacher, TEACHER: [{source: second}]}
assistant: {source: "python:package:function", LAYERS: {source: layers}, EMBEDDINGS: {source: embeddings}}
corpus: {FORM: nfkc, tsv: [{language: de, source: talks.tsv}]}
student: {INIT: random}
stages:
  imitate: {train: student, objectives: {assistant: 1}, steps: 20, RATE: 0.001}
  follow: {train: student, objectives: {moving_teacher: 1}, steps: 20, DECAY: 0.9}
"""
PLACES = {
    "TEACHER": "ensemble",
    "LAYERS": "layers_from",
    "EMBEDDINGS": "embeddings_from",
    "FORM": "unicode_form",
    "INIT": "embedding_init",
    "RATE": "embedding_learning_rate",
    "DECAY": "ema_decay",
}
NEW = {place: name for place, name in PLACES.items()}
OLD = {place: OLD_NAMES[name] for place, name in PLACES.items()}


def write(folder: Path, names: Mapping[str, str], name: str = "base.yaml") -> Path:
    (folder / name).write_text(re.sub("|".join(PLACES), lambda place: names[place[0]], BASE))
    return folder / name


def child(folder: Path, text: str) -> Path:
    (folder / "child.yaml").write_text(f"extends: base.yaml\nname: child\n{text}\n")
    return folder / "child.yaml"


@pytest.mark.parametrize("name", shipped())
def test_the_hash_of_every_shipped_recipe_is_what_it_was(name: str) -> None:
    assert load_recipe(name).hash == HASHES[name]


def test_every_renamed_key_is_read_under_both_names_with_the_same_hash(tmp_path: Path) -> None:
    assert set(PLACES.values()) == set(OLD_NAMES)
    new, old = load_recipe(write(tmp_path, NEW, "new.yaml")), load_recipe(write(tmp_path, OLD, "old.yaml"))
    assert new == old and new.hash == old.hash
    assert new.teacher is not None and new.teacher.ensemble[0].source == "second"
    assert (new.student.embedding_init, new.corpus.unicode_form) == ("random", "nfkc")
    assert (new.stages["imitate"].embedding_learning_rate, new.stages["follow"].ema_decay) == (0.001, 0.9)


@pytest.mark.parametrize(("base", "change"), [(OLD, NEW), (NEW, OLD)], ids=["old base", "new base"])
def test_old_and_new_names_merge_as_one_key(base: dict[str, str], change: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, base)
    text = (
        f"teacher: {{{change['TEACHER']}: [{{source: third}}]}}\n"
        f"assistant: {{{change['LAYERS']}: {{pooling: mean}}, {change['EMBEDDINGS']}: null}}\n"
        f"corpus: {{{change['FORM']}: nfc}}\n"
        f"stages: {{imitate: {{{change['RATE']}: 0.002}}, follow: {{{change['DECAY']}: 0.8}}}}"
    )
    recipe = load_recipe(child(tmp_path, text))
    assert recipe.teacher is not None and [member.source for member in recipe.teacher.ensemble] == ["third"]
    assert recipe.assistant is not None and recipe.assistant.layers_from is not None
    assert (recipe.assistant.layers_from.source, recipe.assistant.layers_from.pooling) == ("layers", "mean")
    assert recipe.assistant.embeddings_from is None
    assert recipe.corpus.unicode_form == "nfc"
    assert (recipe.stages["imitate"].embedding_learning_rate, recipe.stages["follow"].ema_decay) == (0.002, 0.8)


@pytest.mark.parametrize(("base", "change"), [(OLD, NEW), (NEW, OLD)], ids=["old base", "new base"])
def test_overrides_of_either_name_change_the_one_key(
    base: dict[str, str], change: dict[str, str], tmp_path: Path
) -> None:
    overrides = [
        f"teacher.{change['TEACHER']}=[]",
        f"assistant.{change['LAYERS']}.pooling=cls",
        f"stages.imitate.{change['RATE']}=null",
    ]
    recipe = load_recipe(write(tmp_path, base), overrides)
    assert recipe.teacher is not None and recipe.teacher.ensemble == ()
    assert recipe.assistant is not None and recipe.assistant.layers_from is not None
    assert (recipe.assistant.layers_from.source, recipe.assistant.layers_from.pooling) == ("layers", "cls")
    assert recipe.stages["imitate"].embedding_learning_rate is None


def test_old_names_inside_the_value_of_an_override_are_read(tmp_path: Path) -> None:
    override = "assistant={source: 'python:a:b', unit_from: {source: other}}"
    assistant = load_recipe(write(tmp_path, NEW), [override]).assistant
    assert assistant is not None and assistant.layer_source.source == "other" and assistant.embeddings_from is None


@pytest.mark.parametrize("name", OLD_NAMES)
def test_both_names_at_once_are_an_error_that_says_so(name: str, tmp_path: Path) -> None:
    place = next(place for place, current in PLACES.items() if current == name)
    path = write(tmp_path, NEW | {place: f"{OLD_NAMES[name]}: null, {name}"})
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    old = re.escape(OLD_NAMES[name])
    assert re.fullmatch(
        rf"{re.escape(str(path))}: (\S+\.){old} is the old name of \1{name}, and both are given; remove \1{old}",
        str(caught.value),
    )


def test_both_names_at_once_in_an_override_are_an_error(tmp_path: Path) -> None:
    override = "student={form: 1, initial_table: svd, embedding_init: svd}"
    with pytest.raises(InputError, match=r"^override .*: student\.initial_table is the old name of student"):
        load_recipe(write(tmp_path, NEW), [override])


@pytest.mark.parametrize(
    ("names", "override", "message"),
    [
        (OLD, "teacher.beside=[{source: a, weight: 0}]", "teacher.beside.0.weight: Input should be greater than 0"),
        (OLD, "teacher.ensemble=[{source: a, weight: 0}]", "teacher.ensemble.0.weight: Input should be greater"),
        (NEW, "teacher.beside=[{source: a, weight: 0}]", "teacher.beside.0.weight: Input should be greater than 0"),
        (OLD, "stages.follow.ema_decay=2", "stages.follow.ema_decay: Input should be less than or equal to 1"),
        (OLD, "assistant.unit_from.pooling=max", "assistant.unit_from.pooling: not one of mean, cls, got 'max'"),
        (OLD, "assistant.unit_from.souce=x", "unknown key assistant.unit_from.souce; did you mean source?"),
        (NEW, "student.embeding_init=svd", "unknown key student.embeding_init; did you mean embedding_init?"),
        (NEW, "student.form=nfc", "unknown key student.form; "),
    ],
)
def test_errors_name_the_key_that_the_user_wrote(
    names: dict[str, str], override: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, names)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}: {message}')}"):
        load_recipe(path, [override])


def test_errors_of_a_base_name_its_file_and_the_key_written_there(tmp_path: Path) -> None:
    base = write(tmp_path, OLD | {"DECAY": "moving_decay: 3, dropout"})
    with pytest.raises(InputError, match=r"child.yaml: stages\.follow\.moving_decay: .*, got 3 \(set in .*base\.yaml"):
        load_recipe(child(tmp_path, ""))
    assert base.is_file()


def test_names_that_users_choose_are_not_renamed(tmp_path: Path) -> None:
    text = write(tmp_path, NEW).read_text().replace("follow:", "form:")
    (tmp_path / "base.yaml").write_text(text)
    assert list(load_recipe(child(tmp_path, "stages: {form: {steps: 5}}")).stages) == ["imitate", "form"]


def test_show_prints_the_current_names(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, OLD))
    shown = recipe_text(recipe, count_parameters(recipe))
    keys = set(re.findall(r"\w+(?=:)", shown)) | set(re.findall(r"\w+(?=':)", str(recipe.model_dump(mode="json"))))
    assert set(OLD_NAMES) <= keys
    assert keys.isdisjoint(OLD_NAMES.values())
    (tmp_path / "shown.yaml").write_text(shown)
    assert load_recipe(tmp_path / "shown.yaml") == recipe


def test_cache_keys_are_made_of_the_old_names() -> None:
    """Steps of earlier runs are found again by hashes of sections: these are dumped by alias."""
    files = (ROOT / "xcompress" / "distillation").rglob("*.py")
    dumps = [
        (file.name, dump) for file in files for dump in re.findall(r"[\w.]+\.model_dump\([^()]*\)", file.read_text())
    ]
    named = [(file, dump) for file, dump in dumps if "by_alias=True" not in dump]
    assert len(dumps) >= 6
    for file, dump in named:  # what a person reads, and a section without renamed keys
        assert 'mode="json"' in dump or "shape.model_dump()" in dump, f"{file}: {dump} lacks by_alias=True"


def test_released_recipes_with_old_names_load_as_they_did(tmp_path: Path) -> None:
    recipe = load_recipe("release_14")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json", by_alias=True)))
    assert "rows_from" in (tmp_path / "recipe.yaml").read_text()
    assert load_recipe(tmp_path / "recipe.yaml") == recipe
