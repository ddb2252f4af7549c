import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.limits import frugal
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


def test_text_between_two_markers_is_replaced_and_missing_markers_are_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = "<!-- b: begin, written by script.py -->", "<!-- b: end -->"
    page.write_text(f"# Page\n\n{begin}\nold\n{end}\n\nRest. <!-- a: end -->\n")
    files.write_between_markers(page, "b", "script.py", "new\nlines")
    assert page.read_text() == f"# Page\n\n{begin}\nnew\nlines\n{end}\n\nRest. <!-- a: end -->\n"
    with pytest.raises(InputError, match=r"page\.md: lacks <!-- a: begin, written by script\.py -->; put it where"):
        files.write_between_markers(page, "a", "script.py", "new")
    page.write_text(f"{end}\n{begin}\n")
    with pytest.raises(InputError, match=r"page\.md: lacks <!-- b: end -->"):
        files.write_between_markers(page, "b", "script.py", "new")


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


@pytest.mark.parametrize(
    "error",
    [
        OSError("1152000 requested and 61440 written"),
        OSError(errno.EFBIG, "File too large"),
        RuntimeError("[enforce fail at inline_container.cc:664] . PytorchStreamWriter failed: file write failed"),
        RuntimeError("I/O error: Disk quota exceeded (os error 122)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        Exception('Error while serializing: I/O error: Os { code: 28, message: "No space left on device" }'),
    ],
)
def test_every_librarys_words_for_a_full_disk_are_one_line(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"^\S+file: cannot be written \(.+\); free space"),
        files.whole_file(tmp_path / "file"),
    ):
        raise error


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no named pipes")
def test_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for write in (files.whole_file, files.whole_folder):
        with pytest.raises(InputError, match="pipe: is a"), write(tmp_path / "pipe") as temporary:
            temporary.touch()
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_numpy_on_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"x\.npy: cannot be written \(No space left on device\)"),
        files.whole_file(tmp_path / "x.npy") as temporary,
    ):
        temporary.symlink_to("/dev/full")
        with temporary.open("wb") as stream:
            np.save(stream, np.zeros(1_000_000))
    assert list(tmp_path.iterdir()) == []


def write_folder(path: Path, content: str = "new") -> None:
    with files.whole_folder(path) as temporary:
        files.write_text(temporary / "content", content)


@pytest.mark.parametrize("write", [write_folder, files.write_text], ids=["folder", "file"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("file/x/y", "Not a directory"),
        ("a" * 256, "File name too long"),
        ("~nosuchuser/x", "~ is not replaced by a home folder"),
        ("~", "~ is not replaced by a home folder"),
    ],
)
def test_a_path_that_nothing_can_have_is_one_line(
    write: Callable[[Path, str], None], path: str, why: str, working_folder: Path
) -> None:
    Path("file").touch()
    with pytest.raises(InputError, match=why) as refused:
        write(Path(path), "new")
    assert len(str(refused.value).splitlines()) == 1
    assert [entry.name for entry in working_folder.iterdir()] == ["file"]


@pytest.mark.parametrize("path", [".", "..", "/", "folder/.."])
@pytest.mark.parametrize("write", [write_folder, files.prepare_target], ids=["write", "prepare"])
def test_a_folder_without_a_name_is_refused_before_the_work(
    write: Callable[[Path], None], path: str, working_folder: Path
) -> None:
    Path("folder").mkdir()
    with pytest.raises(InputError, match=r"^\S+: has no name of its own, .*; name a folder inside it$"):
        write(Path(path))
    assert [entry.name for entry in working_folder.iterdir()] == ["folder"]


