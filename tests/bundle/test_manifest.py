import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.student import bundle, change_manifest, save_student
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.manifest import (
    GRAPHS,
    MANIFEST,
    content_hash,
    graphs_of,
    is_bundle,
    is_export,
    list_files,
    newest_bundle,
    parse_manifest,
    read_manifest,
)
from xcompress.errors import InputError
from xcompress.files import read_json, write_json


def test_a_bundle_is_told_from_a_run_and_from_a_student(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / MANIFEST, {"name": "run", "steps": {}})
    write_json(tmp_path / MANIFEST, {"made_from": "abc"})  # of a checkpoint
    assert is_bundle(bundle())
    assert is_export(bundle())
    assert is_export(tmp_path)
    assert not is_bundle(tmp_path)
    assert not is_export(tmp_path / "run")
    assert not is_bundle(tmp_path / "run")
    assert not is_bundle(save_student(tmp_path / "student"))
    assert not is_bundle(tmp_path / "absent")


def test_a_run_in_place_of_its_bundle_is_one_line_that_names_the_bundle(tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {"name": "mine", "recipe": {}})
    expected = (
        f"{tmp_path}: is a run; give its bundle, {tmp_path / 'bundle'}, which `xcompress export {tmp_path}` makes"
    )
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        Encoder(tmp_path)


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
    shutil.move(bundle_copy / GRAPHS["int8"], bundle_copy / GRAPHS["fp32"])
    change_manifest(bundle_copy, graphs={"fp16": GRAPHS["fp32"], "int4": GRAPHS["int8"]}, precision="fp16")
    assert graphs_of(bundle_copy, read_manifest(bundle_copy)) == {"fp16": GRAPHS["fp32"]}


def flips(content: bytes) -> Iterator[bytes]:
    """Yield the content with each of its bits flipped in turn."""
    for place in range(len(content)):
        for bit in range(8):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


LISTED = {"bytes": 1, "sha256": "a"}
KEPT = ("format", "made_from", "precision", "graphs", "prefix", "max_tokens", "pad_token_id", "dimension", "files")
DECISIVE = ("precision", "graphs", "prefix", "max_tokens", "pad_token_id", "dimension", "vocab_size")
"""Entries of the manifest that the vectors depend on."""


@pytest.mark.parametrize(
    "with_hash", [pytest.param(True, id="with a hash"), pytest.param(False, id="without", marks=pytest.mark.exhaustive)]
)
def test_a_flipped_bit_gives_an_error_or_the_same_vectors(bundle_copy: Path, with_hash: bool) -> None:
    texts = ["the boat is late", "the boat is late " * 60]
    expected = Encoder(bundle_copy, threads=1).encode(texts)
    manifest, file = read_manifest(bundle_copy), bundle_copy / MANIFEST
    manifest = {key: manifest[key] for key in KEPT}
    content = (manifest | {"sha256": content_hash(manifest)}) if with_hash else manifest
    errors, opened = 0, 0
    for flipped in flips(json.dumps(content).encode()):
        try:
            changed = parse_manifest(flipped, file)
            if any(changed.get(key) != manifest.get(key) for key in DECISIVE):
                opened += 1
                file.write_bytes(flipped)
                np.testing.assert_array_equal(Encoder(bundle_copy, threads=1).encode(texts), expected)
        except InputError as error:
            errors += 1
            assert str(file.parent) in str(error)
            assert "\n" not in str(error)
    assert errors
    assert with_hash == (not opened)


def test_a_changed_entry_is_refused_even_if_nothing_reads_it(bundle_copy: Path) -> None:
    manifest = read_manifest(bundle_copy)
    (bundle_copy / MANIFEST).write_text(json.dumps(manifest | {"parameters": 3}))
    with pytest.raises(InputError, match=r"manifest\.json: was changed .*; export the bundle again") as error:
        Encoder(bundle_copy)
    assert "\n" not in str(error.value)


def test_the_hash_is_that_of_the_content_not_of_its_spaces(bundle_copy: Path) -> None:
    manifest = read_manifest(bundle_copy)
    (bundle_copy / MANIFEST).write_text(json.dumps(dict(reversed(manifest.items())), indent=8))
    assert read_manifest(bundle_copy) == manifest


