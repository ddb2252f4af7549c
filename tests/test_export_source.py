import json
from pathlib import Path

import pytest

from xcompress.errors import InputError
from xcompress.export.source import find_source


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


def test_no_run_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/unfinished", None)
    with pytest.raises(InputError, match=r"xcompress distill recipes/minilm_ru3\.yaml"):
        find_source(None)


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


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        find_source(tmp_path / "nothing")


def test_a_folder_without_a_student_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"no model\.safetensors, tokenizer\.json here"):
        find_source(tmp_path)


def test_a_foreign_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="model_type is 'bert', expected 'xcompress-student'"):
        find_source(make_student(tmp_path / "foreign", "bert"))


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
    assert of_run.place(None) == of_run.bundle
    assert of_run.place(2) == tmp_path / "runs/one/bundle-r2"
    assert of_student.place(1) == tmp_path / "mine-bundle-r1"
