import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from xcompress.bundle.cached import cached_folder
from xcompress.errors import InputError
from xcompress.paths import as_path, cache_folder, path_inside


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XCOMPRESS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep caches elsewhere")
@pytest.mark.parametrize("empty", [False, True])
def test_the_cache_is_where_linux_keeps_caches(home: Path, monkeypatch: pytest.MonkeyPatch, empty: bool) -> None:
    if empty:
        monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_folder() == home / ".cache" / "xcompress"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "caches"))
    assert cache_folder() == home / "caches" / "xcompress"


def test_xcompress_cache_takes_precedence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "caches"))
    monkeypatch.setenv("XCOMPRESS_CACHE", "~/here")
    assert cache_folder() == home / "here"


def test_a_cache_in_the_home_of_nobody_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCOMPRESS_CACHE", "~nosuchuser/cache")
    with pytest.raises(InputError, match="XCOMPRESS_CACHE: '~nosuchuser/cache': no such home folder"):
        cache_folder()


def test_without_a_home_there_is_no_cache_and_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda user: {}[user])  # as in a container that runs under any number
    with pytest.raises(InputError, match="no home folder; set XCOMPRESS_CACHE"):
        cache_folder()
    # early versions of platformdirs
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "~/.cache/xcompress")
    with pytest.raises(InputError, match="no home folder; set XCOMPRESS_CACHE"):
        cache_folder()
    assert cached_folder("kind", "name", Path.touch) is None


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "C:/x", "..\\x", "a\0b", "\\\\host\\x"])
def test_a_name_that_leads_out_of_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which is not a path inside the folder") as error:
        path_inside(tmp_path, name)
    assert "\0" not in str(error.value)


def test_names_and_links_inside_a_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file").touch()
    (tmp_path / "link").symlink_to("sub/file")
    (tmp_path / "outer").symlink_to(tmp_path)
    for name in ("", "sub", "sub/file", "link", "none", "sub/none", "Modell für Küche"):
        assert path_inside(tmp_path, name) == tmp_path / name
        assert path_inside(tmp_path / "outer", name) == tmp_path / "outer" / name


def test_links_out_of_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model-2").touch()
    links = {"near": "../model-2", "far": "/etc/passwd", "broken": "../none", "loop": "loop", "up": ".."}
    for name, target in links.items():
        (tmp_path / "model" / name).symlink_to(target)
        with pytest.raises(InputError, match=r"a link that leads out of the folder|cannot be read"):
            path_inside(tmp_path / "model", name)
    with pytest.raises(InputError, match="a link that leads out"):
        path_inside(tmp_path / "model", "up/model-2")


def test_only_the_blobs_of_the_same_model_may_be_linked_from_a_snapshot(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--org--name" / "snapshots" / "abc"
    for folder in (snapshot / "sub", snapshot.parents[1] / "blobs", tmp_path / "models--org--other" / "blobs"):
        folder.mkdir(parents=True)
        (folder / "0").write_text("x")
    (snapshot.parents[1] / "blobs" / "out").symlink_to("/etc/passwd")
    for name, target in {"mine": "../../blobs/0", "sub/mine": "../../../blobs/0"}.items():
        (snapshot / name).symlink_to(target)
        assert path_inside(snapshot, name) == snapshot / name
    assert path_inside(snapshot / "sub", "mine") == snapshot / "sub" / "mine"
    foreign = {"other": "../../../models--org--other/blobs/0", "out": "../../blobs/out", "blobs": "../../blobs"}
    for name, target in foreign.items():
        (snapshot / name).symlink_to(target)
        with pytest.raises(InputError, match="a link that leads out of the folder"):
            path_inside(snapshot, name)


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
        as_path(name)


@pytest.mark.parametrize("name", ["https://huggingface.co/org/name", "hf://org/name"])
def test_of_a_web_address_the_hub_id_is_wanted(name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: is a web address; give .* the id alone of a model on the Hugging"):
        as_path(name)


def test_a_folder_that_may_not_be_entered_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked" / "config.json").write_text("{}")
    with without_rights(tmp_path / "locked"):
        for path in (tmp_path / "locked", tmp_path / "locked" / "config.json"):
            with pytest.raises(InputError, match=r"cannot be read as a path \(Permission denied\)"):
                as_path(str(path))
        with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
            path_inside(tmp_path / "locked", "config.json")
    assert as_path(str(tmp_path / "locked")) == tmp_path / "locked"


def test_a_path_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "file").touch()
    assert as_path("~/none") == tmp_path / "none"
    assert as_path("~/file/none") == tmp_path / "file" / "none"
