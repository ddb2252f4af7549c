import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx.external_data_helper import set_external_data

from tests.bundle.test_external_data import model as odd_model
from tests.helpers.files import nested_folders
from tests.helpers.limits import frugal
from tests.helpers.student import bundle, change_manifest
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.integrity import check_bundle
from xcompress.bundle.manifest import read_manifest
from xcompress.errors import InputError

GRAPH = "onnx/model_quantized.onnx"
OPENED: list[str] = []
"""What this process opened, links followed, since it was last emptied."""


def note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str):
        OPENED.append(os.path.realpath(arguments[0]))


sys.addaudithook(note)


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file beside the bundle that nothing may read."""
    file = tmp_path / "secret"
    file.write_bytes(b"{}" + b"\0" * 1000)
    OPENED.clear()
    yield file
    assert str(file) not in OPENED


def test_what_is_opened_is_noted(bundle_copy: Path) -> None:
    OPENED.clear()
    Encoder(bundle_copy)
    assert {os.path.realpath(bundle_copy / name) for name in ("manifest.json", GRAPH, "config.json")} <= set(OPENED)


def list_again(folder: Path, *more: str) -> None:
    """Write sizes and hashes of what is there now, and of `more`, into the manifest."""
    names = set(json.loads((folder / "manifest.json").read_text())["files"]) | set(more)
    content = {name: (folder / name).read_bytes() for name in sorted(names) if (folder / name).is_file()}
    files = {name: {"bytes": len(data), "sha256": sha256(data).hexdigest()} for name, data in content.items()}
    change_manifest(folder, files=files)


def refused(folder: Path, name: str, what: str = ".", **options: bool) -> None:
    """Expect one line that names the file."""
    with pytest.raises(InputError, match=what) as error:
        Encoder(folder, threads=1, **options)
    assert str(folder / name) in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def external(folder: Path, location: str, data: bool = True) -> None:
    """Move a weight of the int8 graph into another file, and list what is there again."""
    graph = folder / GRAPH
    model = onnx.load(graph)
    weight = next(weight for weight in model.graph.initializer if len(weight.raw_data) >= 1024)
    values = weight.raw_data
    set_external_data(weight, location, 0, len(values))
    weight.ClearField("raw_data")
    graph.write_bytes(model.SerializeToString())
    if data:
        (graph.parent / location).write_bytes(values)
    list_again(folder, f"onnx/{location}" if data else GRAPH)


def test_an_unchanged_bundle_passes() -> None:
    manifest = read_manifest(bundle())
    check_bundle(bundle(), manifest)
    check_bundle(bundle(), manifest, GRAPH)
    check_bundle(bundle(), manifest, everything=True)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def remove(file: Path) -> None:
    file.unlink()


def to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES = [flip, cut, empty, remove, to_folder]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["tokenizer.json", "config.json", "1_Pooling/config.json", "modules.json"])
def test_a_damaged_file_is_named(bundle_copy: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(bundle_copy / name)
    refused(bundle_copy, name)


@pytest.mark.parametrize("damage", [flip, cut, empty])
def test_a_damaged_graph_is_named(bundle_copy: Path, damage: Callable[[Path], None]) -> None:
    damage(bundle_copy / GRAPH)
    refused(bundle_copy, GRAPH)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(bundle(), tmp_path_factory.mktemp("shared") / "copy"))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_changed_byte_of_any_file_is_found(shared: Path, data: st.DataObject) -> None:
    manifest = read_manifest(shared)
    name = data.draw(st.sampled_from(sorted(manifest["files"])))
    before = (shared / name).read_bytes()
    after = bytearray(before)
    after[data.draw(st.integers(0, len(before) - 1))] ^= data.draw(st.integers(1, 255))
    (shared / name).write_bytes(after)
    try:
        with pytest.raises(InputError, match=name):
            check_bundle(shared, manifest, everything=True)
    finally:
        (shared / name).write_bytes(before)


def test_exchanged_files_are_refused(bundle_copy: Path) -> None:
    (bundle_copy / GRAPH).rename(bundle_copy / "kept")
    (bundle_copy / "onnx/model.onnx").rename(bundle_copy / GRAPH)
    (bundle_copy / "kept").rename(bundle_copy / "onnx/model.onnx")
    refused(bundle_copy, GRAPH)


def test_the_other_graph_may_be_absent_but_not_cut_off(bundle_copy: Path) -> None:
    cut(bundle_copy / "onnx/model.onnx")
    refused(bundle_copy, "onnx/model.onnx", "bytes, manifest.json says")
    (bundle_copy / "onnx/model.onnx").unlink()
    assert Encoder(bundle_copy).precision == "int8"
    with pytest.raises(InputError, match="no such file"):
        check_bundle(bundle_copy, read_manifest(bundle_copy), everything=True)


def test_the_model_card_may_be_edited(bundle_copy: Path) -> None:
    (bundle_copy / "README.md").write_text("mine")
    Encoder(bundle_copy)
    with pytest.raises(InputError, match="README"):
        check_bundle(bundle_copy, read_manifest(bundle_copy), everything=True)


def test_an_unchecked_bundle_may_be_changed(bundle_copy: Path) -> None:
    (bundle_copy / "config.json").write_text("{}")
    Encoder(bundle_copy, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "onnx/extra.onnx",
        "onnx/weights",
        "onnx/deep/x.bin",
        "tokenizer2.json",
        "model.onnx_data",
        "a.data",
        "b.ort",
        "model.safetensors",
        "pytorch_model.bin",
        "modeling.py",
    ],
)
def test_a_file_that_a_loader_might_read_must_be_listed(bundle_copy: Path, name: str) -> None:
    (bundle_copy / name).parent.mkdir(exist_ok=True)
    (bundle_copy / name).write_bytes(b"x")
    refused(bundle_copy, name, "is not listed")


@pytest.mark.parametrize("name", ["notes.txt", "onnx/.hidden", "docs/a.md"])
def test_other_files_do_not_matter(bundle_copy: Path, name: str) -> None:
    (bundle_copy / name).parent.mkdir(exist_ok=True)
    (bundle_copy / name).write_bytes(b"x")
    Encoder(bundle_copy)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", ["tokenizer.json", GRAPH, "manifest.json"])
def test_a_link_that_leads_out_is_refused(bundle_copy: Path, secret: Path, name: str, check: bool) -> None:
    (bundle_copy / name).unlink()
    (bundle_copy / name).symlink_to(secret)
    refused(bundle_copy, name, "leads out of the bundle", check=check)


def test_a_folder_that_is_a_link_out_is_refused(bundle_copy: Path, tmp_path: Path) -> None:
    (bundle_copy / "onnx").rename(tmp_path / "elsewhere")
    (bundle_copy / "onnx").symlink_to(tmp_path / "elsewhere")
    refused(bundle_copy, "onnx", "leads out of the bundle")


def test_links_in_a_circle_are_refused(bundle_copy: Path) -> None:
    (bundle_copy / "config.json").unlink()
    (bundle_copy / "config.json").symlink_to("config.json")
    refused(bundle_copy, "config.json")


def test_a_bundle_may_be_reached_through_a_link(bundle_copy: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(bundle_copy)
    assert Encoder(tmp_path / "link").dimension == 24


NAMES = [
    "../secret",
    "/etc/hostname",
    "onnx/../../secret",
    "C:\\secret",
    "..\\secret",
    "",
    ".",
    "a\0b",
    "./config.json",
    "\ud800",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_is_refused(bundle_copy: Path, secret: Path, name: str) -> None:
    manifest = json.loads((bundle_copy / "manifest.json").read_text())
    digest = sha256(secret.name.encode()).hexdigest()
    change_manifest(bundle_copy, files={**manifest["files"], name: {"bytes": 1002, "sha256": digest}})
    refused(bundle_copy, "manifest.json", "outside the bundle")
    change_manifest(bundle_copy, files=manifest["files"], graphs={"int8": name})
    refused(bundle_copy, "manifest.json", "outside the bundle")
    refused(bundle_copy, "manifest.json", "outside the bundle", check=False)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"format": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b"[]", "holds list, not a mapping"),
        (b"null", "holds NoneType, not a mapping"),
        (b"{}", "lacks format, dimension"),
    ],
    ids=["empty", "open", "binary", "deep", "long number", "list", "null", "mapping"],
)
def test_a_manifest_that_is_none(bundle_copy: Path, content: bytes, what: str) -> None:
    (bundle_copy / "manifest.json").write_bytes(content)
    refused(bundle_copy, "manifest.json", what)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dimension": "24"}, "dimension is str, not a whole number"),
        ({"dimension": 24.0}, "dimension is float"),
        ({"dimension": True}, "dimension is bool"),
        ({"dimension": 0}, "dimension is 0, less than 1"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"prefix": None}, "prefix is NoneType, not text"),
        ({"format": 2}, "upgrade xcompress"),
        ({"files": []}, "files is list, not a mapping"),
        ({"files": {}}, "lists no files"),
        ({"files": {"config.json": 3}}, "'config.json' lacks bytes"),
        ({"files": {"config.json": {"bytes": "3", "sha256": "a"}}}, "'config.json' lacks bytes"),
        ({"graphs": {"int8": 3}}, "graphs and languages must hold text"),
        ({"languages": [3]}, "graphs and languages must hold text"),
        ({"target": 3}, "target is int"),
    ],
    ids=str,
)
def test_a_manifest_of_wrong_kinds(bundle_copy: Path, changes: dict[str, object], what: str) -> None:
    change_manifest(bundle_copy, **changes)
    refused(bundle_copy, "manifest.json", what)


@pytest.mark.parametrize("pipeline", ['{"prompts": {"query": "other: "}}', "[]"])
def test_prompts_of_a_manifest_without_a_hash_are_those_of_the_pipeline(bundle_copy: Path, pipeline: str) -> None:
    (bundle_copy / "config_sentence_transformers.json").write_text(pipeline)
    list_again(bundle_copy, "config_sentence_transformers.json")
    manifest = read_manifest(bundle_copy)
    del manifest["sha256"]
    (bundle_copy / "manifest.json").write_text(json.dumps(manifest | {"prefix": ""}))
    refused(bundle_copy, "manifest.json", "its prompts are not those of config_sentence_transformers.json")


def test_a_bundle_without_hashes_says_what_to_do(bundle_copy: Path) -> None:
    manifest = json.loads((bundle_copy / "manifest.json").read_text())
    del manifest["files"], manifest["sha256"]
    (bundle_copy / "manifest.json").write_text(json.dumps(manifest))
    refused(bundle_copy, "manifest.json", "lists no files, so nothing can be checked; export the bundle again")
    Encoder(bundle_copy, check=False)


def test_missing_and_foreign_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Encoder(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no manifest\.json here; give a bundle, which `xcompress export "):
        Encoder(tmp_path)


def test_external_data_is_checked_like_the_graph(bundle_copy: Path) -> None:
    expected = Encoder(bundle_copy).encode("rain")
    external(bundle_copy, "weights.data")
    np.testing.assert_allclose(Encoder(bundle_copy).encode("rain"), expected, atol=1e-6)
    for damage in DAMAGES[:4]:
        before = (bundle_copy / "onnx/weights.data").read_bytes()
        damage(bundle_copy / "onnx/weights.data")
        refused(bundle_copy, "onnx/weights.data")
        (bundle_copy / "onnx/weights.data").write_bytes(before)


def test_external_data_must_be_listed(bundle_copy: Path) -> None:
    external(bundle_copy, ".weights")
    files = json.loads((bundle_copy / "manifest.json").read_text())["files"]
    del files["onnx/.weights"]
    change_manifest(bundle_copy, files=files)
    refused(bundle_copy, GRAPH, r"refers to onnx/\.weights, which manifest.json does not list")


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("location", ["../../secret", "../config.json", "{}", "C:\\secret", "*/_ORT_MEM_ADDR_/*"])
def test_external_data_elsewhere_is_refused(bundle_copy: Path, secret: Path, location: str, check: bool) -> None:
    external(bundle_copy, location.format(secret), data=False)
    refused(bundle_copy, GRAPH, check=check)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", ["onnx/model.tflite", "onnx/model.pte", "onnx/model.ONNX", "onnx/model"])
def test_a_graph_of_another_format_is_refused(bundle_copy: Path, secret: Path, name: str, check: bool) -> None:
    external(bundle_copy, "../../secret", data=False)
    (bundle_copy / GRAPH).rename(bundle_copy / name)
    list_again(bundle_copy, name)
    change_manifest(bundle_copy, graphs={"int8": name}, precision="int8")
    refused(bundle_copy, "manifest.json", "which is neither .onnx nor .ort", check=check)


@pytest.mark.parametrize("check", [True, False])
def test_external_data_behind_a_link_is_refused(bundle_copy: Path, secret: Path, check: bool) -> None:
    external(bundle_copy, "weights.data")
    (bundle_copy / "onnx/weights.data").unlink()
    (bundle_copy / "onnx/weights.data").symlink_to(secret)
    refused(bundle_copy, "onnx/weights.data", "leads out of the bundle", check=check)


@pytest.mark.parametrize("kind", ["constant", "subgraph", "sparse"])
def test_external_data_elsewhere_inside_a_node_is_refused(bundle_copy: Path, kind: str) -> None:
    (bundle_copy / GRAPH).write_bytes(odd_model(kind).SerializeToString().replace(b"a.data", b"../../"))
    list_again(bundle_copy)
    refused(bundle_copy, GRAPH, r"refers to '\.\./\.\./', outside the bundle")


@pytest.mark.parametrize("location", ["../../secret", "{}"])
def test_onnxruntime_refuses_to_leave_the_folder_as_well(bundle_copy: Path, tmp_path: Path, location: str) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 2_000_000)
    external(bundle_copy, location.format(tmp_path / "secret"), data=False)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match="xternal data"):
        onnxruntime.InferenceSession(str(bundle_copy / GRAPH), options, providers=["CPUExecutionProvider"])


def test_custom_operators_cannot_be_loaded(bundle_copy: Path) -> None:
    model = onnx.load(bundle_copy / GRAPH)
    model.graph.node[0].domain = "somebody.else"
    model.opset_import.add(domain="somebody.else", version=1)
    (bundle_copy / GRAPH).write_bytes(model.SerializeToString())
    list_again(bundle_copy)
    refused(bundle_copy, GRAPH, "onnxruntime cannot open it")


def test_a_bundle_holds_no_code_that_would_run(bundle_copy: Path) -> None:
    trap = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()"
    names = ("modeling.py", "tokenization.py", "__init__.py", "onnx.py")
    for name in names:
        (bundle_copy / name).write_text(trap)
    config = json.loads((bundle_copy / "config.json").read_text())
    (bundle_copy / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling.Model"}}))
    list_again(bundle_copy, *names)
    Encoder(bundle_copy).encode("rain")
    assert not (bundle_copy / "ran").exists()


@pytest.mark.parametrize("name", ["manifest.json", "tokenizer.json"])
def test_json_of_many_gigabytes_is_not_read(bundle_copy: Path, name: str) -> None:
    os.truncate(bundle_copy / name, 20_000_000_000)
    with frugal():
        refused(bundle_copy, name, "holds 20000.0 MB, too many for JSON", check=False)


def test_folders_without_end_are_refused_or_passed_over(bundle_copy: Path) -> None:
    with nested_folders(bundle_copy / "onnx/deep"), suppress(InputError):
        check_bundle(bundle_copy, read_manifest(bundle_copy))


def test_a_folder_that_cannot_be_entered_is_named(bundle_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.stat

    def stat(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "1_Pooling":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return whole(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(InputError, match=r"1_Pooling.config\.json: cannot be read \(Permission denied\); correct its"):
        Encoder(bundle_copy)
