import sys
from pathlib import Path

import pytest

from xcompress.bundle.cached import cached_folder
from xcompress.errors import InputError
from xcompress.files import cache_folder


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
