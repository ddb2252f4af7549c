"""The manifest of a bundle: its name, format and keys, and the files that it lists."""

from collections.abc import Mapping
from json import loads
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from xcompress.errors import InputError, first_line
from xcompress.files import check_encoding, read_json, sha256_of

MANIFEST = "manifest.json"
"""A run folder has a file of this name, too; see `is_bundle`."""
RUNS = Path("runs")
"""Folder that the runs are in, below the working folder."""
FORMAT = 1
"""Version of the manifest's layout: exports write it, and newer ones are refused."""
GRAPHS = {
    "fp32": "onnx/model.onnx",
    "fp16": "onnx/model_fp16.onnx",
    "int8": "onnx/model_quantized.onnx",
    "int4": "onnx/model_q4.onnx",
}
"""File of each precision, named as transformers.js and Optimum look for them."""
EXPORT_AGAIN = "export the bundle again, or copy it again"

_UNNAMED_GRAPHS = ("int8", "fp32")
"""Precisions that a manifest without `graphs` may have."""
_REQUIRED = {"format": int, "dimension": int, "prefix": str, "max_tokens": int, "pad_token_id": int}
_OPTIONAL = {"files": dict, "graphs": dict, "languages": list, "precision": str, "target": str, "vocab_size": int}
_TYPE_NAMES = {int: "a whole number", str: "text", dict: "a mapping", list: "a list"}
_MINIMUM = {"format": 1, "dimension": 1, "max_tokens": 1, "pad_token_id": 0}


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a bundle's manifest and check the types of the keys that this version uses.

    :raises InputError: when the folder has no manifest, or its manifest cannot be that of a bundle.
    """
    check_encoding(folder)
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
        raise InputError(f"{file}: not valid JSON ({first_line(error)}); {EXPORT_AGAIN}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{file}: holds {type(manifest).__name__}, not a mapping; {EXPORT_AGAIN}")
    _check_keys(file, manifest)
    return manifest


def _check_keys(file: Path, manifest: Mapping[str, Any]) -> None:
    missing = [key for key in _REQUIRED if key not in manifest]
    if missing:
        raise InputError(f"{file}: lacks {', '.join(missing)}; export the bundle again")
    for key, expected in (_REQUIRED | _OPTIONAL).items():
        value = manifest.get(key)
        if key in manifest and (not isinstance(value, expected) or isinstance(value, bool)):
            raise InputError(f"{file}: {key} is {type(value).__name__}, not {_TYPE_NAMES[expected]}; {EXPORT_AGAIN}")
    for key, minimum in _MINIMUM.items():
        if manifest[key] < minimum:
            raise InputError(f"{file}: {key} is {manifest[key]}, less than {minimum}; {EXPORT_AGAIN}")
    if manifest["format"] > FORMAT:
        raise InputError(f"{file}: format {manifest['format']}, this version reads {FORMAT}; upgrade xcompress")
    texts = [*manifest.get("graphs", {}).values(), *manifest.get("languages", [])]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{file}: graphs and languages must hold text only; {EXPORT_AGAIN}")


def graphs_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Map each precision to the path of its graph inside the folder, for the graphs that exist.

    :raises InputError: when the manifest names a graph outside the folder.
    """
    graphs = manifest.get("graphs", {precision: GRAPHS[precision] for precision in _UNNAMED_GRAPHS})
    return {precision: name for precision, name in graphs.items() if inside(folder, name).is_file()}


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Map the path of every file inside the folder to its size in bytes and its SHA-256, for the key `files`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds an export; the manifest of a run lacks the key `made_from`.

    :raises InputError: when manifest.json is not valid JSON.
    """
    manifest = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    return isinstance(manifest, dict) and "made_from" in manifest


def newest_bundle(runs: Path = RUNS) -> Path | None:
    """Return the most recent of `runs/*/bundle*`, or None."""
    manifests = sorted(runs.glob(f"*/bundle*/{MANIFEST}"), key=lambda file: file.stat().st_mtime)
    return manifests[-1].parent if manifests else None


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file of a bundle, which must not lie outside the folder.

    :param name: path inside the folder, with / between its parts.
    :raises InputError: when the name, or a symbolic link on the way, leads out of the folder.
    """
    if not is_plain(name):
        raise InputError(f"{folder / MANIFEST}: names {name!r}, outside the bundle; do not use it")
    try:
        resolved, root = (folder / name).resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise InputError(f"{folder / name}: cannot be resolved ({first_line(error)}); {EXPORT_AGAIN}") from error
    if not resolved.is_relative_to(root):
        raise InputError(f"{folder / name}: a link that leads out of the bundle; copy the file itself here")
    return folder / name


def is_plain(name: str) -> bool:
    """Tell whether a name can only mean a path below the folder, on any operating system."""
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    climbs = ".." in windows.parts or posix.is_absolute() or bool(windows.anchor)
    return name.isprintable() and not climbs and posix.as_posix() == name and name not in ("", ".")
