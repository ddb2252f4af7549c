"""Check that a bundle is complete and unmodified, and that its graphs read no file outside the folder."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from xcompress.bundle.external_data import external_locations
from xcompress.bundle.manifest import CARD, EXPORT_AGAIN, HASH, MANIFEST, inside, is_plain
from xcompress.errors import InputError
from xcompress.files import explain_read_error, read_json, sha256_of
from xcompress.printable import counted
from xcompress.runtimes import GRAPH_FOLDERS

_READ_BY_LOADERS = (
    *(f"{folder}/**/*" for folder in GRAPH_FOLDERS),
    "openvino_model*",
    "tokenizer*.json",
    "*.onnx",
    "*.ort",
    "*.data",
    "*.onnx_data",
    "*.safetensors",
    "*.bin",
    "*.py",
)
"""Files that a loader may open by their names: each must be listed in the manifest."""
_GRAPH_FOLDERS = tuple(f"{folder}/" for folder in GRAPH_FOLDERS)
_PIPELINE = "config_sentence_transformers.json"


class _ListedFile(NamedTuple):
    """Size and hash of a file according to the manifest."""

    bytes: int
    sha256: str


def check_bundle(
    folder: Path, manifest: Mapping[str, Any], graph: str | None = None, *, everything: bool = False
) -> set[str]:
    """Compare a bundle with its manifest; refuse missing, changed and added files.

    In the folders of graphs only `graph` and its external data are hashed. The other files there may be absent, so
    that a bundle can be shipped with one graph; of those that exist, only the sizes are compared. All other files are
    hashed, except the model card, which people may edit.

    :param graph: path, inside the folder, of the graph to be opened.
    :param everything: require and hash every file.
    :returns: paths, inside the folder, of the files that hold external data of the graphs that were hashed.
    :raises InputError: naming the first file that differs.
    """
    files = _read_file_list(folder, manifest)
    for pattern in _READ_BY_LOADERS:
        with explain_read_error(folder):
            found = sorted(folder.glob(pattern))
        for file in found:
            name = file.relative_to(folder).as_posix()
            if name not in files and not file.name.startswith(".") and not file.is_dir():
                raise InputError(f"{file}: is not listed in manifest.json; remove it, or export the bundle again")
    optional = {name for name in files if not everything and (name.startswith(_GRAPH_FOLDERS) or name == CARD)}
    for name in sorted(files.keys() - optional):
        _check_file(folder, name, files[name])
    graphs = [name for name in files if name.endswith(".onnx")] if everything else [graph] if graph else []
    external = {file for name in graphs for file in _check_graph(folder, name, files)}
    for name in optional - {CARD}:
        if (folder / name).exists():
            _check_size(folder, name, files[name])
    _check_settings(folder, manifest)
    return external


def external_files(folder: Path, graph: str) -> set[str]:
    """Return the paths, inside the bundle, of the files that hold a graph's external data.

    :raises InputError: when one is outside the bundle.
    """
    names = set()
    for location in external_locations(folder / graph):
        name = PurePosixPath(graph).parent / location
        if not is_plain(location):
            raise InputError(f"{folder / graph}: refers to {location!r}, outside the bundle; do not use it")
        inside(folder, name.as_posix())
        names.add(name.as_posix())
    return names


def state_of(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what tells for each file in a folder whether it was changed or replaced since, without reading it.

    :returns: device, inode, size, and the times of the last changes, by name; empty where there is no such folder.
    """
    state: dict[str, tuple[int, ...]] = {}
    with suppress(OSError):
        for file in folder.iterdir():
            facts = file.stat()
            state[file.name] = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns
    return state


def _check_settings(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that the graphs are listed files and, without a hash of the manifest, that prefix and prompts are right.

    The export writes the prefix into the sentence-transformers pipeline as well, as the default prompt of its prompts.
    """
    for name in manifest.get("graphs", {}).values():
        if name not in manifest["files"]:
            raise InputError(f"{folder / MANIFEST}: graphs names {name[:80]!r}, files does not; {EXPORT_AGAIN}")
    file = folder / _PIPELINE
    if HASH in manifest or not file.is_file():
        return
    pipeline = read_json(file)
    try:
        prompt = pipeline["prompts"][pipeline["default_prompt_name"]]
    except (KeyError, TypeError):
        prompt = ""
    if prompt != manifest["prefix"]:
        raise InputError(
            f"{folder / MANIFEST}: prefix is {manifest['prefix']!r}, but {file.name} says {str(prompt)[:200]!r}; "
            f"{EXPORT_AGAIN}"
        )
    if "prompts" in manifest and not (isinstance(pipeline, dict) and pipeline.get("prompts") == manifest["prompts"]):
        raise InputError(f"{folder / MANIFEST}: its prompts are not those of {file.name}; {EXPORT_AGAIN}")


def _read_file_list(folder: Path, manifest: Mapping[str, Any]) -> dict[str, _ListedFile]:
    file = folder / MANIFEST
    if not manifest.get("files"):
        raise InputError(f"{file}: lists no files, so nothing can be checked; export the bundle again")
    listed = {}
    for name, entry in manifest["files"].items():
        size, digest = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if not isinstance(size, int) or not isinstance(digest, str):
            raise InputError(f"{file}: files: {name!r} lacks bytes (a number) or sha256 (text); {EXPORT_AGAIN}")
        inside(folder, name)
        listed[name] = _ListedFile(size, digest)
    return listed


def _check_graph(folder: Path, graph: str, files: Mapping[str, _ListedFile]) -> set[str]:
    """Check a graph itself before its references to other files are read, and then those files; return them."""
    if graph not in files:
        raise InputError(f"{folder / graph}: is not listed in manifest.json; {EXPORT_AGAIN}")
    _check_file(folder, graph, files[graph])
    external = external_files(folder, graph)
    for name in sorted(external):
        if name not in files:
            raise InputError(f"{folder / graph}: refers to {name}, which manifest.json does not list; {EXPORT_AGAIN}")
        _check_file(folder, name, files[name])
    return external


def _check_file(folder: Path, name: str, expected: _ListedFile) -> None:
    _check_size(folder, name, expected)
    with explain_read_error(folder / name):
        digest = sha256_of(folder / name)
    if digest != expected.sha256:
        raise InputError(
            f"{folder / name}: was changed (sha256 {digest[:12]}..., manifest.json says {expected.sha256[:12]}...); "
            f"{EXPORT_AGAIN}"
        )


def _check_size(folder: Path, name: str, expected: _ListedFile) -> None:
    file = inside(folder, name)
    if not file.is_file():
        raise InputError(f"{file}: no such file, but manifest.json lists it; {EXPORT_AGAIN}")
    if (size := file.stat().st_size) != expected.bytes:
        raise InputError(f"{file}: {counted(size, 'byte')}, manifest.json says {expected.bytes}; {EXPORT_AGAIN}")
