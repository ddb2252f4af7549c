"""Released models: their names, how they are opened, and the integrity of those in this tree."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

import xcompress
from tests.helpers.release import card, release
from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bench.subjects import find_subjects
from xcompress.bundle import released
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import PUBLISHED, content_hash, read_manifest
from xcompress.bundle.released import find_bundle, released_folder, released_names
from xcompress.cli.encode import embed, search
from xcompress.cli.models import models
from xcompress.corpus.graded import builtin
from xcompress.errors import InputError
from xcompress.files import size_of
from xcompress.recipe import load_recipe

app = typer.Typer()
for command in (embed, search, models):
    app.command()(command)

RELEASED = released_names()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the package's folder of models by an empty one; work in an empty folder."""
    monkeypatch.setattr(released, "MODELS", tmp_path / "package" / "models")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "package" / "models"


def place(folder: Path, **changes: object) -> Path:
    shutil.copytree(bundle(), folder)
    change_manifest(folder, **changes)
    return folder


def run(*arguments: str) -> Result:
    done = CliRunner().invoke(app, [*arguments])
    assert done.exception is None, done.exception
    return done


def test_names_are_the_folders_that_hold_a_bundle(installed: Path) -> None:
    assert released_names() == ()
    for name in ("tiny", "small", "another"):
        place(installed / name)
    (installed / "notes").mkdir()
    assert released_names() == xcompress.released_names() == ("small", "another", "tiny")


def test_a_released_model_is_opened_by_name(installed: Path) -> None:
    place(installed / "small")
    expected = Encoder(bundle()).encode(SENTENCES)
    np.testing.assert_array_equal(Encoder.released().encode(SENTENCES), expected)
    assert Encoder.released("small", precision="fp32").precision == "fp32"


def test_bench_finds_released_models_by_name(installed: Path) -> None:
    place(installed / "small", release={"name": "small"})
    place(installed / "tiny", release={"name": "tiny"})
    found = find_subjects(["tiny"], "small", steps=False)
    assert {one.name: one.source for one in found.subjects} == {
        "small, ONNX int8": str(installed / "small"),
        "tiny, ONNX int8": str(installed / "tiny"),
        "tiny, ONNX fp32": str(installed / "tiny"),
    }
    place(Path("tiny"))
    assert [one.source for one in find_subjects(["tiny"]).subjects][-1] == "tiny"


def test_an_unknown_name_is_answered_with_those_there_are(installed: Path) -> None:
    with pytest.raises(InputError, match=r"^small: no released model of this name; this installation has none"):
        Encoder.released()
    place(installed / "small")
    place(installed / "tiny")
    with pytest.raises(InputError, match=r"^smal: no released model of this name; choose small or tiny$"):
        Encoder.released("smal")
    with pytest.raises(InputError, match="no released model"):
        released_folder("../models/small")


def test_a_model_that_was_changed_is_refused(installed: Path) -> None:
    folder = place(installed / "small")
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + " ")
    with pytest.raises(InputError, match=r"tokenizer\.json"):
        Encoder.released("small")


def test_the_released_model_is_the_default_and_others_are_named(installed: Path) -> None:
    place(Path("runs/a/bundle"))
    assert find_bundle(None) == Path("runs/a/bundle")
    small, tiny = place(installed / "small"), place(installed / "tiny")
    assert find_bundle(None) == small
    assert find_bundle("tiny") == tiny
    assert find_bundle(Path("tiny")) == Path("tiny"), "a path is a folder"
    assert find_bundle("runs/a/bundle") == Path("runs/a/bundle")


def test_a_bundle_of_a_released_models_name_comes_first_but_no_other_folder(installed: Path) -> None:
    tiny = place(installed / "tiny")
    Path("tiny").mkdir()
    assert find_bundle("tiny") == tiny
    Path("tiny").rmdir()
    place(Path("tiny"))
    assert find_bundle("tiny") == find_bundle("./tiny") == Path("tiny")


@pytest.mark.parametrize(
    ("named", "what"),
    [("absent", "absent: neither a folder nor a released model; choose tiny"), ("./absent", "absent: no such folder")],
)
def test_a_name_that_is_neither_model_nor_folder_is_one_line(installed: Path, named: str, what: str) -> None:
    place(installed / "tiny")
    failed = CliRunner().invoke(app, ["embed", "rain", "--model", named]).exception
    assert isinstance(failed, InputError)
    assert what in str(failed)
    assert len(str(failed).splitlines()) == 1


def test_embed_and_search_use_it(installed: Path) -> None:
    place(installed / "small")
    (Path.cwd() / "lines.txt").write_text("\n".join(SENTENCES))
    vector = json.loads(run("embed", "rain", "--json").stdout)["vector"]
    np.testing.assert_allclose(vector, Encoder(bundle()).encode("rain"), atol=1e-5)
    assert json.loads(run("search", "lines.txt", "rain", "--json").stdout)[0]["text"] == "rain"
    assert run("embed", "rain", "--json", "--model", "small").stdout


