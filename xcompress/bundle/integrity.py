"""Whether a folder is the bundle that was exported: whole, unchanged, and reading nothing but itself."""

from collections.abc import Mapping
from json import loads
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

from xcompress.bundle.external_data import external_locations
from xcompress.errors import InputError
from xcompress.files import sha256_of

FORMAT = 1
"""Newest manifest format that is read."""
MANIFEST = "manifest.json"
GRAPHS = {"int8": "onnx/model_quantized.onnx", "fp32": "onnx/model.onnx"}
"""Graphs by precision where the manifest does not name them."""

_AGAIN = "export the bundle again, or copy it again"
_NEEDED = {"format": int, "dimension": int, "prefix": str, "max_tokens": int, "pad_token_id": int}
_OPTIONAL = {"files": dict, "graphs": dict, "languages": list, "precision": str, "target": str, "vocab_size": int}
_KINDS = {int: "a whole number", str: "text", dict: "a mapping", list: "a list"}
_LEAST = {"format": 1, "dimension": 1, "max_tokens": 1, "pad_token_id": 0}
_READ_BY_LOADERS = ("onnx/**/*", "tokenizer*.json", "*.onnx", "*.ort", "*.data", "*.onnx_data")
"""What a loader may pick up by its name; a file of such a name must be listed."""
_FOR_PEOPLE = "README.md"
"""The model card: no code reads it, and its owner may edit it."""


class _Listed(NamedTuple):
    """What the manifest says about a file."""

    bytes: int
    sha256: str


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a bundle's manifest and check the kind of what this version uses.

    :raises InputError: when there is none, or it cannot be one of a bundle.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a bundle that `xcompress export` made")
    if not (folder / MANIFEST).is_file():
        raise InputError(f"{folder}: no manifest.json here; give a bundle that `xcompress export` made")
    file = inside(folder, MANIFEST)
    try:
        manifest = loads(file.read_bytes())
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); correct its permissions") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not valid JSON ({_one_line(error)}); {_AGAIN}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{file}: holds {type(manifest).__name__}, not a mapping; {_AGAIN}")
    _check_kinds(file, manifest)
    return manifest


def graphs_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Map each precision to its graph's path inside the folder, for the graphs that are there.

    :raises InputError: when the manifest names a graph outside the folder.
    """
    named = manifest.get("graphs", GRAPHS)
    return {precision: name for precision, name in named.items() if inside(folder, name).is_file()}


def check_bundle(
    folder: Path, manifest: Mapping[str, Any], graph: str | None = None, *, everything: bool = False
) -> None:
    """Compare a bundle with its manifest; refuse what was cut off, changed, exchanged or put there.

    Of the files in onnx/, the graph that is to be opened and its external data are hashed; the others may be absent,
    so that a bundle can be shipped with one graph, and only their sizes are compared. All other files are hashed,
    save the model card, which people may edit.

    :param graph: path of the graph that is to be opened, inside the folder.
    :param everything: hash every file, and let none be absent.
    :raises InputError: with the name of the first file that is not as it should be.
    """
    listed = _listed(folder, manifest)
    _refuse_unlisted(folder, listed)
    others = {name for name in listed if name.startswith("onnx/") or name == _FOR_PEOPLE}
    for name in sorted(listed.keys() - (set() if everything else others)):
        _check_file(folder, name, listed[name])
    graphs = [name for name in listed if name.endswith(".onnx")] if everything else [graph] if graph else []
    for name in graphs:
        _check_graph(folder, name, listed)
    if not everything:
        _check_sizes(folder, {name: listed[name] for name in others - {_FOR_PEOPLE}})


def external_files(folder: Path, graph: str) -> set[str]:
    """Return the paths, inside the bundle, of the files that hold a graph's external data.

    :raises InputError: when one is outside the bundle.
    """
    names = set()
    for location in external_locations(folder / graph):
        name = PurePosixPath(graph).parent / location
        if not _is_plain(location):
            raise InputError(f"{folder / graph}: wants to read {location!r}, outside the bundle; do not use it")
        inside(folder, name.as_posix())
        names.add(name.as_posix())
    return names


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file in the folder.

    :param name: path inside the folder, parts separated by /.
    :raises InputError: when the name, or a link that it meets, leads out of the folder.
    """
    if not _is_plain(name):
        raise InputError(f"{folder / MANIFEST}: names {name!r}, outside the bundle; do not use it")
    try:
        real, home = (folder / name).resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle are a RuntimeError
        raise InputError(f"{folder / name}: cannot be followed ({_one_line(error)}); {_AGAIN}") from error
    if not real.is_relative_to(home):
        raise InputError(f"{folder / name}: a link that leads out of the bundle; copy the file itself here")
    return folder / name


