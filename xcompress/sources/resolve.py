"""A reference becomes a local path: a file or folder, `wheel:name==version/path/inside`, or a hub id.

References joined by a plus are the pieces of one file, such as `wheel:a==1/x.zip.001+wheel:b==1/x.zip.002`; a zip
archive is then unpacked.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from xcompress.errors import InputError
from xcompress.files import hash_of, sha256_of
from xcompress.sources.archives import joined
from xcompress.sources.hub import from_hub
from xcompress.sources.paths import cache_folder, cache_written, near, near_path
from xcompress.sources.wheels import SYNTAX, from_wheel, installed, parse_wheel

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@[\w./-]+)?", re.ASCII)
_FILE_SUFFIX = re.compile(
    r"\.(json|jsonl|csv|tsv|txt|ya?ml|xz|gz|zip|whl|tar|bin|npy|npz|onnx|safetensors|model|pt|pth|po|mo|md)$", re.I
)
_PLUS = re.compile(r"(?<!\+)\+(?=\s*(?:wheel:|\.{0,2}/|~/))")
"""Between pieces: a version or a path may hold a plus, too."""


def resolve(reference: str, sha256: str | None = None) -> Path:
    """Turn a reference into a local path, fetching what is not here yet.

    :param reference: an existing path, `wheel:name==version/path/inside`, a hub id `org/name[@revision]`, or the pieces
        of one file, joined by a plus.
    :param sha256: the digest that the file must have; folders take `check` instead.
    :raises InputError: when there is no such thing, it cannot be fetched, or its digest is another one.
    """
    path = _locate(reference.strip())
    if sha256 is not None:
        if path.is_dir():
            raise InputError(f"{reference}: is a folder, which has no sha256; pin the files inside it one by one")
        _check_file(path, sha256, reference)
    return path


def parts_of(reference: str) -> list[str]:
    """Return the references of the pieces where a reference joins several by a plus, else the reference alone."""
    parts = [part.strip() for part in _PLUS.split(reference)]
    is_path = len(parts) > 1 and not reference.startswith("wheel:") and _local(reference).exists()
    return [reference] if is_path else parts


def check(path: Path, digests: Mapping[str, str], reference: str) -> None:
    """Compare files inside a folder with their pinned digests.

    :param digests: SHA-256 in hex by path relative to `path`.
    :raises InputError: when a file is missing or differs.
    """
    for name, sha256 in digests.items():
        if not (path / name).is_file():
            raise InputError(f"{reference}: has no file {name!r}, whose sha256 is pinned; {near(path, name)}")
        _check_file(path / name, sha256, f"{reference}: {name}")


def fingerprint(reference: str) -> str:
    """Return what stands for the content of a reference: a hash of local files, else the reference itself.

    Nothing is fetched: a wheel's reference names its version.
    """
    parts = parts_of(reference)
    if len(parts) > 1:
        return hash_of([fingerprint(part) for part in parts])
    path = _local(reference)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return hash_of([(file.relative_to(path).as_posix(), sha256_of(file)) for file in files])
    return sha256_of(path) if path.is_file() else reference


def is_here(reference: str) -> bool:
    """Tell whether a reference can be resolved without fetching anything; hub ids count as not here."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return all(is_here(part) for part in parts)
    if reference.startswith("wheel:"):
        wheel = parse_wheel(reference)
        return installed(wheel) is not None or (wheel.folder / wheel.inner).exists()
    return _local(reference).exists()


def can_be_fetched(reference: str) -> bool:
    """Tell a wheel or a hub id from a path."""
    return reference.startswith("wheel:") or not looks_like_path(reference)


def _check_file(path: Path, sha256: str, reference: str) -> None:
    actual = sha256_of(path)
    if actual != sha256.lower():
        raise InputError(
            f"{reference}: sha256 is {actual} but {sha256} is pinned; "
            f"delete {_unit(path)} if it is damaged, or correct the pin if this version is meant"
        )


def _unit(path: Path) -> Path:
    """Return what is fetched again as a whole: what was unpacked in the cache, if the file is in it, else the file."""
    cache = cache_folder()
    return cache.joinpath(*path.relative_to(cache).parts[:2]) if path.is_relative_to(cache) else path


def _locate(reference: str) -> Path:
    if not reference:
        raise InputError(f"an empty reference; write a path, {SYNTAX} or a hub id")
    parts = parts_of(reference)
    if len(parts) > 1:
        return _from_pieces(parts, reference)
    if reference.startswith("wheel:"):
        return from_wheel(parse_wheel(reference), reference)
    path = _local(reference)
    if path.exists():
        return path
    if looks_like_path(reference):
        raise InputError(f"{reference}: no such file or folder; {near_path(path)}")
    return from_hub(reference)


def _from_pieces(parts: list[str], reference: str) -> Path:
    pieces = [_locate(part) for part in parts]
    with cache_written():
        return joined(pieces, cache_folder() / "joined" / fingerprint(reference), reference)


def _local(reference: str) -> Path:
    try:
        path = Path(reference).expanduser()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{reference}: cannot be read as a path ({error})") from error
    return path


def looks_like_path(reference: str) -> bool:
    """Tell a path, which may not exist, from a hub id."""
    starts = reference.startswith((".", "/", "~", "\\")) or (os.sep != "/" and os.sep in reference)
    return starts or bool(_FILE_SUFFIX.search(reference)) or not _HUB_ID.fullmatch(reference)