def test_a_bundle_that_may_have_been_meant_is_named(installed: Path) -> None:
    place(installed / "small")
    assert run("embed", "rain", "--json").stderr == ""
    place(Path("runs/a/bundle"))
    assert "to use your newest bundle, add --model runs/a/bundle" in run("embed", "rain", "--json").stderr
    assert run("embed", "rain", "--json", "--model", "small").stderr == ""


def test_the_list_describes_each_model(installed: Path) -> None:
    scores = [{"test": "sts", "averages": {"monolingual": 71.26, "en-xx": 60}}, {"test": "pairs", "averages": {}}]
    place(installed / "small", languages=["en", "de"], release={"scores": scores})
    place(installed / "tiny", dev={"retrieval": 90.5, "by language": {}})
    small, tiny = json.loads(run("models", "--json").stdout)
    assert (small["name"], small["languages"], small["dimension"]) == ("small", ["en", "de"], 24)
    assert small["bytes"] == sum(file.stat().st_size for file in Path(small["folder"]).rglob("*") if file.is_file())
    assert small["dev"] == {"sts": {"monolingual": 71.26, "en-xx": 60}, "pairs": {}}
    assert tiny["dev"] == {"its run": {"retrieval": 90.5}}
    rows = [[cell.strip() for cell in line.split("│")] for line in run("models").stdout.splitlines()]
    assert ["", "sts, monolingual", "71.3", "-", ""] in rows
    assert ["", "sts, en-xx", "60.0", "-", ""] in rows
    assert ["", "its run, retrieval", "-", "90.5", ""] in rows
    assert "en de" in next(row[2] for row in rows if row[1:2] == ["languages"])


def test_an_empty_list_says_so(installed: Path) -> None:
    assert json.loads(run("models", "--json").stdout) == []
    assert "this installation ships no released model" in run("models").stderr


@pytest.mark.skipif(not RELEASED, reason="no released model in xcompress/models yet")
class TestReleasedModels:
    @pytest.mark.parametrize("name", RELEASED)
    def test_each_is_whole_and_works(self, name: str) -> None:
        folder = released_folder(name)
        check_bundle(folder, read_manifest(folder), everything=True)
        vectors = Encoder.released(name).encode(["The train is late.", "Der Zug hat Verspätung.", "I like soup."])
        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]

    @pytest.mark.parametrize("name", RELEASED)
    def test_a_translation_is_much_closer_than_another_sentence(self, name: str) -> None:
        vectors = Encoder.released(name).encode(["The train is late.", "Der Zug hat Verspätung.", "I like soup."])
        assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2

    @pytest.mark.parametrize("name", RELEASED)
    def test_translations_are_much_closer_than_other_sentences(self, name: str) -> None:
        pairs = builtin().language_pairs
        english, encoder = pairs["en-en"].first[::8], Encoder.released(name)
        vectors, same, means = encoder.encode(english), np.eye(len(english), dtype=bool), []
        for language in encoder.languages[1:]:
            cosines = vectors @ encoder.encode(pairs[f"{language}-{language}"].first[::8]).T
            means.append((cosines[same].mean(), cosines[~same].mean()))
        translations, others = np.mean(means, axis=0)
        assert translations > {"small": 0.8, "tiny": 0.73}[name]  # 0.82 and 0.75
        assert abs(others) < 0.1

    @pytest.mark.parametrize("name", RELEASED)
    def test_each_is_as_small_as_its_name_promises(self, name: str) -> None:
        assert size_of(released_folder(name)) <= release.MODEL_BYTES.get(name, release.PACKAGE_BYTES)

    @pytest.mark.parametrize("name", RELEASED)
    def test_each_card_is_what_its_manifest_says(self, name: str) -> None:
        manifest = read_manifest(released_folder(name))
        assert (released_folder(name) / "README.md").read_text(encoding="utf-8") == card.released_card(manifest)

    @pytest.mark.parametrize("name", RELEASED)
    def test_each_was_trained_by_the_recipe_that_its_card_names(self, name: str) -> None:
        made = read_manifest(released_folder(name))["release"]
        assert load_recipe(made["recipe"]).hash == made["recipe_hash"]

    @pytest.mark.parametrize("name", RELEASED)
    def test_the_hash_of_each_manifest_is_known(self, name: str, tmp_path: Path) -> None:
        manifest = read_manifest(released_folder(name))
        assert content_hash(manifest) == manifest.get("sha256", PUBLISHED.get(manifest["made_from"]))
        (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"max_tokens": 64}))
        with pytest.raises(InputError, match=r"manifest\.json: was changed after the export"):
            read_manifest(tmp_path)

    def test_all_released_models_fit_in_the_package(self) -> None:
        assert sum(size_of(released_folder(name)) for name in RELEASED) <= release.PACKAGE_BYTES - release.CODE_BYTES
