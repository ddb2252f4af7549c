import sys
from pathlib import Path

import pytest

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
