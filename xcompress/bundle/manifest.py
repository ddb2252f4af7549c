"""The manifest of a bundle: its name, format, keys and hash, and the files that it lists."""

from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from json import dumps, loads
from pathlib import Path, PurePosixPath
from typing import Any

from xcompress.bundle.prompts import prompts_problem
from xcompress.errors import InputError, first_line, short_repr
from xcompress.files import check_encoding, check_json_size, explain_read_error, read_json, sha256_of, write_json
from xcompress.paths import leaves_folder
from xcompress.runtimes import RUNTIMES
from xcompress.tokenizer_file import prefix_problem

MANIFEST = "manifest.json"
"""A run folder has a file of this name, too; see `is_export`."""
CARD = "README.md"
"""The model card: no code reads that of a bundle, and its owner may edit it."""
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
GRAPH_SUFFIXES = (".onnx", ".ort")
"""How the files of graphs end: ONNX, and onnxruntime's own format."""
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
"""Inputs that a graph may have, int64 (N, L)."""
OUTPUT = "sentence_embedding"
"""The output of a graph with the vectors, float32 (N, D)."""
FLOAT = ("fp32", "fp16")
"""Precisions whose products are in float32. Their graphs have standard operators in every bundle."""
TARGETS = ("cpu", "mobile", "wasm", *RUNTIMES)
"""What a bundle may be exported for."""
HASH = "sha256"
"""Key of the hash of the manifest's own content; bundles of earlier versions lack it."""
PUBLISHED = {
    "70201f824ab3e588": "4e214e1880b010b32a9cb9cd0e7db43d8b6e0601c949698ee87fb92dbc5eb372",
    "ac5f1136550aaa74": "22954d751b436d7a53f29e76c63e1581e2aa11f250526bfd93ac2026bd6b01fe",
}
"""By `made_from`, the hash of the content of manifests that were released before manifests held it themselves."""
EXPORT_AGAIN = "export the bundle again, or copy it again"

COREML_NOT_RUN = "not run: Core ML needs macOS or iOS"
"""What reports say of the ML program for Core ML."""

_PREFERRED = ("int8", "int4", "fp16", "fp32")
"""Order in which `auto` chooses where the manifest names no precision."""
_UNNAMED_GRAPHS = ("int8", "fp32")
"""Precisions that a manifest without `graphs` may have."""
_REQUIRED = {"format": int, "dimension": int, "prefix": str, "max_tokens": int, "pad_token_id": int}
_OPTIONAL: dict[str, type] = {
    "files": dict,
    "graphs": dict,
    "languages": list,
    "precision": str,
    "release": dict,
    "target": str,
    "operators": str,
    "vocab_size": int,
    "mean_vector": list,
    "prompts": dict,
}
_TYPE_NAMES = {int: "a whole number", str: "text", dict: "a mapping", list: "a list"}
_MINIMUM = {"format": 1, "dimension": 1, "max_tokens": 1, "pad_token_id": 0, "vocab_size": 1}
_MAXIMUM = 2**31 - 1
_MOST_FILES = 1000
"""Files that a manifest may list, many times what an export writes: to look for 300,000 took 47 seconds."""
_LONGEST_NAME = 255
"""Bytes of a file's name that file systems allow."""


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read a bundle's manifest; check the keys that this version uses, and the hash of the content if there is one.

    :raises InputError: when the folder has no manifest, or its manifest was changed or cannot be that of a bundle.
    """
    check_encoding(folder)
    try:
        is_folder, has_manifest = folder.is_dir(), (folder / MANIFEST).is_file()
    except (OSError, ValueError) as error:  # a name that is too long or holds a NUL
        raise InputError(f"{folder}: cannot be read ({first_line(error)}); give the folder of a bundle") from error
    if not is_folder:
        raise InputError(f"{folder}: no such folder; give a bundle that `xcompress export` made")
    if not has_manifest:
        raise InputError(
            f"{folder}: no manifest.json here; give a bundle, which `xcompress export {folder}` makes of a model"
        )
    file = inside(folder, MANIFEST)
    with explain_read_error(file):
        check_json_size(file)
        return parse_manifest(file.read_bytes(), file)


def parse_manifest(content: bytes, file: Path) -> dict[str, Any]:
    """Parse and check the content of a manifest, as `read_manifest` does.

    :param file: where the content is from, for errors.
    """
    try:
        manifest = loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not valid JSON ({first_line(error)}); {EXPORT_AGAIN}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{file}: holds {type(manifest).__name__}, not a mapping; {EXPORT_AGAIN}")
    _check_keys(file, manifest)
    _check_values(file, manifest)
    _check_graphs(file, manifest)
    expected = manifest.get(HASH, PUBLISHED.get(str(manifest.get("made_from"))))
    if expected is not None and content_hash(manifest) != expected:
        raise InputError(f"{file}: was changed after the export, its content has another hash; {EXPORT_AGAIN}")
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a bundle's manifest with the hash of its content; lone surrogates become question marks."""
    content = loads(dumps(manifest, default=str, ensure_ascii=False).encode("utf-8", "replace"))
    write_json(folder / MANIFEST, content | {HASH: content_hash(content)})


