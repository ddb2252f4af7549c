"""The models that ship with xcompress, and the bundle that a name stands for."""

from pathlib import Path
from typing import Any

from xcompress.bundle.manifest import MANIFEST, is_bundle, newest_bundle, read_manifest
from xcompress.errors import InputError
from xcompress.files import size_of
from xcompress.paths import as_path

MODELS = Path(__file__).parents[1] / "models"
"""Each subfolder that holds a bundle is a released model."""
DEFAULT = "small"
RELEASED = "released:"
"""In front of the name of a released model, where a recipe names an encoder: released:small."""


def released_names() -> tuple[str, ...]:
    """List the released models of this installation, the default first."""
    names = sorted(manifest.parent.name for manifest in MODELS.glob(f"*/{MANIFEST}"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT))


def released_folder(name: str = DEFAULT) -> Path:
    """Return the folder of a released model.

    :raises InputError: when there is no released model of this name; the message lists those that exist.
    """
    names = released_names()
    if name not in names:
        advice = f"choose {' or '.join(names)}" if names else "this installation has none; give the folder of a bundle"
        raise InputError(f"{name}: no released model of this name; {advice}")
    return MODELS / name


def refuse_bundle(reference: str) -> None:
    """Refuse a bundle or a released model where a student or another encoder with weights to change is expected.

    :param reference: what the user named; a folder that exists wins over a released model.
    :raises InputError: when it is one; the message says how to make a student of it.
    """
    folder, name = as_path(reference), reference.removeprefix(RELEASED)
    if is_bundle(folder) if folder.exists() else name in released_names():
        shown = reference if folder.exists() else name
        raise InputError(
            f"{shown}: is a bundle already; give the model that it was made from, or the student that "
            f"`xcompress dequantize {shown}` makes"
        )


def released_models() -> list[dict[str, Any]]:
    """Describe each released model, the default first: folder, languages, sizes and dev scores.

    :raises InputError: when a manifest cannot be read.
    """
    models = []
    for name in released_names():
        folder = MODELS / name
        manifest = read_manifest(folder)
        release = manifest.get("release", {})
        if "scores" in release:
            dev = {test["test"]: dict(test["averages"]) for test in release["scores"]}
        else:  # exported from a run, without the evaluation of a release
            scores = {name: value for name, value in manifest.get("dev", {}).items() if isinstance(value, int | float)}
            dev = {"its run": scores} if scores else {}
        models.append(
            {
                "name": name,
                "folder": str(folder),
                "languages": manifest.get("languages", []),
                "bytes": size_of(folder),
                "dimension": manifest["dimension"],
                "precision": manifest.get("precision"),
                "parameters": manifest.get("parameters"),
                "max_tokens": manifest["max_tokens"],
                "dev": dev,
            }
        )
    return models


def find_bundle(name_or_folder: str | Path | None) -> Path:
    """Return the folder of a bundle, given as a folder, as the name of a released model or as a hub id.

    The folder of a bundle wins over a released model of the same name, and an existing folder over a hub id.

    :param name_or_folder: None takes the default released model, else the newest of `runs/*/bundle*`. A `Path` is a
        folder. A hub id is `org/name[@revision]`; its bundle is downloaded once.
    :returns: a folder, which is not checked.
    :raises InputError: when there is none; the message lists the released models. Also when the hub cannot be reached,
        or has no such bundle.
    """
    if name_or_folder is None:
        bundle = next((MODELS / name for name in released_names()), None) or newest_bundle()
        if bundle is None:
            raise InputError("runs: no bundle here; name one with --model, or make one with `xcompress export`")
        return bundle
    folder = as_path(str(name_or_folder))
    if isinstance(name_or_folder, Path):
        return folder
    name = name_or_folder
    if folder.name == name and not is_bundle(folder):
        names = released_names()
        if name in names:
            return MODELS / name
        if names and not folder.exists():
            raise InputError(f"{name}: neither a folder nor a released model; choose {' or '.join(names)}")
    # a hub id looks like a folder in a folder; where that one is, the other is misspelt
    if folder.exists() or folder.parent.is_dir():
        return folder
    from xcompress.bundle.hub import bundle_from_hub
    from xcompress.sources import looks_like_path

    return folder if looks_like_path(name) else bundle_from_hub(name)
