import errno
import gzip
import io
import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.files import digest, zipped
from tests.helpers.limits import frugal
from xcompress import sources
from xcompress.errors import InputError
from xcompress.sources import check, fingerprint, parts_of, resolve
from xcompress.sources.archives import unpack

pytestmark = pytest.mark.usefixtures("empty_cache")


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
    for reference in (
        "org/base-en-v1.5",
        "org/name@v1.0",
        "org/name@refs/pr/1",
        f"org/name@{'0' * 40}",
        "a@my-branch_2",
    ):
        assert not sources.looks_like_path(reference)
    for revision in ("../../x", "a..b", "/tmp/x", "a//x", "a/.x", "", "a b"):
        assert sources.looks_like_path(f"org/name@{revision}"), "git knows none of this name"


@pytest.mark.parametrize(
    "reference", ["wheel:shop", "wheel:shop>=1.0/x", "wheel:--index==1/x", "wheel:shop==1.0/../x", ""]
)
def test_malformed_references(reference: str) -> None:
    with pytest.raises(InputError):
        resolve(reference)


def test_sha256_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(InputError, match="folder"):
        resolve(str(tmp_path), digest(b"x"))
    check(tmp_path, {"a": digest(b"x").upper()}, "ref")
    with pytest.raises(InputError, match=r"ref: a: sha256 is"):
        check(tmp_path, {"a": digest(b"y")}, "ref")
    with pytest.raises(InputError, match="no file 'b'"):
        check(tmp_path, {"b": digest(b"y")}, "ref")


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
    tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"model/config.json": b"{}", "model/1_Pooling/config.json": b"pooling"}
    reference = in_pieces(tmp_path / "parts", zipped(files))
    folder = resolve(reference)
    assert folder.name == "model" and folder.is_relative_to(empty_cache / "joined")
    assert {name: (folder.parent / name).read_bytes() for name in files} == files
    assert [path.suffix for path in (empty_cache / "joined").iterdir() if path != folder.parent] == [".lock"]
    monkeypatch.setattr("xcompress.sources.archives.unpack", lambda *_: pytest.fail("unpacked again"))
    assert resolve(reference) == folder
    check(folder, {"config.json": digest(b"{}")}, reference)


def test_pieces_of_another_file_are_put_together(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789", "e5.bin")
    file = resolve(reference, digest(b"0123456789"))
    assert (file.name, file.read_bytes()) == ("e5.bin", b"0123456789")
    with pytest.raises(InputError, match="sha256 is"):
        resolve(reference, digest(b"other"))


def test_pieces_that_were_renamed_have_their_new_name(tmp_path: Path) -> None:
    """The suffix says how a file is read: the first name may have been a mistake."""
    packed = gzip.compress(b"text")
    assert resolve(in_pieces(tmp_path / "parts", packed, "text")).name == "text"
    assert resolve(in_pieces(tmp_path / "renamed", packed, "text.gz")).name == "text.gz"


def test_the_fingerprint_of_pieces_follows_each(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789")
    before, first = fingerprint(reference), resolve(reference).read_bytes()
    (tmp_path / "parts" / "model.zip.003").write_bytes(b"changed")
    assert fingerprint(reference) != before
    assert (first, resolve(reference).read_bytes()) == (b"0123456789", b"012345changed")


def test_a_piece_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(sys.modules[fingerprint.__module__], "sha256_of", refuse)
    with pytest.raises(InputError, match=r"model\.zip\.001: cannot be read \(Permission denied\); correct its perm"):
        resolve(in_pieces(tmp_path / "parts", b"0123456789"))


def test_a_missing_piece_and_a_folder_among_pieces(tmp_path: Path) -> None:
    reference = in_pieces(tmp_path / "parts", b"0123456789")
    with pytest.raises(InputError, match=r"model\.zip\.004: no such file"):
        resolve(f"{reference}+{tmp_path}/parts/model.zip.004")
    with pytest.raises(InputError, match="parts is a folder, only files can be joined"):
        resolve(f"{reference}+{tmp_path}/parts")


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "C:/evil"])
def test_a_joined_archive_stays_in_its_folder(name: str, tmp_path: Path, empty_cache: Path) -> None:
    reference = in_pieces(tmp_path / "parts", zipped({"model/config.json": b"{}", name: b"evil"}))
    with pytest.raises(InputError, match=r"zip archive holds .*evil', which leaves its folder"):
        resolve(reference)
    assert not [path for path in empty_cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_joined_archive_holds_no_folders_that_python_cannot_remove(tmp_path: Path, empty_cache: Path) -> None:
    archive = zipped({"a/" * depth: b"" for depth in range(50, 1500, 50)})
    with pytest.raises(InputError, match="zip archive holds over 100 folders in each other; do not use it"):
        resolve(in_pieces(tmp_path / "parts", archive))
    assert [path.suffix for path in (empty_cache / "joined").iterdir()] == [".lock"]


def test_devices_and_pipes_have_no_digest(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/zero", str(tmp_path / "pipe")):
        with frugal(), pytest.raises(InputError, match=f"{name}: is a device or a pipe, which has no sha256; give a"):
            resolve(name, digest(b""))


def test_a_joined_archive_holds_no_links(tmp_path: Path, empty_cache: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        entry = zipfile.ZipInfo("model/weights")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(InputError, match="holds a link, 'model/weights'"):
        resolve(in_pieces(tmp_path / "parts", stream.getvalue()))
    assert not list(empty_cache.rglob("weights"))


def test_a_damaged_joined_archive_leaves_nothing(tmp_path: Path, empty_cache: Path) -> None:
    data = zipped({"model/config.json": b"settings"}).replace(b"settings", b"sEttings", 1)
    with pytest.raises(InputError, match=r"not a readable zip archive"):
        resolve(in_pieces(tmp_path / "parts", data))
    assert [path.suffix for path in (empty_cache / "joined").iterdir()] == [".lock"]


def test_an_archive_that_asks_for_gigabytes_of_memory_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("weights", b"hello" * 100)
    data = bytearray(stream.getvalue())
    properties = data.index(b"\x09\x04\x05\x00")  # version and size, then the properties: a byte, the dictionary's size
    data[properties + 5 : properties + 9] = b"\xff\xff\xff\xff"
    (tmp_path / "x.zip").write_bytes(data)
    with frugal(), pytest.raises(InputError, match=r"x\.zip is not a readable zip archive \(MemoryError\); fetch it"):
        unpack(tmp_path / "x.zip", tmp_path / "out", "x")


def test_only_files_inside_a_folder_are_compared_with_pins(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "model" / "link").symlink_to("../secret")
    for name in ("../secret", str(tmp_path / "secret"), "link"):
        with pytest.raises(InputError, match=r"not a path inside the folder|a link that leads out of the folder"):
            check(tmp_path / "model", {name: digest(b"x")}, "model")