def content_hash(manifest: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest as 64 hex digits, whatever the spaces and the order of the keys.

    The key of the hash itself does not count.
    """
    content = {key: value for key, value in manifest.items() if key != HASH}
    return sha256(dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _check_keys(file: Path, manifest: Mapping[str, Any]) -> None:
    missing = [key for key in _REQUIRED if key not in manifest]
    if "format" in missing and "recipe" in manifest:
        run = file.parent
        raise InputError(f"{run}: is a run; give its bundle, {run / 'bundle'}, which `xcompress export {run}` makes")
    if missing:
        raise InputError(f"{file}: lacks {', '.join(missing)}; export the bundle again")
    for key, expected in (_REQUIRED | _OPTIONAL).items():
        value = manifest.get(key)
        if key in manifest and (not isinstance(value, expected) or isinstance(value, bool)):
            raise InputError(f"{file}: {key} is {type(value).__name__}, not {_TYPE_NAMES[expected]}; {EXPORT_AGAIN}")
    if (files := len(manifest.get("files", {}))) > _MOST_FILES:
        raise InputError(f"{file}: lists {files:,} files, more than {_MOST_FILES:,}; {EXPORT_AGAIN}")
    texts = [*manifest.get("graphs", {}).values(), *manifest.get("languages", [])]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{file}: graphs and languages must hold text only; {EXPORT_AGAIN}")


def _check_values(file: Path, manifest: Mapping[str, Any]) -> None:
    for key, minimum in _MINIMUM.items():
        value = manifest.get(key, minimum)
        if not minimum <= value <= _MAXIMUM:
            limit = f"less than {minimum}" if value < minimum else f"more than {_MAXIMUM}"
            raise InputError(f"{file}: {key} is {value}, {limit}; {EXPORT_AGAIN}")
    if manifest["format"] > FORMAT:
        raise InputError(f"{file}: format {manifest['format']}, this version reads {FORMAT}; upgrade xcompress")
    if problem := prefix_problem(manifest["prefix"]):
        raise InputError(f"{file}: prefix {problem}; {EXPORT_AGAIN}")
    if problem := prompts_problem(manifest.get("prompts", {})):
        raise InputError(f"{file}: {problem}; {EXPORT_AGAIN}")
    mean, dimension = manifest.get("mean_vector", []), manifest["dimension"]
    are_numbers = all(isinstance(value, int | float) and -1 <= value <= 1 for value in mean)
    if mean and not (len(mean) == dimension and are_numbers):
        raise InputError(f"{file}: mean_vector does not hold {dimension} numbers from -1 to 1; {EXPORT_AGAIN}")
    if manifest.get("target", "cpu") not in TARGETS:
        raise InputError(f"{file}: target is {manifest['target'][:40]!r}, not {', '.join(TARGETS)}; {EXPORT_AGAIN}")


def _check_graphs(file: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a precision that does not exist or has no graph: another graph would be opened in its place."""
    graphs = manifest.get("graphs", _UNNAMED_GRAPHS)
    precision = manifest.get("precision")
    for name in graphs:
        if name not in GRAPHS:
            raise InputError(f"{file}: graphs names {name[:40]!r}, which is no precision; {EXPORT_AGAIN}")
    if precision is not None and precision not in graphs:
        raise InputError(f"{file}: precision is {precision[:40]!r}, which graphs does not name; {EXPORT_AGAIN}")


def graphs_of(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Map each precision to the path of its graph inside the folder, for the graphs that exist.

    :raises InputError: when the manifest names a graph outside the folder, or a file of another format.
    """
    graphs = manifest.get("graphs", {precision: GRAPHS[precision] for precision in _UNNAMED_GRAPHS})
    for name in graphs.values():
        if inside(folder, name).suffix not in GRAPH_SUFFIXES:  # its external data would not be found
            raise InputError(
                f"{folder / MANIFEST}: graphs names {name[:80]!r}, which is neither .onnx nor .ort; {EXPORT_AGAIN}"
            )
    return {precision: name for precision, name in graphs.items() if (folder / name).is_file()}


def choose_graph(folder: Path, manifest: Mapping[str, Any], precision: str) -> tuple[str, str]:
    """Return the precision that `Encoder` opens and the path of its graph inside the folder.

    :raises InputError: when there is no such graph.
    """
    graphs = graphs_of(folder, manifest)
    if not graphs:
        raise InputError(f"{folder}: none of the graphs listed in manifest.json exists; export the bundle again")
    if not isinstance(precision, str) or precision not in ("auto", *graphs):
        raise InputError(
            f"{folder}: precision is {short_repr(precision)}, but the graphs are {', '.join(graphs)}; "
            "choose one of them or auto, or export again"
        )
    order = (manifest.get("precision"), *_PREFERRED, *graphs) if precision == "auto" else (precision,)
    chosen = next(name for name in order if name in graphs)
    return chosen, graphs[chosen]


def list_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Map the path of every file inside the folder to its size in bytes and its SHA-256, for the key `files`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in files
    }


def is_export(folder: Path) -> bool:
    """Tell whether a folder holds a bundle or a checkpoint of `--format hf`; the manifest of a run lacks `made_from`.

    :raises InputError: when manifest.json is not valid JSON.
    """
    return "made_from" in _read_keys(folder)


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder holds a bundle; the manifest of a checkpoint of `--format hf` lacks the key `format`.

    :raises InputError: when manifest.json is not valid JSON.
    """
    return {"made_from", "format"} <= _read_keys(folder)


def _read_keys(folder: Path) -> set[str]:
    """Return the keys in a folder's manifest.json, none where there is no such mapping."""
    manifest = read_json(folder / MANIFEST) if (folder / MANIFEST).is_file() else None
    return set(manifest) if isinstance(manifest, dict) else set()


def newest_bundle(runs: Path = RUNS) -> Path | None:
    """Return the most recent of `runs/*/bundle*`, or None."""
    manifests = sorted(runs.glob(f"*/bundle*/{MANIFEST}"), key=lambda file: file.stat().st_mtime)
    return manifests[-1].parent if manifests else None


def inside(folder: Path, name: str) -> Path:
    """Return the path of a file of a bundle, which must not lie outside the folder.

    :param name: path inside the folder, with / between its parts.
    :raises InputError: when the name, or a symbolic link on the way, leads out of the folder, or a folder on the way
        cannot be entered.
    """
    if not is_plain(name):
        raise InputError(f"{folder / MANIFEST}: names {name[:80]!r}, outside the bundle; do not use it")
    try:
        resolved, root = (folder / name).resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise InputError(f"{folder / name}: cannot be resolved ({first_line(error)}); {EXPORT_AGAIN}") from error
    if not resolved.is_relative_to(root):
        raise InputError(f"{folder / name}: a link that leads out of the bundle; copy the file itself here")
    with explain_read_error(folder / name), suppress(FileNotFoundError, NotADirectoryError):
        (folder / name).stat()
    return folder / name


def is_plain(name: str) -> bool:
    """Tell whether a name can only mean a path below the folder, on any operating system."""
    path = PurePosixPath(name)
    is_text = name.isprintable() and all(len(part.encode()) <= _LONGEST_NAME for part in path.parts)
    return is_text and not leaves_folder(name) and path.as_posix() == name and name not in ("", ".")
