import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from xcompress.distillation.run_folder import STEP, Run, Step, open_run
from xcompress.errors import InputError
from xcompress.files import read_json, write_json

KEY = {"version": "1", "corpus": {"seed": 3}}
LINES = "a\tb\n" * 1000


def build_corpus(folder: Path) -> Mapping[str, object]:
    (folder / "train.de.tsv").write_text(LINES)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    return {"pairs": 1000}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder with a finished step."""
    assert not reach(tmp_path / "run").reused
    return tmp_path / "run"


def reach(run: Path) -> Step:
    with open_run(run) as opened:
        return opened.step("corpus", KEY, build_corpus, together=False)


def cut(folder: Path) -> None:
    (folder / "train.de.tsv").write_text(LINES[:2000])


def change(folder: Path) -> None:
    (folder / "train.de.tsv").write_text(LINES.replace("b", "c"))


def lengthen(folder: Path) -> None:
    (folder / "train.de.tsv").write_text(LINES + LINES)


def delete(folder: Path) -> None:
    (folder / "1_Pooling" / "config.json").unlink()


def empty_step(folder: Path) -> None:
    (folder / STEP).write_bytes(b"")


def foreign_step(folder: Path) -> None:
    (folder / STEP).write_text("[]")


def foreign_record(folder: Path) -> None:
    record = {"bytes": "many", "mtime_ns": 1, "sha256": None}
    write_json(folder / STEP, read_json(folder / STEP) | {"files": {"train.de.tsv": record}})


def delete_step(folder: Path) -> None:
    (folder / STEP).unlink()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (cut, "train.de.tsv is shorter than written (2000 bytes of 4000)"),
        (lengthen, "train.de.tsv is longer than written (8000 bytes of 4000)"),
        (change, "train.de.tsv has other content than written"),
        (delete, "1_Pooling/config.json is missing"),
        (empty_step, "step.json is missing or damaged"),
        (foreign_step, "step.json is missing or damaged"),
        (foreign_record, "step.json is missing or damaged"),
        (delete_step, "step.json is missing or damaged"),
        (lambda folder: (cut(folder), delete(folder)), "1_Pooling/config.json is missing, train.de.tsv is shorter"),
    ],
)
def test_a_damaged_step_is_said_and_done_again(
    run: Path, damage: Callable[[Path], None], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(run / "corpus")
    capsys.readouterr()
    assert not reach(run).reused
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith(f"corpus: {what}") and said[0].endswith("; the step is done again")
    assert (run / "corpus/train.de.tsv").read_text() == LINES
    assert reach(run).reused


def test_a_finished_step_is_hashed_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.distillation.file_records.sha256_of", lambda path: pytest.fail(f"hashed {path}"))
    assert reach(run).reused


def test_a_copied_run_is_hashed_once_and_reused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = run.with_name("copy")
    shutil.copytree(run, copy, copy_function=shutil.copyfile)
    os.utime(copy / "corpus/train.de.tsv", (1_000_000_000, 1_000_000_000))
    assert reach(copy).reused
    assert read_json(copy / "corpus" / STEP)["files"]["train.de.tsv"]["mtime_ns"] == 10**18
    monkeypatch.setattr("xcompress.distillation.file_records.sha256_of", lambda path: pytest.fail(f"hashed {path}"))
    assert reach(copy).reused


def test_a_file_that_cannot_be_read_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(path: Path) -> str:
        raise OSError(5, "Input/output error")

    os.utime(run / "corpus/train.de.tsv", (1, 1))
    with monkeypatch.context() as patched:
        patched.setattr("xcompress.distillation.file_records.sha256_of", unreadable)
        with open_run(run) as opened:
            assert not opened._can_reuse("corpus", KEY)
    assert "corpus: train.de.tsv cannot be read (Input/output error); the step" in capsys.readouterr().err


def test_files_that_were_added_do_no_harm(run: Path) -> None:
    (run / "corpus" / "notes.txt").write_text("mine")
    assert reach(run).reused


def test_a_step_that_another_worker_would_build_otherwise_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "xcompress.distillation.distributed.all_gather_object", lambda key: [key, key | {"teacher": "other"}]
    )
    with open_run(run) as opened, pytest.raises(InputError, match=r"^labelled: teacher not the same for all workers"):
        opened.step("labelled", {"teacher": "one", "seed": 1}, lambda _: pytest.fail("it was built"))


@pytest.mark.parametrize("name", ["x" * 256, "file/run", "~nosuchuser", os.fsdecode(b"bad\xff")])
def test_a_folder_that_cannot_be_a_run_is_one_line(name: str, working_folder: Path) -> None:
    Path("file").touch()
    with pytest.raises(InputError, match=r"^[^\n]*(cannot be written|~ is not replaced|not UTF-8)[^\n]*$"):
        reach(Path(name))
    assert [path.name for path in working_folder.iterdir()] == ["file"]


def test_a_step_inside_another_one_is_built_once_and_its_time_counts_once(tmp_path: Path) -> None:
    built = []

    def build_outer(opened: Run, folder: Path) -> Mapping[str, object]:
        steps = [opened.step("inner", KEY, lambda _: built.append(time.sleep(0.3)) or {}) for _ in range(2)]
        assert steps[0] is steps[1]
        return {}

    with open_run(tmp_path / "run") as opened:
        for name in ("first", "second"):
            opened.step(name, KEY, partial(build_outer, opened))
    assert [step.name for step in opened.steps] == ["inner", "first", "second"] and len(built) == 1
    assert opened.steps[0].seconds >= 0.3 > opened.steps[1].seconds


@pytest.mark.parametrize("name", ["corpus/mine.txt", "recipe.yaml", "student/model.safetensors"])
def test_a_folder_of_other_files_is_no_run(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="is not empty and not a run; choose another --run"), open_run(tmp_path):
        pytest.fail("opened")
    assert (tmp_path / name).read_text() == "mine" and not (tmp_path / ".lock").exists()


def test_vectors_of_another_run_may_be_copied_first(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    assert not reach(tmp_path).reused


def test_a_run_is_not_finished_while_a_step_is_built_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(run / "manifest.json", {"finished": "now"})
    assert reach(run).reused and (run / "manifest.json").exists()
    old = run / "work" / "corpus-of-other-settings"
    old.mkdir(parents=True)
    with pytest.raises(OSError), open_run(run) as opened:
        opened.step("corpus", {"version": "2"}, lambda _: (_ for _ in ()).throw(OSError()), together=False)
    assert not (run / "manifest.json").exists()
    assert not old.exists() and "corpus: checkpoints of other settings are removed" in capsys.readouterr().err
