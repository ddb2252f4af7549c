import json
import os
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.e5s1 import small_e5s1_weights, write_e5s1
from tests.helpers.foreign import TEXTS, encoder, save_encoder, save_pipeline
from tests.helpers.rotary import save_rotary
from tests.helpers.student import make_tokenizer, save_student
from xcompress.errors import InputError
from xcompress.export.source import SourceOptions, card_languages, find_source
from xcompress.files import read_json, write_json
from xcompress.modeling.student import Student, encode
from xcompress.sources.model_folder import PROMPTS, check_model_folder


def make_student(folder: Path, model_type: str = "xcompress-student") -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).write_text(name)
    return folder


def make_run(folder: Path, finished: object) -> Path:
    make_student(folder / "student")
    (folder / "manifest.json").write_text(json.dumps({"name": folder.name, "finished": finished}))
    return folder


def test_the_newest_finished_run_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/old", "2024-05-01T10:00:00+00:00")
    # the later moment, though the earlier text
    make_run(tmp_path / "runs/new", "2024-05-01T09:00:00-03:00")
    make_run(tmp_path / "runs/unfinished", None)
    found = find_source(None)
    assert found.name == "new"
    assert found.bundle == Path("runs/new/bundle")


@pytest.mark.parametrize("finished", ["2001-99-99", "0001-01-01", 5])
def test_a_time_that_cannot_be_is_named(finished: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/odd", finished)
    with pytest.raises(InputError, match=r"runs/odd/manifest\.json: finished is .* not an ISO time; correct or delete"):
        find_source(None)


def test_no_run_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/unfinished", None)
    with pytest.raises(InputError, match=r"xcompress distill recipes/minilm_ru3\.yaml"):
        find_source(None)


def test_a_run_that_stopped_before_its_end_says_how_to_finish_it(tmp_path: Path) -> None:
    (tmp_path / "trial/corpus").mkdir(parents=True)
    (tmp_path / "trial/corpus/step.json").write_text("{}")
    with pytest.raises(InputError, match="trial: the run is not finished; run `xcompress distill` again to finish it"):
        find_source(tmp_path / "trial")


def test_a_student_folder_is_its_own_source(tmp_path: Path) -> None:
    found = find_source(make_student(tmp_path / "mine"))
    assert (found.name, found.bundle, found.run) == ("mine", tmp_path / "mine-bundle", {})


def test_the_fingerprint_follows_every_part(tmp_path: Path) -> None:
    folder = make_student(tmp_path / "mine")
    seen = {find_source(folder).fingerprint()}
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).write_text("changed")
        seen.add(find_source(folder).fingerprint())
    assert len(seen) == 3
    (folder / PROMPTS).write_text('{"prompts": {"query": "q: "}}')
    seen.add(find_source(folder).fingerprint())
    for languages in ("de", "[de, en]"):
        (folder / "README.md").write_text(f"---\nlanguage: {languages}\n---\n")
        seen.add(find_source(folder).fingerprint())
    assert len(seen) == 6


def test_a_missing_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for missing in (tmp_path / "nothing", "runs/nothing", "./nothing"):
        with pytest.raises(InputError, match=r"nothing: no such folder; give a run \(runs/<name>\)"):
            find_source(missing)