def test_a_bundle_without_a_hash_of_its_manifest_opens(bundle_copy: Path) -> None:
    manifest = read_manifest(bundle_copy)
    del manifest["sha256"]
    (bundle_copy / MANIFEST).write_text(json.dumps(manifest))
    np.testing.assert_array_equal(Encoder(bundle_copy).encode("rain"), Encoder(bundle()).encode("rain"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"max_tokens": 1e30}, "max_tokens is float, not a whole number"),
        ({"max_tokens": 10**30}, "max_tokens is 1000000000000000000000000000000, more than"),
        ({"dimension": 2**40}, "dimension is 1099511627776, more than"),
        ({"vocab_size": 0}, "vocab_size is 0, less than 1"),
        ({"max_tokens": 127}, "truncates at 128 tokens, manifest.json says max_tokens 127"),
        ({"pad_token_id": 3}, "pads with 1, manifest.json says pad_token_id 3"),
        ({"prefix": "\ud800"}, "prefix holds U+D800"),
        ({"prefix": "query:\x1b[31m "}, "prefix holds U+001B"),
        ({"prefix": "\u202equery: "}, "prefix holds U+202E"),
        ({"prefix": "query " * 1000}, "prefix has 6000 characters"),
        ({"prompts": ["query: "]}, "prompts is list, not a mapping"),
        ({"prompts": {"query": 3}}, "the prompt 'query' is int, not text"),
        ({"prompts": {"query": "query " * 1000}}, "the prompt 'query' has 6000 characters"),
        ({"prompts": {"query": "\ud800"}}, "the prompt 'query' holds U+D800"),
        ({"prompts": {"\x1b[31m": "query: "}}, "the name of a prompt holds U+001B"),
        ({"mean_vector": [0.0]}, "mean_vector does not hold 24 numbers from -1 to 1"),
        ({"mean_vector": [float("nan")] * 24}, "mean_vector does not hold 24 numbers from -1 to 1"),
        ({"mean_vector": ["0"] * 24}, "mean_vector does not hold 24 numbers from -1 to 1"),
        ({"mean_vector": 0.5}, "mean_vector is float, not a list"),
        ({"precision": "int9"}, "precision is 'int9', which graphs does not name"),
        ({"graphs": {"int9": "onnx/model.onnx"}}, "graphs names 'int9', which is no precision"),
        ({"graphs": {"int8": "onnx/other.onnx", "fp32": GRAPHS["fp32"]}}, "graphs names 'onnx/other.onnx', files does"),
        ({"graphs": {"int8": "n" * 300}}, "outside the bundle"),
        ({"graphs": {"int8": "onnx/" + "n" * 300}}, "outside the bundle"),
        ({"files": {GRAPHS["int8"]: LISTED, GRAPHS["fp32"]: LISTED, "n" * 300: LISTED}}, "outside the bundle"),
        ({"files": {f"{number}.bin": LISTED for number in range(1001)}}, "lists 1,001 files, more than 1,000"),
        ({"target": "n" * 300}, "target is 'nnn"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_a_manifest_with_odd_values_is_one_line(bundle_copy: Path, changes: dict[str, object], what: str) -> None:
    manifest = read_manifest(bundle_copy) | changes
    del manifest["sha256"]
    for written in (manifest, manifest | {"sha256": content_hash(manifest)}):
        (bundle_copy / MANIFEST).write_text(json.dumps(written))
        with pytest.raises(InputError, match=re.escape(what)) as error:
            Encoder(bundle_copy)
        assert "\n" not in str(error.value)
        assert str(error.value).isprintable()
        assert len(str(error.value)) < 600


def test_a_line_break_may_be_in_a_prefix(bundle_copy: Path) -> None:
    change_manifest(bundle_copy, prefix="Instruct: find it\nQuery: ")
    assert Encoder(bundle_copy).encode("rain").shape == (24,)


@pytest.mark.parametrize("name", ["n" * 300, "a\0b", "\ud800", "\x1b[31m"], ids=["long", "NUL", "surrogate", "escape"])
def test_a_folder_with_an_odd_name_is_one_line(name: str) -> None:
    with pytest.raises(InputError) as error:
        read_manifest(Path(name))
    assert str(error.value).isprintable()
