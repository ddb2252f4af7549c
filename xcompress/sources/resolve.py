"""Resolve a reference to a local path: a file or folder, `wheel:name==version/path/inside`, or a hub id.

References joined by a plus are the parts of one file, such as `wheel:a==1/x.zip.001+wheel:b==1/x.zip.002`; a zip
archive is then unpacked.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from xcompress.errors import InputError
from xcompress.files import explain_read_error, hash_of, sha256_of
from xcompress.paths import as_path, cache_folder, explain_cache_errors, path_inside
from xcompress.sources.archives import join_parts, joined_name
from xcompress.sources.hub import cached_commit, from_hub
from xcompress.sources.suggestions import suggest_inside, suggest_path
from xcompress.sources.wheels import SYNTAX, from_wheel, installed, parse_wheel

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?(@\w([\w-]|[./](?![./]))*)?", re.ASCII)
"""As git, without `..` in a revision: the library writes a file of that name into its cache, or outside."""
_FILE_SUFFIX = re.compile(
    r"\.(json|jsonl|csv|tsv|txt|ya?ml|xz|gz|zip|whl|tar|bin|npy|npz|onnx|safetensors|model|pt|pth|po|mo|md)$", re.I
)
_PLUS = re.compile(r"(?<!\+)\+(?=\s*(?:wheel:|\.{0,2}/|~/))")
"""A plus between parts; a version or a path may hold one, too."""


def resolve(reference: str, sha256: str | None = None) -> Path:
    """Return the local path of a reference, fetching it if needed.

    :param reference: an existing path, `wheel:name==version/path/inside`, a hub id `org/name[@revision]`, or the parts
        of one file, joined by a plus.
    :param sha256: the digest that the file must have; for folders, use `check`.
    :raises InputError: when it does not exist, cannot be fetched, or has another digest.
    """
    path = _locate(reference.strip())
    if sha256 is not None:
        if path.is_dir():
            raise InputError(f"{reference}: is a folder, which has no sha256; pin the files inside it one by one")
        if not path.is_file():  # hashing it may never end
            raise InputError(f"{reference}: is a device or a pipe, which has no sha256; give a file")
        _check_file(path, sha256, reference)
    return path


def parts_of(reference: str) -> list[str]:
    """Return the references of the parts where a plus joins several, or the reference alone."""
    parts = [part.strip() for part in _PLUS.split(reference)]
    is_path = len(parts) > 1 and not reference.startswith("wheel:") and as_path(reference).exists()
    return [reference] if is_path else parts


def check(folder: Path, digests: Mapping[str, str], reference: str) -> None:
    """Compare files inside a folder with their pinned digests.

    :param digests: SHA-256 in hex by path relative to `folder`.
    :raises InputError: when a file is missing, differs, or is not inside the folder.
    """
    for name, sha256 in digests.items():
        if not path_inside(folder, name).is_file():
            near = suggest_inside(folder, name)
            raise InputError(f"{reference}: has no file {name!r}, whose sha256 is pinned; {near}")
        _check_file(folder / name, sha256, f"{reference}: {name}")


def fingerprint(reference: str) -> str:
    """Return a hash of local files, or the reference itself where it is not local; nothing is fetched.

    A wheel's reference names its version, and so its content.

    :raises InputError: when a local file cannot be read.
    """
    parts = parts_of(reference)
    if len(parts) > 1:
        return hash_of([fingerprint(part) for part in parts])
    path = as_path(reference)
    with explain_read_error(path):
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            return hash_of([(file.relative_to(path).as_posix(), sha256_of(file)) for file in files])
        return sha256_of(path) if path.is_file() else reference


def commit_of(reference: str) -> str | None:
    """Return the commit of a hub id in Hugging Face's cache; None if it is not there, and for other references."""
    return None if looks_like_path(reference) or is_here(reference) else cached_commit(reference)


def is_here(reference: str) -> bool:
    """Tell whether a reference resolves without fetching anything; hub ids count as not here."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return all(is_here(part) for part in parts)
    if reference.startswith("wheel:"):
        wheel = parse_wheel(reference)
        return installed(wheel) is not None or (wheel.folder / wheel.inner).exists()
    return as_path(reference).exists()


def can_be_fetched(reference: str) -> bool:
    """Tell a wheel or a hub id from a path."""
    return reference.startswith("wheel:") or not looks_like_path(reference)


def looks_like_path(reference: str) -> bool:
    """Tell a path, which may not exist, or a wheel from a hub id."""
    starts = reference.startswith((".", "/", "~", "\\")) or (os.sep != "/" and os.sep in reference)
    return starts or bool(_FILE_SUFFIX.search(reference)) or not _HUB_ID.fullmatch(reference)


def _locate(reference: str) -> Path:
    if not reference:
        raise InputError(f"an empty reference; write a path, {SYNTAX} or a hub id")
    parts = parts_of(reference)
    if len(parts) > 1:
        paths = [_locate(part) for part in parts]
        # by name, too: its suffix says how a file is read
        content = hash_of([joined_name(paths[0].name), fingerprint(reference)])
        with explain_cache_errors():
            return join_parts(paths, cache_folder() / "joined" / content, reference)
    if reference.startswith("wheel:"):
        return from_wheel(parse_wheel(reference), reference)
    path = as_path(reference)
    if path.exists():
        return path
    if looks_like_path(reference):
        raise InputError(f"{reference}: no such file or folder; {suggest_path(path)}")
    return from_hub(reference)


def _check_file(path: Path, sha256: str, reference: str) -> None:
    actual = sha256_of(path)
    if actual == sha256.lower():
        return
    # In the cache, a file is fetched again with all that was unpacked beside it.
    cache = cache_folder()
    damaged = cache.joinpath(*path.relative_to(cache).parts[:2]) if path.is_relative_to(cache) else path
    raise InputError(
        f"{reference}: sha256 is {actual} but {sha256} is pinned; "
        f"delete {damaged} if it is damaged, or correct the pin if this version is meant"
    )
