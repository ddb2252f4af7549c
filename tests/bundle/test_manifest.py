import os
from pathlib import Path

import pytest

from tests.helpers.student import bundle, change_manifest, save_student
from xcompress.bundle.manifest import MANIFEST, graphs_of, is_bundle, list_files, newest_bundle, read_manifest
from xcompress.errors import InputError
from xcompress.files import read_json, write_json


def test_a_bundle_is_told_from_a_run_and_from_a_student(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / MANIFEST, {"name": "run", "steps": {}})
    assert is_bundle(bundle())
    assert not is_bundle(tmp_path / "run")
    assert not is_bundle(save_student(tmp_path / "student"))
    assert not is_bundle(tmp_path / "absent")


def test_a_manifest_that_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json: not valid JSON"):
        is_bundle(tmp_path)


def test_the_newest_bundle_is_that_of_the_newest_manifest(tmp_path: Path) -> None:
    assert newest_bundle(tmp_path) is None
    for age, name in ((100, "a/bundle"), (50, "b/bundle-r2"), (0, "c/student")):
        (tmp_path / name).mkdir(parents=True)
        write_json(tmp_path / name / MANIFEST, {})
        os.utime(tmp_path / name / MANIFEST, (10**9 - age, 10**9 - age))
    assert newest_bundle(tmp_path) == tmp_path / "b/bundle-r2"


def test_the_listed_files_are_those_of_the_manifest() -> None:
    files = list_files(bundle())
    del files[MANIFEST]
    assert files == read_json(bundle() / MANIFEST)["files"]


def test_a_manifest_without_graphs_has_the_usual_ones(bundle_copy: Path) -> None:
    manifest = read_manifest(bundle_copy)
    manifest.pop("graphs", None)
    assert list(graphs_of(bundle_copy, manifest)) == ["int8", "fp32"]
    change_manifest(bundle_copy, graphs={"fp16": "onnx/model.onnx", "int4": "onnx/absent.onnx"})
    assert graphs_of(bundle_copy, read_manifest(bundle_copy)) == {"fp16": "onnx/model.onnx"}
