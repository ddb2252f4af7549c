import json
from itertools import takewhile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.helpers.foreign import save_pipeline
from xcompress.cli.recipe import app
from xcompress.distillation.plan import plan
from xcompress.errors import InputError
from xcompress.recipe import load_recipe
from xcompress.recipe.shipped import copy_recipe, find_recipe, shipped
from xcompress.recipe.text import list_shipped

XLMR = "paper/xlmr_b128_ru3"


pytestmark = pytest.mark.usefixtures("working_folder")


def run(*arguments: str, columns: int = 100) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": str(columns)})


@pytest.mark.parametrize("command", ["list", "show", "copy", "validate"])
def test_every_command_shows_an_example(command: str) -> None:
    assert f"xcompress recipe {command}" in run(command, "--help").stdout


def test_list_has_every_shipped_recipe_with_its_row() -> None:
    lines = run("list", columns=200).stdout.splitlines()
    names = [line.split()[0] for line in lines if line and line[0] != " " and not line.endswith(":")]
    assert sorted(names) == sorted(shipped())
    assert names[0] == "calibrated_similarity"
    assert names.index("minilm_ru3") < names.index("paper/xlmr_ce") < names.index("release")
    row = next(line for line in lines if line.startswith("paper/xlmr_b256_ru3 "))
    assert row.endswith("B = 256. In the paper, tables 7, 8: monolingual 82.8, cross-lingual 80.6.")


def test_list_leaves_no_word_out_of_a_description_and_no_line_is_too_long() -> None:
    lines = run("list", columns=70).stdout.splitlines()
    assert max(map(len, lines)) <= 70
    start = next(number for number, line in enumerate(lines) if line.startswith("minilm_ru3 "))
    shown = [lines[start].removeprefix("minilm_ru3"), *takewhile(lambda line: line.startswith(" "), lines[start + 1 :])]
    description = next(recipe.description for recipe in list_shipped() if recipe.name == "minilm_ru3")
    assert " ".join(" ".join(shown).split()) == description


def test_list_as_json() -> None:
    listed = json.loads(run("list", "--json").stdout)
    minilm = next(recipe for recipe in listed if recipe["name"] == "minilm_ru3")
    assert "recurrent unit" in minilm["description"]
    assert minilm["row"] == ""


def test_show_prints_the_recipe_and_its_counts() -> None:
    shown = run("show", "paper/xlmr_b128_ru6", "student.bottleneck=96").stdout
    student = yaml.safe_load(shown)["student"]
    assert {name: value for name, value in student.items() if value is not None} == {
        "unit_layers": 6,
        "bottleneck": 96,
        "embedding_init": "random",
        "max_tokens": 128,
        "prelude": [],
        "coda": [],
    }
    assert yaml.safe_load(shown)["stages"]["contrast"]["soup"] == 1, "defaults that earlier versions lack, too"
    assert "student     2     24.47M   42.53M" in shown


def test_show_as_json() -> None:
    shown = json.loads(run("show", XLMR, "--json").stdout)
    assert shown["recipe"]["student"]["bottleneck"] == 128
    assert shown["parameters"]["student"]["word"] == 250_002 * 128
    assert shown["parameters"]["student"]["recurrences"] == 4


def test_copy_keeps_comments_and_loads(working_folder: Path) -> None:
    assert run("copy", "minilm_ru3", "mine.yaml").stdout.split() == ["mine.yaml"]
    assert (working_folder / "mine.yaml").read_bytes() == shipped()["minilm_ru3"].read_bytes()
    assert load_recipe("mine.yaml") == load_recipe("minilm_ru3")


def test_copy_of_one_that_extends_brings_the_base_to_edit(working_folder: Path) -> None:
    written = copy_recipe("paper/xlmr_no_mcl_no_recurrence", working_folder / "own")
    assert [path.name for path in written] == ["own", "xlmr_no_mcl.yaml", "xlmr_b128_ru3.yaml"]
    base = working_folder / "xlmr_b128_ru3.yaml"
    base.write_text(base.read_text(encoding="utf-8").replace("bottleneck: 128", "bottleneck: 77"), encoding="utf-8")
    assert load_recipe(working_folder / "own").student.bottleneck == 77


def test_copy_into_a_folder_and_two_of_one_base(working_folder: Path) -> None:
    (working_folder / "recipes").mkdir()
    copy_recipe("paper/xlmr_ce", working_folder / "recipes")
    copy_recipe("paper/xlmr_bool", working_folder / "recipes")
    names = {path.name for path in (working_folder / "recipes").iterdir()}
    assert names == {"xlmr_ce.yaml", "xlmr_bool.yaml", "xlmr_b128_ru3.yaml"}


def test_copy_into_a_new_folder(working_folder: Path) -> None:
    assert run("copy", "minilm_ru3", "new/folder/").stdout.split() == ["new/folder/minilm_ru3.yaml"]
    assert (working_folder / "new/folder/minilm_ru3.yaml").is_file()


