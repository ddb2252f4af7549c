"""Fixtures that several folders of tests share."""

import shutil
from pathlib import Path

import pytest


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
