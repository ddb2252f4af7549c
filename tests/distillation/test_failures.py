import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.recipe import FROM_SCRATCH, stages_of, write_recipe
from xcompress.distillation import failures
from xcompress.distillation.failures import explain_failures
from xcompress.distillation.pipeline import distill
from xcompress.errors import InputError, XCompressError
from xcompress.files import sha256_of
from xcompress.recipe import load_recipe


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        RuntimeError("PytorchStreamWriter failed writing file data/3: file write failed"),
        Exception('Error while serializing: I/O error: Os { code: 28, message: "No space left on device" }'),
    ],
)
def test_a_full_disk_is_one_line(error: Exception, tmp_path: Path) -> None:
    with (
        pytest.raises(
            XCompressError, match=r"disk or quota is full .*; free space, then run the same command"
        ) as raised,
        explain_failures(tmp_path),
    ):
        raise error
    assert str(raised.value).startswith(str(tmp_path)) and raised.value.exit_code == 1


def test_the_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    with pytest.raises(XCompressError, match=r"^/data/checkpoint: cannot be written"), explain_failures(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device", "/data/checkpoint")


def test_a_lost_worker_is_one_line_where_there_are_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3")
    with pytest.raises(RuntimeError, match="gloo"), explain_failures(tmp_path):
        raise lost
    monkeypatch.setattr(failures.distributed, "world_size", lambda: 2)
    with pytest.raises(XCompressError, match=r"^worker 0 of 2: another worker has ended"), explain_failures(tmp_path):
        raise lost


@pytest.mark.parametrize("error", [InputError("recipe: wrong"), KeyError("name"), OSError(errno.EACCES, "denied")])
def test_other_errors_pass(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as raised, explain_failures(tmp_path):
        raise error
    assert raised.value is error


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_run_on_a_full_disk_stops_with_one_line_and_goes_on_when_there_is_space(
    small_disk: Path, tmp_path: Path
) -> None:
    # Make the run on a large disk, and its first steps on the small one.
    stage = stages_of(align="objectives: {alignment: 1}, steps: 20")
    recipe = load_recipe(write_recipe(tmp_path / "recipe"), [*FROM_SCRATCH, stage])
    whole, folder = distill(recipe, tmp_path / "whole"), small_disk / "run"
    for name in ("corpus", "start"):
        shutil.copytree(whole / name, folder / name)

    # Leave less than the second checkpoint needs.
    filler = small_disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(small_disk).free - 600_000))
    with pytest.raises(XCompressError, match="cannot be written"):
        distill(recipe, folder)
    assert not (folder / "1-align").exists() and not (folder / "manifest.json").exists()

    filler.unlink()
    distill(recipe, folder)
    assert sha256_of(folder / "student/model.safetensors") == sha256_of(whole / "student/model.safetensors")
