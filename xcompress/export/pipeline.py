"""From a student to a bundle: trace, quantise, verify, write."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

import xcompress
from xcompress import console
from xcompress.errors import InputError
from xcompress.export.bundle import write_bundle
from xcompress.export.graph import build
from xcompress.export.quantize import quantize as quantize_graph
from xcompress.export.source import Source, find_source, is_bundle
from xcompress.export.verify import Bounds, reference_of, verify_fp32, verify_int8
from xcompress.files import hash_of, read_json, whole_folder
from xcompress.student import Student, read_config, shallower


def export(
    source: Path | None = None,
    output: Path | None = None,
    *,
    quantize: bool = True,
    recurrences: int | None = None,
    facts: Mapping[str, Any] | None = None,
    force: bool = False,
    bounds: Bounds | None = None,
) -> Path:
    """Turn a student into a self-contained ONNX bundle, or return the one that is there already.

    :param source: a run folder, a student folder, or None for the newest finished run.
    :param output: the bundle's folder; default `bundle` in the run, or `<student>-bundle` beside a bare student, with
        `-r<recurrences>` behind it where these are given.
    :param quantize: also write an int8 graph.
    :param recurrences: how often the unit is applied; None means as often as the student does.
    :param facts: more entries for the manifest.
    :param force: export even when the bundle there was made from the same student with the same options.
    :param bounds: how far the graphs may be from PyTorch.
    :returns: the bundle's folder.
    :raises InputError: when there is no student, or the bundle cannot be written.
    :raises GateError: when a graph is too far from PyTorch.
    """
    found = find_source(source)
    if recurrences is not None:
        read_config(found.student).at_depth(recurrences)
    target = found.place(recurrences) if output is None else output
    options = [quantize, recurrences, dict(facts or {})]
    made_from = hash_of([found.fingerprint(), found.run, *options, xcompress.__version__])
    if not force and is_current(target, made_from):
        console.say(f"{target}: already exported from {found.name}")
        return target
    _check_target(target, found.student)
    if found.run and not found.run.get("finished"):
        console.warn(f"{found.name}: the run is not finished; its student is exported as it is now")
    depth = "" if recurrences is None else f" with {recurrences} recurrences"
    console.say(f"exporting {found.name} ({found.student}){depth} to {target}")
    with whole_folder(target) as folder, console.bar("exporting", 5 if quantize else 3) as ticker:
        _write(folder, found, made_from, quantize, recurrences, facts or {}, bounds or Bounds(), ticker)
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


def _check_target(target: Path, student: Path) -> None:
    if target.is_file():
        raise InputError(f"{target}: is a file; name a folder for the bundle")
    if target.is_dir() and any(target.iterdir()) and not is_bundle(target):
        raise InputError(f"{target}: is not empty and holds no bundle; name another folder, it would be replaced")
    # the float32 graph, a working copy of it, and two int8 ones
    needed = int(2.6 * (student / "model.safetensors").stat().st_size)
    if _free_bytes(target) < needed:
        raise InputError(
            f"{target}: {_free_bytes(target) / 1e6:.1f} MB free, the export needs {needed / 1e6:.1f}; "
            "free space or choose another folder"
        )


def _free_bytes(path: Path) -> int:
    place = path.resolve()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def _write(
    folder: Path,
    source: Source,
    made_from: str,
    quantize: bool,
    recurrences: int | None,
    facts: Mapping[str, Any],
    bounds: Bounds,
    ticker: console.Ticker,
) -> None:
    student, tokenizer = Student.load(source.student)
    if recurrences is not None:
        student = shallower(student, recurrences)
    plain, small = folder / "onnx" / "model.onnx", folder / "onnx" / "model_quantized.onnx"
    plain.parent.mkdir()
    ticker.advance(0, "tracing")
    onnx.save(build(student), plain)
    ticker.advance(1, "checking float32")
    reference = reference_of(student, tokenizer)
    parity = {"fp32": verify_fp32(plain, reference, bounds)}
    if quantize:
        ticker.advance(1, "quantising")
        quantize_graph(plain, small)
        ticker.advance(1, "checking int8")
        parity["int8"] = verify_int8(small, reference, bounds)
    ticker.advance(1, "writing")
    figures = {"precisions": list(parity), "parity": parity, **facts}
    write_bundle(folder, student, tokenizer, source, made_from, figures)
    ticker.advance(1, "done")
