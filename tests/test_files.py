import errno
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