@pytest.mark.parametrize("target", ["x" * 256, "file/mine.yaml", "~nosuchuser/mine.yaml"])
def test_copy_to_a_path_that_cannot_be_is_one_line(target: str, working_folder: Path) -> None:
    Path("file").touch()
    with pytest.raises(InputError, match=r"^[^\n]*: (cannot be written|~ is not replaced)[^\n]*$"):
        copy_recipe("minilm_ru3", Path(target))


def test_copy_overwrites_only_by_force(working_folder: Path) -> None:
    (working_folder / "minilm_ru3.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"minilm_ru3.yaml: already exists; .*--force"):
        copy_recipe("minilm_ru3")
    assert (working_folder / "minilm_ru3.yaml").read_text() == "mine"
    copy_recipe("minilm_ru3", force=True)
    assert load_recipe(working_folder / "minilm_ru3.yaml").name == "minilm_ru3"


def test_copy_does_not_overwrite_an_edited_base(working_folder: Path) -> None:
    (working_folder / "xlmr_b128_ru3.yaml").write_text("edited")
    with pytest.raises(InputError, match=r"xlmr_b128_ru3.yaml: already exists"):
        copy_recipe("paper/xlmr_ce")
    assert [path.name for path in working_folder.iterdir()] == ["xlmr_b128_ru3.yaml"]


def test_copy_refuses_the_name_of_its_own_base() -> None:
    with pytest.raises(InputError, match="extends a recipe of this name"):
        copy_recipe("paper/xlmr_ce", Path("xlmr_b128_ru3.yaml"), force=True)


def test_validate_says_ok(working_folder: Path) -> None:
    done = run("validate", "minilm_ru3")
    assert (done.exit_code, done.stdout.strip()) == (0, "minilm_ru3: ok")


def test_validate_applies_changes_to_all_recipes(working_folder: Path) -> None:
    (working_folder / "a=b.yaml").write_text("extends: minilm_ru3\n")
    done = run("validate", "student.bottleneck=64", "minilm_ru3", "./a=b.yaml", "stages.contrast.steps=5")
    assert (done.exit_code, done.stdout.split("\n")) == (0, ["minilm_ru3: ok", "./a=b.yaml: ok", ""])
    done = run("validate", "minilm_ru3", "student.bottleneck=0", "teacher.source=https://x")
    assert done.exit_code == 2
    assert "student.bottleneck: " in done.stderr
    with pytest.raises(InputError, match=r"student\.bottleneck=64: changes no recipe; name one"):
        CliRunner().invoke(app, ["validate", "student.bottleneck=64"], catch_exceptions=False)


def test_validate_warns_of_languages_that_are_new_to_the_teacher(working_folder: Path) -> None:
    Path("sv.tsv").write_text("The soup is cold.\tSoppan är kall.\n", encoding="utf-8")
    Path("mine.yaml").write_text(
        "extends: minilm_ru3\nlanguages: [de, sv]\n"
        "corpus: {catalogues: [], tsv: [{source: sv.tsv, language: de}, {source: sv.tsv, language: sv}]}\n"
    )
    result = run("validate", "mine.yaml")
    assert result.exit_code == 0, result.stderr
    assert "released:small was not made for sv; take a teacher that knows them" in result.stderr


def test_validate_names_what_is_bad_and_exits_with_2(working_folder: Path) -> None:
    (working_folder / "broken.yaml").write_text("a: [1")
    done = run("validate", "minilm_ru3", "broken.yaml", XLMR, "absent")
    assert done.exit_code == 2
    assert done.stdout.strip() == "minilm_ru3: ok"
    broken, *texts, absent = done.stderr.strip().splitlines()
    assert "broken.yaml: line 1: not valid YAML" in broken
    assert f"{XLMR}: corpus.tsv.0.source: data/ted2020.en-ar.tsv.gz: no such file" in texts[0]
    assert f"{XLMR}: corpus.tsv.24.source: data/newscommentary.en-nl.tsv.gz: no such file" in texts[24]
    assert len(texts) == 25
    assert "absent: no such recipe" in absent


def test_validate_lists_all_bad_keys_and_values_the_unknown_ones_first(working_folder: Path) -> None:
    text = "extends: minilm_ru3\nlanguages: de\nteacher: {source: 3}\nstudnt: {}\nstages: {contrast: {stps: 1}}\n"
    (working_folder / "mine.yaml").write_text(text)
    done = run("validate", "mine.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: mine.yaml: unknown key stages.contrast.stps; did you mean steps?",
        "error: mine.yaml: unknown key studnt; did you mean student?",
        "error: mine.yaml: languages: not a list, got 'de'; write a list, such as [de]",
        "error: mine.yaml: teacher.source: not a text, got 3; quote it: '3'",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "teacher: {source: ./absent}",
            "teacher.source: ./absent: no such file or folder; put it there, or give another path (relative"
            " paths start in /",
        ),
        ("teacher: {source: 'wheel:x/y'}", "teacher.source: wheel:x/y: not of the form wheel:name==version"),
        ("teacher: {source: 'python:no-name'}", "teacher.source: python:no-name: not of the form python:package"),
        ("teacher: {source: v.npy, sentences: s.txt}", "teacher.source: v.npy: no such file"),
        (
            "assistant: {embeddings_from: {source: /absent/rows}}",
            "assistant.embeddings_from.source: /absent/rows: no such",
        ),
        ("assistant: {soup: [{source: /absent/student}]}", "assistant.soup.0.source: /absent/student: no such"),
        ("assistant: {tokenizer: {source: t.json}}", "assistant.tokenizer.source: t.json: no such file"),
        ("corpus: {catalogues: [locale]}", "corpus.catalogues.0: locale: no such file"),
        ("vocabulary: {words: 'words.{language}.txt'}", "vocabulary.words: words.en.txt: no such file"),
        ("dev: {sts: sets}", "dev.sts: sets: no such file"),
        (
            "labelled: {graded: [wheel:x==1/a.csv], augment: {cross_encoder: ./nope}}",
            "labelled.augment.cross_encoder: ./nope: no such file",
        ),
        ("student: {bottleneck: 9999}\nassistant: {shape: null}", "ok"),
        (
            "assistant: {shape: {vocabulary: 9, hidden: 8, layers: 4, heads: 2, intermediate: 9}}",
            "student.unit_layers: 3 does not divide the assistant's 4 layers",
        ),
    ],
)
def test_validate_checks_references_and_shapes_without_fetching(
    change: str, message: str, working_folder: Path
) -> None:
    (working_folder / "mine.yaml").write_text(f"extends: four_stages\n{change}\n")
    done = run("validate", "mine.yaml")
    assert f"mine.yaml: {message}" in done.stdout + done.stderr
    assert done.exit_code == (0 if message == "ok" else 2)


