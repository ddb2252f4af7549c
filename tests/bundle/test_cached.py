from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from xcompress import Encoder
from xcompress.bundle.cached import cached_folder
from xcompress.bundle.released import released_folder


def test_a_folder_that_another_is_making_is_waited_for(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    second: list[Future[Path | None]] = []
    waits_or_has_ended = Event()
    monkeypatch.setattr("xcompress.files.time.sleep", lambda _: waits_or_has_ended.set())

    def make(place: Path) -> None:
        second.append(pool.submit(cached_folder, "kind", "name", lambda _: pytest.fail("made again")))
        second[0].add_done_callback(lambda _: waits_or_has_ended.set())
        assert waits_or_has_ended.wait(timeout=30)
        (place / "file").write_text("content")

    with ThreadPoolExecutor() as pool:
        folder = cached_folder("kind", "name", make)
        assert folder is not None and second[0].result() == folder
    assert sorted(file.name for file in folder.iterdir()) == ["file", "sha256"]
    assert list(folder.parent.iterdir()) == [folder]


def test_a_cache_whose_path_is_not_utf_8_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCOMPRESS_CACHE", f"{tmp_path}/\udcff")
    assert Encoder(released_folder("tiny"), threads=1).encode("rain").any()
    assert not list(tmp_path.iterdir())
