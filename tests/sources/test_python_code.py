import shutil
from pathlib import Path

import pytest

from xcompress.errors import InputError
from xcompress.sources.python_code import open_code


def test_a_current_folder_that_was_removed_holds_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "module_of_a_folder.py").write_text("def encode(texts):\n    return [[1.0]] * len(texts)\n")
    monkeypatch.chdir(folder)
    assert open_code("python:module_of_a_folder:encode", "teacher")(["rain"]).tolist() == [[1.0]]
    shutil.rmtree(folder)
    with pytest.raises(InputError, match="teacher: no module 'no_such_module'; install its package, or run in the"):
        open_code("python:no_such_module:encode", "teacher")
