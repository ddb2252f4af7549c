"""A bundle on the hub: the copy in the hub's cache, a download, and what is refused."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub.constants
import numpy as np
import pytest
from typer.testing import CliRunner

from tests.helpers.student import SENTENCES, bundle, change_manifest, save_student
from xcompress import Bundle
from xcompress.bench.subjects import find_subjects
from xcompress.bundle.encoder import Encoder
from xcompress.bundle.hub import bundle_from_hub
from xcompress.bundle.released import find_bundle
from xcompress.cli.main import app
from xcompress.errors import InputError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache of org/name, still empty; the cache of xcompress is empty, too."""
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "xcompress"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub" / "models--org--name"


def fill(repository: Path, source: Path) -> Path:
    """Lay out files as the hub's cache does: a snapshot of links to blobs."""
    snapshot = repository / "snapshots" / COMMIT
    (repository / "refs").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(file for file in source.rglob("*") if file.is_file())):
        link = snapshot / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, repository / "blobs" / str(number))
        link.symlink_to(Path(*[".."] * (len(link.relative_to(repository).parts) - 1), "blobs", str(number)))
    return snapshot


def replace_hub(monkeypatch: pytest.MonkeyPatch, snapshot: Callable[..., str]) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", lambda *_, **__: SimpleNamespace(siblings=None))


def test_the_hubs_own_copy_is_used_without_a_network(repository: Path, tmp_path: Path) -> None:
    fill(repository, bundle())

    def unreachable(*_: object, **__: object) -> None:
        raise AssertionError("went online")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.HfApi, "repo_info", unreachable)
        for reference in ("org/name", "org/name@main", f"org/name@{COMMIT}"):
            vectors = Encoder.from_pretrained(reference, threads=1).encode(SENTENCES)
    np.testing.assert_array_equal(vectors, Encoder(bundle(), threads=1).encode(SENTENCES))
    copies = list((tmp_path / "xcompress" / "hub").iterdir())
    assert [folder.name for folder in copies] == [f"models--org--name-{COMMIT}"]
    assert not any(file.is_symlink() for file in copies[0].rglob("*"))
    assert [find_bundle("org/name"), Bundle.open("org/name").folder] == [copies[0]] * 2


def test_a_command_takes_a_hub_id(repository: Path) -> None:
    fill(repository, bundle())
    done = CliRunner().invoke(app, ["embed", "rain", "--json", "--model", "org/name"])
    np.testing.assert_allclose(json.loads(done.stdout)["vector"], Encoder(bundle()).encode("rain"), atol=1e-5)


def test_a_bench_takes_the_hub_id_of_a_bundle(repository: Path, tmp_path: Path) -> None:
    fill(repository, bundle())
    found = find_subjects(["mine=org/name"], "base=org/name@main")
    copy = tmp_path / "xcompress" / "hub" / f"models--org--name-{COMMIT}"
    assert [one.name for one in found.subjects] == ["base", "mine, ONNX fp32", "mine, ONNX int8"]
    assert {one.source for one in found.subjects} == {str(copy)}
    assert [one.folder for one in found.bundles] == [copy]


def test_a_bench_takes_the_hub_id_of_a_student_without_a_network(repository: Path, tmp_path: Path) -> None:
    snapshot = fill(repository, save_student(tmp_path / "student"))
    (subject,) = find_subjects(["org/name"]).subjects
    assert (subject.kind, subject.source, subject.broken) == ("pytorch", str(snapshot), None)


def test_a_hub_id_that_cannot_be_reached_fails_one_subject_alone(repository: Path) -> None:
    found = find_subjects([str(bundle()), "org/name"])
    assert [bool(one.broken) for one in found.subjects] == [False, True]
    assert "org/name: no such local path, and as a hub id it could not be reached" in str(found.subjects[1].broken)


def test_a_folder_is_no_hub_id(repository: Path, tmp_path: Path) -> None:
    fill(repository, bundle())
    assert find_bundle(Path("org/name")) == Path("org/name")
    assert find_bundle("runs/absent/bundle") == Path("runs/absent/bundle")
    (tmp_path / "org").mkdir()
    assert find_bundle("org/name") == Path("org/name"), "the folder is misspelt"


