import errno
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from xcompress.errors import InputError
from xcompress.sources import commit_of, hub, resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NO_FILES = SimpleNamespace(siblings=None)
MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


def stand_in(monkeypatch: pytest.MonkeyPatch, snapshot: object, info: object = lambda *_, **__: NO_FILES) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", info)


def raising(error: Exception) -> object:
    def call(*_: object, **__: object) -> str:
        raise error

    return call


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, raising(OSError("cached?\nno")), raising(ConnectionError("line\nline")))
    with pytest.raises(InputError, match="could not be reached") as error:
        resolve("org/name")
    assert "\n" not in str(error.value) and "recipes/minilm_ru3.yaml" in str(error.value)


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EACCES, "denied", "hub/models--org--name"), OSError(errno.ENOSPC, "disk full")]
)
def test_a_cache_of_the_hub_that_cannot_be_written_is_no_fault_of_the_network(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, raising(error))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "cache/hub")
    with pytest.raises(InputError) as caught:
        resolve("org/name")
    assert str(caught.value) == (
        f"org/name: cannot be written to cache/hub ({error.strerror}); free space there, or set HF_HOME "
        "(or HF_HUB_CACHE where that is set) to another folder"
    )


def test_a_silent_network_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    stand_in(monkeypatch, raising(OSError()), lambda *_, **__: release.wait(30))
    monkeypatch.setattr(hub, "SECONDS", 0.2)
    start = time.monotonic()
    with pytest.raises(InputError, match="no answer"):
        resolve("org/name")
    release.set()
    assert time.monotonic() - start < 5


def write_snapshot(folder: Path) -> None:
    (folder / "1_Pooling").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"):
        (folder / name).write_text("{}")
    modules = [{"path": path, "type": f"models.{kind}"} for path, kind in MODULES.items()]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize("missing", ["modules.json", "1_Pooling/config.json", "tokenizer.json"])
def test_a_snapshot_that_another_library_fetched_in_part_is_completed_where_the_hub_is_reached(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_snapshot(tmp_path)
    (tmp_path / missing).unlink()
    asked: list[bool] = []
    stand_in(monkeypatch, lambda *_, local_files_only, **__: [asked.append(local_files_only), str(tmp_path)][1])
    assert resolve("org/name") == tmp_path
    assert asked == [True, False]
    stand_in(monkeypatch, lambda *_, **__: str(tmp_path), raising(ConnectionError()))
    assert resolve("org/name") == tmp_path
    assert "org/name: files may be missing from the local copy" in " ".join(capsys.readouterr().err.split())


def test_a_cached_snapshot_is_used_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_snapshot(tmp_path)
    stand_in(monkeypatch, lambda *_, local_files_only, **__: str(tmp_path), raising(AssertionError("went online")))
    assert resolve("org/name@main") == tmp_path


def test_a_copy_without_all_files_of_the_repository_is_used_without_a_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", raising(AssertionError("went online")))
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "refs", repository / "trees"):
        folder.mkdir(parents=True)
    (repository / "refs/main").write_text(COMMIT)
    write_snapshot(snapshot)
    # as snapshot_download leaves it since huggingface_hub 1.22: patterns chose other files than xcompress reads
    listed = {name: {"size": 2, "blob_id": "0" * 40} for name in ("config.json", "extra.json", "model.onnx")}
    (repository / "trees" / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": listed}))
    assert resolve("org/name") == snapshot
    assert [commit_of("org/name"), commit_of(f"org/name@{COMMIT}"), commit_of("org/other")] == [COMMIT, COMMIT, None]


def test_a_partial_snapshot_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def snapshot(*_: object, local_files_only: bool, **__: object) -> str:
        (tmp_path / "config.json").write_text("{}")
        if not local_files_only:
            (tmp_path / "model.safetensors").write_text("")
        return str(tmp_path)

    stand_in(monkeypatch, snapshot)
    assert resolve("org/name") == tmp_path


def test_a_model_without_safetensors_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    stand_in(monkeypatch, lambda *_, **__: str(tmp_path))
    with pytest.raises(InputError, match="safetensors"):
        resolve("org/name")


def test_large_files_are_fetched_where_ctrl_c_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    sizes = {"tokenizer.json": 200_000, "config.json": 9_000, "model.bin": 2_000_000, "onnx/a.json": 2_000_000}
    siblings = [SimpleNamespace(rfilename=name, size=size) for name, size in {**sizes, "b.json": None}.items()]
    stand_in(monkeypatch, raising(FileNotFoundError()), lambda *_, **__: SimpleNamespace(siblings=siblings, sha=COMMIT))
    threads: list[tuple[str, str, threading.Thread]] = []

    def download(_: str, name: str, *, revision: str, **__: object) -> None:
        threads.append((name, revision, threading.current_thread()))
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    with pytest.raises(KeyboardInterrupt):
        resolve("org/name")
    assert threads == [("tokenizer.json", COMMIT, threading.main_thread())]