SMALL = "extends: four_stages\nstudent: {bottleneck: 16, unit_layers: 1}\n"
DENSE = "source: model has dense modules or a truncate_dim, and a layer source must not"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("{source: model, shape: null, sha256: null, tokenizer: null}", "assistant"),
        ("{layers_from: {source: model}}", "assistant.layers_from"),
        ("{embeddings_from: {source: model}}", "assistant.embeddings_from"),
        ("{soup: [{source: model}]}", "assistant.soup.0"),
        ("{source: model, shape: null, sha256: null, tokenizer: null, layers_from: {source: plain}}", None),
    ],
)
def test_validate_checks_local_layer_sources_as_a_dry_run_does(
    change: str, key: str | None, working_folder: Path
) -> None:
    save_pipeline(working_folder / "model", dense=["Identity"])
    save_pipeline(working_folder / "plain")
    (working_folder / "mine.yaml").write_text(f"{SMALL}assistant: {change}\n")
    done = run("validate", "mine.yaml")
    expected = f"mine.yaml: {key}.{DENSE}" if key else "mine.yaml: ok"
    assert expected in done.stdout + done.stderr
    is_unused = "is not used, as layers_from takes its place" in " ".join(done.stderr.split())
    assert is_unused == ("layers_from" in change)
    if key:
        with pytest.raises(InputError, match=f"^{key}.{DENSE}"):
            plan(load_recipe("mine.yaml"), working_folder / "run")


def test_validate_reads_no_models_without_torch(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_pipeline(working_folder / "model", dense=["Identity"])
    (working_folder / "mine.yaml").write_text(f"{SMALL}assistant: {{layers_from: {{source: model}}}}\n")
    monkeypatch.setattr("xcompress.packages.is_installed", lambda _: False)
    assert "mine.yaml: ok" in run("validate", "mine.yaml").stdout


def test_a_name_is_a_shipped_recipe_unless_a_file_has_it(working_folder: Path) -> None:
    (working_folder / "minilm_ru3").mkdir()
    assert find_recipe("minilm_ru3") == find_recipe(Path("minilm_ru3")) == shipped()["minilm_ru3"]
    (working_folder / "minilm_ru3").rmdir()
    (working_folder / "minilm_ru3").write_text("name: x")
    assert find_recipe("minilm_ru3") == Path("minilm_ru3")


@pytest.mark.parametrize("name", ["xlmr_b128_ru3", "paper/xlmr_b128_ru3.yml", "recipes/paper/xlmr_b128_ru3.yml"])
def test_an_unknown_name_is_met_with_near_ones(name: str) -> None:
    with pytest.raises(InputError, match=f"no such recipe; did you mean {XLMR}, .*`xcompress recipe list`") as caught:
        find_recipe(name)
    assert "\n" not in str(caught.value)