def _is_plain(name: str) -> bool:
    """Tell whether a name can only mean a place below the folder, on any system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    climbs = ".." in windows.parts or posix.is_absolute() or bool(windows.anchor)
    return name.isprintable() and not climbs and posix.as_posix() == name and name not in ("", ".")


def _check_kinds(file: Path, manifest: Mapping[str, Any]) -> None:
    missing = [key for key in _NEEDED if key not in manifest]
    if missing:
        raise InputError(f"{file}: lacks {', '.join(missing)}; export the bundle again")
    for key, kind in (_NEEDED | _OPTIONAL).items():
        value = manifest.get(key)
        if key in manifest and (not isinstance(value, kind) or isinstance(value, bool)):
            raise InputError(f"{file}: {key} is {type(value).__name__}, not {_KINDS[kind]}; {_AGAIN}")
    for key, least in _LEAST.items():
        if manifest[key] < least:
            raise InputError(f"{file}: {key} is {manifest[key]}, less than {least}; {_AGAIN}")
    if manifest["format"] > FORMAT:
        raise InputError(f"{file}: format {manifest['format']}, this version reads {FORMAT}; upgrade xcompress")
    texts = [*manifest.get("graphs", {}).values(), *manifest.get("languages", [])]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{file}: graphs and languages must hold text only; {_AGAIN}")


def _listed(folder: Path, manifest: Mapping[str, Any]) -> dict[str, _Listed]:
    file = folder / MANIFEST
    if not manifest.get("files"):
        raise InputError(f"{file}: lists no files, so nothing can be checked; export the bundle again")
    listed = {}
    for name, entry in manifest["files"].items():
        known = entry if isinstance(entry, dict) else {}
        size, digest = known.get("bytes"), known.get("sha256")
        if not isinstance(size, int) or not isinstance(digest, str):
            raise InputError(f"{file}: files: {name!r} lacks bytes (a number) or sha256 (text); {_AGAIN}")
        inside(folder, name)
        listed[name] = _Listed(size, digest)
    return listed


def _refuse_unlisted(folder: Path, listed: Mapping[str, _Listed]) -> None:
    for pattern in _READ_BY_LOADERS:
        for file in sorted(folder.glob(pattern)):
            name = file.relative_to(folder).as_posix()
            if name not in listed and not file.name.startswith(".") and not file.is_dir():
                raise InputError(f"{file}: is not listed in manifest.json; remove it, or export the bundle again")


def _check_graph(folder: Path, graph: str, listed: Mapping[str, _Listed]) -> None:
    """Check a graph first, and only then what it refers to."""
    if graph not in listed:
        raise InputError(f"{folder / graph}: is not listed in manifest.json; {_AGAIN}")
    _check_file(folder, graph, listed[graph])
    for name in sorted(external_files(folder, graph)):
        if name not in listed:
            raise InputError(f"{folder / graph}: wants to read {name}, which manifest.json does not list; {_AGAIN}")
        _check_file(folder, name, listed[name])


def _check_file(folder: Path, name: str, expected: _Listed) -> None:
    _check_size(folder, name, expected)
    try:
        digest = sha256_of(folder / name)
    except OSError as error:
        raise InputError(f"{folder / name}: cannot be read ({error.strerror}); correct its permissions") from error
    if digest != expected.sha256:
        raise InputError(
            f"{folder / name}: was changed (sha256 {digest[:12]}..., manifest.json says {expected.sha256[:12]}...); "
            f"{_AGAIN}"
        )


def _check_sizes(folder: Path, listed: Mapping[str, _Listed]) -> None:
    for name, expected in listed.items():
        if (folder / name).exists():
            _check_size(folder, name, expected)


def _check_size(folder: Path, name: str, expected: _Listed) -> None:
    file = inside(folder, name)
    if not file.is_file():
        raise InputError(f"{file}: no such file, but manifest.json lists it; {_AGAIN}")
    if file.stat().st_size != expected.bytes:
        raise InputError(f"{file}: {file.stat().st_size} bytes, manifest.json says {expected.bytes}; {_AGAIN}")


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
