"""Bundles on the Hugging Face hub."""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xcompress.bundle.manifest import CARD, MANIFEST, is_bundle, is_plain, read_manifest
from xcompress.errors import InputError
from xcompress.files import read_json, scratch_folder, sha256_of, whole_folder
from xcompress.paths import cache_folder, explain_cache_errors
from xcompress.sources.hub import hub_snapshot

_ADVICE = "check the network, or give a released model (xcompress models) or the folder of a bundle"

_PATIENCE = 600
"""Seconds to wait for another process that copies the same bundle."""


def is_hub_bundle(reference: str) -> bool:
    """Tell a bundle on the hub from another model; only two small files are fetched, and only without a local copy.

    :param reference: hub id `org/name[@revision]`.
    :raises InputError: when there is no local copy and the hub cannot be reached.
    """

    def tells(path: Path) -> bool:
        return (path / MANIFEST).is_file() or any(path.rglob("*.safetensors"))

    # with a file that every model has: huggingface_hub 2 warns where no file matches
    return is_bundle(hub_snapshot(reference, [MANIFEST, "config.json"], tells, _ADVICE))


def bundle_from_hub(reference: str) -> Path:
    """Return a local folder with the bundle of a hub repository.

    The hub's cache consists of symbolic links into a store of its own, and a bundle may not hold links that lead out of
    it. So the files are copied into the cache of xcompress, once for each commit.

    :param reference: hub id `org/name[@revision]`; the bundle is the root of the repository.
    :raises InputError: when the repository cannot be reached, is not a bundle, or is damaged in the hub's cache.
    """
    snapshot = hub_snapshot(reference, [MANIFEST], lambda path: (path / MANIFEST).is_file(), _ADVICE)
    manifest = read_json(snapshot / MANIFEST) if (snapshot / MANIFEST).is_file() else None
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or not files or not all(is_plain(name) for name in files):
        advice = f"give a bundle, which `xcompress export {reference}` makes of a model"
        raise InputError(f"{reference}: not a bundle, its manifest.json is missing or lists no files; {advice}")

    # Graphs may be absent, see `check_bundle`; everything else must be there before the local copy counts as complete.
    def is_complete(path: Path) -> bool:
        required = [name for name in files if not name.startswith("onnx/")]
        return all((path / name).is_file() for name in required) and any(path.glob("onnx/*"))

    snapshot = hub_snapshot(reference, [MANIFEST, *files], is_complete, _ADVICE)
    if not is_complete(snapshot):
        raise InputError(f"{reference}: lacks files that its manifest.json lists; {_ADVICE}")
    # snapshots/<commit> lies in models--org--name, next to the blobs that its links point to.
    repository = snapshot.resolve().parents[1]
    folder = cache_folder() / "hub" / f"{repository.name}-{snapshot.name}"
    if not (folder / MANIFEST).is_file():
        with explain_cache_errors():
            folder.parent.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder.parent).close()  # a folder that is there may be read-only
        with scratch_folder(folder.with_name(f"{folder.name}.copy"), _PATIENCE):
            if not (folder / MANIFEST).is_file():
                _copy(files, snapshot, repository, folder)
    read_manifest(folder)
    return folder


def _copy(files: Mapping[str, Any], snapshot: Path, repository: Path, folder: Path) -> None:
    """Copy the manifest, and those of its files that the snapshot has, from the repository's part of the cache.

    :raises InputError: when a link leads out of that part, or a file is damaged, whose copy would stay so.
    """
    with whole_folder(folder) as temporary:
        for name in (MANIFEST, *files):
            file = snapshot / name
            if not file.is_file():
                continue
            if not file.resolve().is_relative_to(repository):
                raise InputError(f"{file}: a link that leads out of the hub's cache; do not use it")
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, temporary / name)
            listed = files.get(name) if name != CARD else None
            if isinstance(listed, dict) and listed.get("sha256") != sha256_of(temporary / name):
                raise InputError(f"{file}: not as manifest.json lists it; delete {repository}, then run again")