def test_a_bundle_with_one_graph_is_complete(repository: Path, bundle_copy: Path) -> None:
    (bundle_copy / "onnx/model.onnx").unlink()
    fill(repository, bundle_copy)
    assert Encoder.from_pretrained("org/name").precision == "int8"


def test_only_listed_files_are_downloaded(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    snapshot = fill(repository, bundle())
    patterns: list[list[str]] = []

    def download(*_: object, allow_patterns: list[str], local_files_only: bool, **__: object) -> str:
        if local_files_only:
            raise FileNotFoundError
        patterns.append(allow_patterns)
        return str(snapshot)

    replace_hub(monkeypatch, download)
    assert bundle_from_hub("org/name").is_relative_to(tmp_path / "xcompress")
    assert patterns[0] == ["manifest.json"]
    assert {"manifest.json", "tokenizer.json", "onnx/model.onnx"} <= set(patterns[1])


def test_without_a_network_the_error_is_one_line(repository: Path) -> None:
    with pytest.raises(InputError, match=r"org/name: .*could not be reached .*check the network, or give a") as error:
        Encoder.from_pretrained("org/name")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("files", [None, [], {}, {"../../secret": {}}], ids=str)
def test_a_repository_that_is_no_bundle_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch, bundle_copy: Path, files: object
) -> None:
    change_manifest(bundle_copy, files=files)
    if files is None:
        (bundle_copy / "manifest.json").unlink()
    replace_hub(monkeypatch, lambda *_, **__: str(bundle_copy))
    advice = "give a bundle, which `xcompress export org/name` makes of a model"
    with pytest.raises(InputError, match=rf"org/name: (not a bundle, .*; {advice}$|lacks files)"):
        Encoder.from_pretrained("org/name")
    assert not (repository.parents[1] / "xcompress").exists()


def test_files_that_are_missing_on_the_hub_are_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch, bundle_copy: Path
) -> None:
    (bundle_copy / "config.json").unlink()
    replace_hub(monkeypatch, lambda *_, **__: str(bundle_copy))
    with pytest.raises(InputError, match=r"org/name: lacks files that its manifest\.json lists"):
        Encoder.from_pretrained("org/name")


def test_a_link_out_of_the_hubs_cache_is_refused(repository: Path, tmp_path: Path) -> None:
    snapshot = fill(repository, bundle())
    (tmp_path / "secret").write_text("{}")
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match=r"config\.json: a link that leads out of the hub's cache"):
        Encoder.from_pretrained("org/name")
    assert not any((tmp_path / "xcompress" / "hub").glob("*"))


def test_a_cache_that_cannot_be_written_is_named_with_its_variable(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(repository, bundle())
    (tmp_path / "file").touch()
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="set XCOMPRESS_CACHE to another folder"):
        Encoder.from_pretrained("org/name")


def test_a_read_only_folder_of_the_cache_is_named_with_its_variable(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(repository, bundle())
    folder = tmp_path / "xcompress" / "hub"
    folder.mkdir(parents=True)
    system_open = os.open

    def read_only(path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR) and Path(path).is_relative_to(folder):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return system_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", read_only)  # a folder's permissions do not stop root
    with pytest.raises(InputError, match=r"\(Permission denied\); set XCOMPRESS_CACHE to another folder"):
        Encoder.from_pretrained("org/name")


@pytest.mark.parametrize("name", ["config.json", "onnx/model.onnx"])
def test_a_damaged_file_is_refused_until_it_is_whole(repository: Path, name: str) -> None:
    snapshot = fill(repository, bundle())
    blob = (snapshot / name).resolve()
    whole = blob.read_bytes()
    blob.write_bytes(whole[:-1] + b" ")
    with pytest.raises(InputError, match=rf"{name}: not as manifest\.json lists it; delete .*models--org--name, then"):
        Encoder.from_pretrained("org/name")
    blob.write_bytes(whole)
    assert Encoder.from_pretrained("org/name").encode(SENTENCES).shape[0] == len(SENTENCES)


def test_a_model_card_may_be_edited(repository: Path) -> None:
    snapshot = fill(repository, bundle())
    (snapshot / "README.md").resolve().write_text("mine")
    assert (Encoder.from_pretrained("org/name").folder / "README.md").read_text() == "mine"