@pytest.mark.parametrize("path", ["../inner", "../../outer", "absolute"])
def test_the_current_folder_is_not_replaced(path: str, working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = working_folder / "outer" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    with pytest.raises(InputError, match=r"is or holds the current folder, so it cannot be replaced; name a folder"):
        files.prepare_target(inner if path == "absolute" else Path(path))
    files.prepare_target(Path("../inner2"))


def test_a_link_to_a_folder_is_kept_and_the_folder_is_written(working_folder: Path) -> None:
    Path("disk").mkdir()
    Path("link").symlink_to("disk")
    target = files.prepare_target(Path("link"))
    write_folder(target)
    assert Path("link").is_symlink() and list(Path("disk").iterdir())
    assert files.prepare_target(Path("plain")) == Path("plain")


def test_files_may_be_added_to_the_current_folder(working_folder: Path) -> None:
    files.check_target(Path())
    write_folder(Path() / "folder")
    assert [entry.name for entry in working_folder.iterdir()] == ["folder"]


def test_a_folder_that_cannot_be_entered_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lstat(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "lstat", lstat)
    with pytest.raises(InputError, match=r"x: cannot be written \(Permission denied\)"):
        files.check_target(tmp_path / "x")


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    place = tmp_path / ("ü" * 127)
    write_folder(place)
    assert (place / "content").read_text() == "new"
    shutil.rmtree(place)
    files.write_text(place, "new")
    assert place.read_text() == "new" and list(tmp_path.iterdir()) == [place]


def test_a_file_and_a_folder_do_not_replace_each_other(tmp_path: Path) -> None:
    write_folder(tmp_path / "folder")
    files.write_text(tmp_path / "file", "text")
    with pytest.raises(InputError, match="folder: is a folder; give the name of a file"):
        files.write_text(tmp_path / "folder", "text")
    with pytest.raises(InputError, match="file: is a file; name a folder"):
        write_folder(tmp_path / "file")


def test_temporary_names_cannot_be_predicted_and_modes_are_those_of_the_user(tmp_path: Path) -> None:
    def temporary_names() -> set[str]:
        with files.whole_file(tmp_path / "file") as file, files.whole_folder(tmp_path / "folder"):
            file.touch()
            return {entry.name for entry in tmp_path.iterdir() if entry.suffix == ".tmp"}

    before = os.umask(0o027)
    try:
        first = temporary_names()
    finally:
        os.umask(before)
    assert not first & temporary_names() and len(first) == 2
    assert not any(str(os.getpid()) in name for name in first)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder")]
    assert modes == [0o666 & ~before, 0o777 & ~before]


def leave_behind(folder: Path, change: Callable[[Path], None] | None = None) -> Path:
    """Let a process die while it writes `folder`; return what it leaves."""
    with files.whole_folder(folder) as temporary:
        scratch = temporary.parents[1]
        assert scratch.parent == folder.parent
        (temporary / "half").touch()
        kept = shutil.copytree(scratch, folder.parent / "kept")
    if change:
        change(kept)
    return kept.rename(scratch)


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    for name in ("folder", "other"):
        leave_behind(tmp_path / name)
        shutil.rmtree(tmp_path / name)
    (tmp_path / ".folder.123.tmp").mkdir()  # of an earlier version
    (tmp_path / ".folder.mine.tmp").touch()
    write_folder(tmp_path / "folder")
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left[0] == ".folder.mine.tmp" and left[1].startswith(".other.") and left[2:] == ["folder"]
    files.remove_leftovers(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".folder.mine.tmp", "folder"]


def test_leftovers_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".student.123.tmp").mkdir()
    (tmp_path / ".manifest.json.123.tmp").touch()
    (tmp_path / "student").mkdir()
    files.remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["student"]


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_a_folder_that_was_moved_away_is_put_back(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "folder"
    if version == "this":
        leave_behind(folder, lambda scratch: (scratch / "old/folder").mkdir(parents=True))
        folder.rmdir() if not list(folder.iterdir()) else shutil.rmtree(folder)
    else:
        (tmp_path / ".folder.123.old").mkdir()
        (tmp_path / ".folder.123.tmp").mkdir()
    files.prepare_target(folder)
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("link", [".folder.aaaaaaaa.tmp", ".folder.aaaaaaaa.tmp/old"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_planted_link_moves_and_removes_nothing_elsewhere(tmp_path: Path, link: str, is_there: bool) -> None:
    """A folder of others, such as a clone of a repository, may hold what looks like a leftover."""
    work, home = tmp_path / "work", tmp_path / "home"
    (home / "old").mkdir(parents=True)
    (home / "thesis").write_text("mine")
    (home / "old/thesis").write_text("mine, too")
    (work / link).parent.mkdir(parents=True)
    (work / link).symlink_to(home)
    if is_there:
        (work / "thesis").write_text("theirs")
    write_folder(work / "folder")
    files.remove_leftovers(work)
    assert sorted(entry.name for entry in work.iterdir()) == ["folder", *(["thesis"] if is_there else [])]
    assert (home / "thesis").read_text() == "mine"
    assert (home / "old/thesis").read_text() == "mine, too"


def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "folder", "old")
    replace, renamed = os.replace, []

    def break_off(source: Path, target: Path) -> None:
        renamed.append(target)
        if len(renamed) == 2:
            raise OSError(errno.EIO, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", break_off)
    with pytest.raises(InputError, match=r"folder: cannot be written \(Input/output error\)"):
        write_folder(tmp_path / "folder")
    assert (tmp_path / "folder/content").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_second_of_two_writers_of_a_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    with files.whole_folder(folder) as temporary:
        (temporary / "first").touch()
        for second in (write_folder, files.prepare_target):
            with pytest.raises(InputError, match="folder: another process is writing it; wait until it has ended"):
                second(folder)
        files.remove_leftovers(tmp_path)
        assert temporary.exists(), "a living writer's folder stays"
    assert [file.name for file in folder.iterdir()] == ["first"]
    assert list(tmp_path.iterdir()) == [folder]


def test_the_second_of_two_writers_of_a_file_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    with ThreadPoolExecutor() as pool:
        with files.whole_file(file) as temporary:
            temporary.write_text("first")
            second = pool.submit(files.write_text, file, "second")
            with pytest.raises(TimeoutError):
                second.result(timeout=0.1)
            monkeypatch.setattr(files, "_FILE_PATIENCE", 0)
            with pytest.raises(InputError, match="file: another process is writing it"):
                files.write_text(file, "third")
        second.result()
    assert file.read_text() == "second"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_a_killed_process_frees_its_lock_and_its_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    child = os.fork()
    if child == 0:
        with files.whole_folder(folder) as temporary:
            (temporary / "half").touch()
            time.sleep(60)
        os._exit(1)
    try:
        while not list(tmp_path.rglob("half")):
            time.sleep(0.01)
        with pytest.raises(InputError, match="another process is writing it"):
            write_folder(folder)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert len(list(tmp_path.iterdir())) == 2
    write_folder(folder)
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "content").read_text() == "new"


@pytest.mark.parametrize("missing", ["module", "support"])
def test_without_file_locks_files_are_written_and_leftovers_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "module":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOLCK, "No locks")))
    (tmp_path / ".folder.123.tmp").mkdir()
    write_folder(tmp_path / "folder")
    files.remove_leftovers(tmp_path)
    assert {".folder.123.tmp", "folder"} <= {entry.name for entry in tmp_path.iterdir()}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names descriptors by /proc")
