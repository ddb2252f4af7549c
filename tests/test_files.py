import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xcompress import files
from xcompress.errors import InputError


def test_a_file_is_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.txt"
    with pytest.raises(RuntimeError), files.whole_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed here")
    assert list(path.parent.iterdir()) == []
    files.write_text(path, "whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_replaces_the_old_one_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content, fails in (("first", False), ("second", True), ("third", False)):
        try:
            with files.whole_folder(path) as temporary:
                (temporary / content).touch()
                if fails:
                    raise RuntimeError("killed here")
        except RuntimeError:
            pass
        kept = "first" if fails else content
        assert [file.name for file in path.iterdir()] == [kept]
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_one_line_and_leaves_nothing(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"folder: cannot be written \(No space left on device\); free space"),
        files.whole_folder(tmp_path / "folder") as temporary,
    ):
        (temporary / "half").touch()
        raise error
    assert list(tmp_path.iterdir()) == []


def test_an_error_that_is_not_about_writing_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.whole_file(tmp_path / "file"):
        (tmp_path / "absent").read_text()


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".student.123.tmp").mkdir()
    (tmp_path / ".manifest.json.123.tmp").touch()
    (tmp_path / "student").mkdir()
    files.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


def test_hashes_do_not_depend_on_the_order_of_keys() -> None:
    assert files.hash_of({"a": 1, "b": [2]}) == files.hash_of({"b": [2], "a": 1}) != files.hash_of({"a": 1, "b": [3]})


def test_bad_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad.json: not valid JSON"):
        files.read_json(tmp_path / "bad.json")
    with pytest.raises(InputError, match=r"none.json: no such file"):
        files.read_json(tmp_path / "none.json")


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"", b"9" * 5000])
def test_json_that_cannot_be_read_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(InputError, match=r"bad.json: not valid JSON") as error:
        files.read_json(tmp_path / "bad.json")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_json_in_a_place_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "folder", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match=r"cannot be read \((Is a directory|File name too long)\)"):
            files.read_json(path)


@pytest.mark.parametrize("text", ["null", "[]", "5", '"x"', "true"])
def test_a_mapping_is_an_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json: expected names and values, found"):
        files.read_mapping(tmp_path / "config.json")


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "C:/x", "..\\x", "a\0b", "\\\\host\\x"])
def test_a_name_that_leads_out_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which is not a path inside the folder") as error:
        files.path_inside(tmp_path, name)
    assert "\0" not in str(error.value)


def test_names_and_links_inside_a_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    (tmp_path / "link").symlink_to("sub/file")
    (tmp_path / "outer").symlink_to(tmp_path)
    for name in ("", "sub", "sub/file", "link", "none", "sub/none", "Modell für Küche"):
        assert files.path_inside(tmp_path, name) == tmp_path / name
        assert files.path_inside(tmp_path / "outer", name) == tmp_path / "outer" / name


def test_links_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model-2").touch()
    links = {"near": "../model-2", "far": "/etc/passwd", "broken": "../none", "loop": "loop", "up": ".."}
    for name, target in links.items():
        (tmp_path / "model" / name).symlink_to(target)
        with pytest.raises(InputError, match=r"a link that leads out of the folder|cannot be read"):
            files.path_inside(tmp_path / "model", name)
    with pytest.raises(InputError, match="a link that leads out"):
        files.path_inside(tmp_path / "model", "up/model-2")


def test_only_the_blobs_of_the_same_model_may_be_linked_from_a_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    for folder in (snapshot / "sub", snapshot.parents[1] / "blobs", tmp_path / "models--org--other" / "blobs"):
        folder.mkdir(parents=True)
        (folder / "0").write_text("x")
    (snapshot.parents[1] / "blobs" / "out").symlink_to("/etc/passwd")
    for name, target in {"mine": "../../blobs/0", "sub/mine": "../../../blobs/0"}.items():
        (snapshot / name).symlink_to(target)
        assert files.path_inside(snapshot, name) == snapshot / name
    assert files.path_inside(snapshot / "sub", "mine") == snapshot / "sub" / "mine"
    foreign = {"other": "../../../models--org--other/blobs/0", "out": "../../blobs/out", "blobs": "../../blobs"}
    for name, target in foreign.items():
        (snapshot / name).symlink_to(target)
        with pytest.raises(InputError, match="a link that leads out of the folder"):
            files.path_inside(snapshot, name)


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Act as a user who may not enter the folder."""
    folder.chmod(0o600)
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)  # root may enter every folder
    try:
        yield
    finally:
        os.seteuid(user)
        folder.chmod(0o700)


@pytest.mark.parametrize("name", ["x" * 300, f"a/{'x' * 5000}", "~nosuchuser", "~nosuchuser/x", "a\0b"])
def test_what_cannot_be_a_path_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match=r"cannot be read as a path \("):
        files.as_path(name)


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "config.json").write_text("{}")
    with without_rights(tmp_path / "locked"):
        for path in (tmp_path / "locked", tmp_path / "locked" / "config.json"):
            with pytest.raises(InputError, match=r"cannot be read as a path \(Permission denied\)"):
                files.as_path(str(path))
        with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
            files.path_inside(tmp_path / "locked", "config.json")
    assert files.as_path(str(tmp_path / "locked")) == tmp_path / "locked"


def test_a_path_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    assert files.as_path("~/none") == tmp_path / "none"
    assert files.as_path("~/file/none") == tmp_path / "file" / "none"
