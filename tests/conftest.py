"""Fixtures that several folders of tests share, and the order of the test files."""

import gc
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.files import RUN_FOLDER


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of `pytest_collection_modifyitems`: pytest-xdist would start files with few tests last.

    Make the folder that the processes of this run share. Those of pytest-xdist get the variable from the first one.
    """
    config.option.loadscopereorder = False
    if not hasattr(config, "workerinput"):
        os.environ[RUN_FOLDER] = tempfile.mkdtemp()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder that the processes of this run shared."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ[RUN_FOLDER], ignore_errors=True)


def pytest_collection() -> None:
    """Import the tests without a search for garbage, of which there is none: it takes a sixth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Search for garbage again."""
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the files with most slow tests first, so that with `--dist loadfile` no process ends long after another."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(autouse=True, scope="module")
def little_garbage_to_search() -> None:
    """Leave what is there before a file's tests, above all the libraries, out of later collections of garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_garbage_collected_after_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep transformers from it: with the libraries of all tests loaded, it takes longer than a training of a test."""
    if memory := sys.modules.get("accelerate.utils.memory"):
        monkeypatch.setattr(memory, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files reach the disk when the system likes: each wait takes some milliseconds."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def bundle_copy(tmp_path: Path) -> Path:
    """A copy of the small bundle, which the test may change."""
    from tests.helpers.student import bundle

    return Path(shutil.copytree(bundle(), tmp_path / "copy"))


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one during the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the Hugging Face libraries from the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of xcompress, still empty."""
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_installed_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read wheels from the cache only, even those that are installed."""
    monkeypatch.setattr("xcompress.sources.wheels.installed", lambda wheel: None)


@pytest.fixture
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrate, verify and grade exports on a handful of sentences."""
    from tests.helpers.export import use_little_text

    use_little_text(monkeypatch)


@pytest.fixture(scope="session")
def node_packages() -> Path:
    """A folder whose node_modules has transformers.js; skips without Node.js or a package registry."""
    from tests.helpers.npm import transformers_js

    return transformers_js()