def test_files_and_folders_are_on_the_disk_before_they_are_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    replace = os.replace

    def fsync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    def rename(source: Path, target: Path) -> None:
        events.append(f"rename {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "replace", rename)
    monkeypatch.setattr(os, "fsync", fsync)
    files.write_text(tmp_path / "file", "text")
    assert events == ["file", "rename file", tmp_path.name]
    events.clear()
    write_folder(tmp_path / "folder")
    assert events == ["rename content", "folder", "content", "rename folder", tmp_path.name]


def test_hashes_do_not_depend_on_the_order_of_keys() -> None:
    assert files.hash_of({"a": 1, "b": [2]}) == files.hash_of({"b": [2], "a": 1}) != files.hash_of({"a": 1, "b": [3]})


def test_bad_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError, match=r"bad.json: not valid JSON"):
        files.read_json(tmp_path / "bad.json")
    with pytest.raises(InputError, match=r"none.json: no such file; put it there, or give another path"):
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


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_json_is_not_read_from_a_device(device: str) -> None:
    with frugal(200), pytest.raises(InputError, match=f"{device}: is a device; give a file"):
        files.read_json(Path(device))


def test_json_of_many_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(20_000_000_000)
    with (
        frugal(200),
        pytest.raises(InputError, match=r"config\.json: holds 20000\.0 MB, too many for JSON \(1000\.0 MB\);"),
    ):
        files.read_json(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["null", "[]", "5", '"x"', "true"])
def test_a_mapping_is_an_object(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=r"config\.json: expected names and values, found"):
        files.read_mapping(tmp_path / "config.json")