def test_a_folder_of_something_else_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json, modules\.json or manifest\.json here; give a run"):
        find_source(tmp_path)
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(InputError, match=r"notes\.txt: not a folder or an E5S1 file"):
        find_source(tmp_path / "notes.txt")
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(InputError, match="model_type is 'gpt2'; supported are bert"):
        find_source(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_an_incomplete_student_or_encoder_names_what_is_missing(name: str, tmp_path: Path) -> None:
    student = make_student(tmp_path / "student")
    (student / name).unlink()
    with pytest.raises(InputError, match=f"student: no {name} here"):
        find_source(student)
    save_encoder(tmp_path / "encoder", "bert")
    (tmp_path / "encoder" / name).unlink()
    with pytest.raises(InputError, match=f"encoder.{name}: no such file; "):
        find_source(tmp_path / "encoder")


def test_a_bundle_is_refused(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    write_json(tmp_path / "manifest.json", {"format": 1, "made_from": "abc"})
    with pytest.raises(
        InputError, match=f"{tmp_path}: is a bundle already; .* `xcompress dequantize {tmp_path}` makes"
    ):
        find_source(tmp_path)


@pytest.mark.parametrize("reference", ["small", "released:small"])
def test_a_released_model_is_refused_with_what_to_do(reference: str) -> None:
    with pytest.raises(InputError, match=r"^small: is a bundle already; .* `xcompress dequantize small` makes"):
        find_source(reference)


def test_a_folder_wins_over_a_released_model(working_folder: Path) -> None:
    save_student(working_folder / "small")
    assert find_source("small").student == Path("small")


def test_a_foreign_encoder_is_opened_as_the_student_that_it_is(tmp_path: Path) -> None:
    model = save_pipeline(tmp_path / "mine", "mpnet", pooling="cls", dense=["Tanh"], longest=60)
    found = find_source(str(tmp_path / "mine"))
    assert (found.name, found.bundle, found.run) == ("mine", tmp_path / "mine-bundle", {})
    assert found.recurrences == 1
    np.testing.assert_allclose(encode(*found.open(), TEXTS), model.encode(TEXTS), atol=1e-5)


def test_a_cross_encoder_is_refused_unless_its_pooling_is_named(tmp_path: Path) -> None:
    save_encoder(tmp_path, "bert")
    config = read_json(tmp_path / "config.json")
    write_json(tmp_path / "config.json", config | {"architectures": ["BertForSequenceClassification"]})
    with pytest.raises(
        InputError, match=r"names BertForSequenceClassification, a cross-encoder .*; choose .*--pooling"
    ):
        find_source(tmp_path)
    assert find_source(tmp_path, SourceOptions(pooling="mean")).open()[0].config.pooling == "mean"
    save_pipeline(tmp_path / "pooled")
    write_json(tmp_path / "pooled/config.json", config | {"architectures": ["BertForSequenceClassification"]})
    assert find_source(tmp_path / "pooled").name == "pooled", "modules.json names the pooling"


def test_how_a_bare_encoder_is_read_is_the_callers_choice() -> None:
    student, _ = find_source(encoder("bert"), SourceOptions(pooling="cls", prefix="query: ", max_tokens=9)).open()
    assert (student.config.pooling, student.config.prefix, student.config.max_tokens) == ("cls", "query: ", 9)


def test_the_newest_run_says_itself_how_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/one", "2024-05-01T10:00:00+00:00")
    with pytest.raises(InputError, match=r"is a student, .* leave out prefix, pooling"):
        find_source(None, SourceOptions(prefix="query: ", pooling="cls"))


@pytest.mark.parametrize(
    ("prefix", "problem"),
    [("\ud800", r"holds U\+D800"), ("\u202equery: ", r"holds U\+202E"), ("query " * 1000, "has 6000 characters")],
)
def test_a_prefix_that_no_bundle_may_have_is_refused(prefix: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"^prefix: {problem}"):
        SourceOptions(prefix=prefix)


def test_a_student_says_itself_how_it_is_read(tmp_path: Path) -> None:
    folder = save_student(tmp_path / "mine", recurrences=2)
    assert find_source(folder).recurrences == 2
    assert find_source(folder).open()[0].config == Student.load(folder)[0].config
    with pytest.raises(
        InputError, match=r"is a student, whose config\.json has these settings; leave out prefix, pooling"
    ):
        find_source(folder, SourceOptions(prefix="query: ", pooling="mean"))


def test_the_fingerprint_of_an_encoder_follows_all_that_is_read(tmp_path: Path) -> None:
    save_pipeline(tmp_path, dense=["Identity"])
    found = find_source(tmp_path)
    seen = {found.fingerprint(), find_source(tmp_path, SourceOptions(prefix="query: ")).fingerprint()}
    for name in ("2_Dense/model.safetensors", "model.safetensors", "tokenizer.json"):
        with (tmp_path / name).open("ab") as stream:
            stream.write(b" ")
        seen.add(found.fingerprint())
    for name in ("modules.json", "1_Pooling/config.json", "config.json", "sentence_bert_config.json"):
        (tmp_path / name).write_text((tmp_path / name).read_text() + " ")
        seen.add(found.fingerprint())
    assert len(seen) == 9
    (tmp_path / "notes.txt").write_text("unrelated")
    assert found.fingerprint() in seen


def test_an_e5s1_file_needs_a_tokenizer(tmp_path: Path) -> None:
    write_e5s1(tmp_path / "small.bin", small_e5s1_weights())
    with pytest.raises(InputError, match=r"small\.bin: brings no tokenizer; name the tokenizer\.json"):
        find_source(tmp_path / "small.bin")
    make_tokenizer().save(str(tmp_path / "words.json"))
    found = find_source(tmp_path / "small.bin", SourceOptions(tokenizer=tmp_path / "words.json"))
    assert (found.name, found.bundle) == ("small", tmp_path / "small-bundle")
    assert np.isfinite(encode(*found.open(), ["the boat"])).all()
    before = found.fingerprint()
    (tmp_path / "words.json").write_text((tmp_path / "words.json").read_text() + " ")
    assert found.fingerprint() != before


@pytest.fixture
def cached(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the wheel shop 1.0, with an encoder in it; the working folder is another one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    folder = empty_cache / "wheels" / "shop-1.0" / "shop" / "model"
    shutil.copytree(encoder("bert"), folder)
    return folder


def test_what_is_fetched_has_its_bundle_in_the_working_folder(cached: Path) -> None:
    found = find_source("wheel:shop==1.0/shop/model")
    assert (found.name, found.student, found.bundle) == ("shop", cached, Path("shop-bundle"))
    assert found.default_folder("bundle", 2) == Path("shop-bundle-r2")


def test_pieces_of_an_encoder_are_named_after_the_whole(cached: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "whole.zip", "w") as archive:
        for file in cached.iterdir():
            archive.write(file, f"inner/{file.name}")
    data = (tmp_path / "whole.zip").read_bytes()
    for number, part in enumerate((data[:5000], data[5000:]), 1):
        (tmp_path / f"small-v2.zip.00{number}").write_bytes(part)
    found = find_source(f"{tmp_path}/small-v2.zip.001+{tmp_path}/small-v2.zip.002")
    assert (found.name, found.bundle, found.student.name) == ("small-v2", Path("small-v2-bundle"), "inner")
    assert np.array_equal(encode(*found.open(), TEXTS), encode(*find_source(cached).open(), TEXTS))


def test_a_hub_id_is_named_after_its_model(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.export.source.resolve", lambda reference: cached)
    found = find_source("org/name-v1.5@main")
    assert (found.name, found.bundle) == ("name-v1.5", Path("name-v1.5-bundle"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can write everywhere")
def test_beside_a_model_that_cannot_be_written(tmp_path: Path) -> None:
    shutil.copytree(encoder("bert"), tmp_path / "place" / "mine")
    (tmp_path / "place").chmod(0o500)
    assert find_source(tmp_path / "place" / "mine").bundle == Path("mine-bundle")


@pytest.mark.parametrize(
    ("card", "languages"),
    [
        ("---\nlanguage: en\n---\n# A model", ["en"]),
        ("---\nlanguage:\n- multilingual\n- no\n- de\ntags: [a]\n---\n", ["no", "de"]),
        ("---\nlanguage: multilingual\n---\n", []),
        ("---\ntags: [a]\n---\nlanguage: en", []),
        ("---\nlanguage: {a: b\n---\n", []),
        ("---\nlanguage: {a: b}\n---\n", ["a"]),
        ("# language: en", []),
        (None, []),
    ],
)
def test_languages_are_those_of_the_model_card(card: str | None, languages: list[str], tmp_path: Path) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    assert card_languages(tmp_path / "README.md") == languages


def test_the_languages_of_a_run_come_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs/one", None)
    (run / "student" / "README.md").write_text("---\nlanguage: [en, fr]\n---\n")
    assert find_source(run).languages == ["en", "fr"]
    write_json(run / "manifest.json", read_json(run / "manifest.json") | {"languages": ["de"]})
    assert find_source(run).languages == ["de"]


@pytest.mark.parametrize("finished", ["yesterday", 12])
def test_a_run_with_a_broken_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: object) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/odd", finished)
    with pytest.raises(InputError, match=r"odd.manifest\.json: finished is"):
        find_source(None)


def test_a_run_without_a_student(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="no student yet"):
        find_source(tmp_path)


def test_a_bundle_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/old", "2024-05-01T10:00:00+00:00")
    make_run(tmp_path / "runs/new", "2024-05-02T10:00:00+00:00")
    bundle = make_run(tmp_path / "runs/new-bundle", "2024-05-03T10:00:00+00:00")
    (bundle / "manifest.json").write_text('{"made_from": "abc", "finished": "2024-05-03T10:00:00+00:00"}')
    assert find_source(None).name == "new"


def test_fewer_recurrences_have_a_place_of_their_own(tmp_path: Path) -> None:
    of_run = find_source(make_run(tmp_path / "runs/one", None))
    of_student = find_source(make_student(tmp_path / "mine"))
    assert of_run.default_folder("bundle", None) == of_run.bundle
    assert of_run.default_folder("bundle", 2) == tmp_path / "runs/one/bundle-r2"
    assert of_student.default_folder("bundle", 1) == tmp_path / "mine-bundle-r1"


def test_a_model_with_code_is_no_source(tmp_path: Path) -> None:
    save_pipeline(tmp_path / "model")
    for name, change in (("config.json", {"auto_map": {"AutoModel": "evil.Evil"}}), ("modules.json", None)):
        before = (tmp_path / "model" / name).read_bytes()
        value = read_json(tmp_path / "model" / name)
        write_json(tmp_path / "model" / name, value | change if change else [*value, {"type": "evil.E", "path": ""}])
        with pytest.raises(InputError, match=rf"{name}: \w+ names 'evil\.\w+', which could run code"):
            find_source(tmp_path / "model")
        (tmp_path / "model" / name).write_bytes(before)
    find_source(tmp_path / "model").open()


def test_code_of_a_family_whose_layers_are_known_is_left_alone(tmp_path: Path) -> None:
    code = save_rotary(tmp_path / "gte", "new", auto_map={"AutoModel": "modeling.NewModel"}) / "modeling.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert find_source(tmp_path / "gte").open()[0].config.rotary_bert
    assert not (tmp_path / "ran").exists()
    with pytest.raises(InputError, match=r"config\.json: auto_map names 'modeling\.NewModel'"):
        check_model_folder(tmp_path / "gte", "teacher")  # sentence-transformers would run it


@pytest.mark.parametrize("path", ["../victim", "linked"])
def test_a_transformer_beside_the_model_is_not_read(path: str, tmp_path: Path) -> None:
    save_pipeline(tmp_path / "model")
    save_encoder(tmp_path / "victim", "bert")
    (tmp_path / "model" / "linked").symlink_to(tmp_path / "victim")
    modules = read_json(tmp_path / "model" / "modules.json")
    write_json(tmp_path / "model" / "modules.json", [modules[0] | {"path": path}, *modules[1:]])
    with pytest.raises(InputError, match=r"not a path inside the folder|a link that leads out of the folder"):
        find_source(tmp_path / "model")


@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser", "~nosuchuser/model", "bad\0name"])
def test_what_cannot_be_a_path_is_one_line(name: str, offline: None) -> None:
    with pytest.raises(InputError) as error:
        find_source(name)
    assert "\n" not in str(error.value)
