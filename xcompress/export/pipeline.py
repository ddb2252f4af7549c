"""From a student or an encoder to a bundle, unless it is there already."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xcompress
from xcompress import console
from xcompress.errors import InputError
from xcompress.export.making import Making
from xcompress.export.options import Options
from xcompress.export.source import Reading, Source, find_source, is_bundle
from xcompress.export.verify import Bounds
from xcompress.files import hash_of, read_json, sha256_of, whole_folder


def export(
    source: str | Path | None = None,
    output: Path | None = None,
    *,
    options: Options | None = None,
    reading: Reading | None = None,
    facts: Mapping[str, Any] | None = None,
    force: bool = False,
    bounds: Bounds | None = None,
) -> Path:
    """Turn a student or an encoder into a self-contained ONNX bundle, or return the one that is there already.

    :param source: a run folder, the folder of a student or encoder, a reference to one, or None for the newest
        finished run.
    :param output: the bundle's folder; default `bundle` in a run, `<name>-bundle` beside a folder or here, with
        `-r<recurrences>` behind it where these are given.
    :param options: what to make of it.
    :param reading: how to read a foreign encoder, where its own files do not say.
    :param facts: more entries for the manifest.
    :param force: export even when the bundle there was made from the same with the same options.
    :param bounds: how far the graphs may be from PyTorch.
    :returns: the bundle's folder.
    :raises InputError: when there is nothing to export, or the bundle cannot be written.
    :raises GateError: when a graph is too far from PyTorch, or loses more than the gate allows.
    """
    asked = options or Options()
    found = find_source(source, reading)
    _check_depth(found, asked.recurrences)
    target = found.place(asked.recurrences) if output is None else output
    texts = [sha256_of(path) for path in asked.text if path.is_file()]
    described = [asked.described(), texts, dict(facts or {})]
    made_from = hash_of([found.fingerprint(), found.run, *described, xcompress.__version__])
    if not force and is_current(target, made_from):
        console.say(f"{target}: already exported from {found.name}")
        return target
    _check_target(target, found)
    _announce(found, asked, target)
    with whole_folder(target) as folder:
        Making(folder, found, asked, bounds).write(made_from, facts or {})
    return target


def is_current(bundle: Path, made_from: str) -> bool:
    """Tell whether a bundle was made from the same and still has all its files."""
    if not (bundle / "manifest.json").is_file():
        return False
    manifest = read_json(bundle / "manifest.json")
    if not isinstance(manifest, dict):
        return False
    files = {bundle / name: entry["bytes"] for name, entry in manifest.get("files", {}).items()}
    whole = all(file.is_file() and file.stat().st_size == size for file, size in files.items())
    return manifest.get("made_from") == made_from and whole


def _check_depth(found: Source, recurrences: int | None) -> None:
    if recurrences is not None and not 1 <= recurrences <= found.recurrences:
        raise InputError(
            f"recurrences: {recurrences} asked for, the student has {found.recurrences}; choose one of 1 to "
            f"{found.recurrences}"
        )


def _announce(found: Source, asked: Options, target: Path) -> None:
    if found.run and not found.run.get("finished"):
        console.warn(f"{found.name}: the run is not finished; its student is exported as it is now")
    depth = "" if asked.recurrences is None else f" with {asked.recurrences} recurrences"
    console.say(f"exporting {found.name} ({found.student}){depth} to {target}")
    console.say(f"target {asked.target}: {asked.settings().text()}")


def _check_target(target: Path, found: Source) -> None:
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder for the bundle")
    if target.is_dir() and any(target.iterdir()) and not is_bundle(target):
        raise InputError(f"{target}: is not empty and holds no bundle; name another folder, it would be replaced")
    needed = int(1.6 * _weight_bytes(found.student))  # the float32 graph and a smaller one
    if _free_bytes(target) < needed:
        raise InputError(
            f"{target}: {_free_bytes(target) / 1e6:.1f} MB free, the export needs {needed / 1e6:.1f}; "
            "free space or choose another folder"
        )


def _weight_bytes(source: Path) -> int:
    """Return the bytes of a model's weights in float32; an E5S1 file holds them in 4 bits."""
    if source.is_file():
        return 8 * source.stat().st_size
    return sum(file.stat().st_size for file in source.glob("**/*.safetensors"))


def _free_bytes(path: Path) -> int:
    place = path.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
