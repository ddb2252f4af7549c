"""The models that come with xcompress: bundles in folders of the package, by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xcompress.errors import InputError

MODELS = Path(__file__).parents[1] / "models"
"""Each folder in it that holds a bundle is a released model."""
DEFAULT = "small"
_MANIFEST = "manifest.json"


def released_names() -> tuple[str, ...]:
    """List the released models of this installation, the default first."""
    names = sorted(manifest.parent.name for manifest in MODELS.glob(f"*/{_MANIFEST}"))
    return tuple(sorted(names, key=lambda name: name != DEFAULT))


def released_folder(name: str = DEFAULT) -> Path:
    """Return the folder of a released model.

    :raises InputError: when there is none of that name, with those that there are.
    """
    names = released_names()
    if name not in names:
        there = f"choose {' or '.join(names)}" if names else "this installation has none; name a bundle's folder"
        raise InputError(f"{name}: no released model of this name; {there}")
    return MODELS / name


def find_bundle(named: str | None) -> Path:
    """Return the bundle that a user means: a folder, or the name of a released model.

    A bundle's folder comes first, so that a name means the same as in `bench`; what holds a separator is always a path.

    :param named: None takes the default.
    :raises InputError: when it is neither, with the names that there are.
    """
    if named is None:
        return default_bundle()
    folder = Path(named)
    if (folder / _MANIFEST).is_file() or folder.name != named:
        return folder
    if named in (names := released_names()):
        return MODELS / named
    if names and not folder.exists():
        raise InputError(f"{named}: no such folder, and no released model; choose {' or '.join(names)}")
    return folder


def default_bundle() -> Path:
    """Return the bundle to use when none is named: the released one, or else the newest of `runs/*/bundle*`.

    :raises InputError: when there is neither, with the next step.
    """
    if names := released_names():
        return MODELS / names[0]
    newest = newest_bundle()
    if newest is None:
        raise InputError("runs: no bundle here; name one with --model, or make one with `xcompress export`")
    return newest


def newest_bundle() -> Path | None:
    """Return the newest of `runs/*/bundle*`, if there is any."""
    manifests = sorted(Path("runs").glob(f"*/bundle*/{_MANIFEST}"), key=lambda file: file.stat().st_mtime)
    return manifests[-1].parent if manifests else None


def size_of(folder: Path) -> int:
    """Return the bytes that a folder's files take together."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def dev_averages(manifest: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return the averages of a released model's dev scores, by test, or what its run noted of its student."""
    release = manifest.get("release", {})
    if "scores" in release:
        return {test["test"]: dict(test["averages"]) for test in release["scores"]}
    noted = {name: value for name, value in manifest.get("dev", {}).items() if isinstance(value, int | float)}
    return {"its run": noted} if noted else {}
