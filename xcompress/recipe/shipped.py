"""The recipes that ship with xcompress, and how a name or path on the command line becomes a file."""

import difflib
from pathlib import Path

from xcompress.errors import InputError

LIST_COMMAND = "xcompress recipe list"
DATA = ".data.yaml"


def shipped_folder() -> Path:
    """Return the folder of shipped recipes: inside the package once installed, beside it in a clone."""
    installed = Path(__file__).parents[1] / "recipes"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "recipes"


def shipped() -> dict[str, Path]:
    """Return the files of all shipped recipes by name, such as `paper/xlmr_b128_ru3`.

    A `.data.yaml` beside a recipe describes its text and models, and is none.
    """
    folder = shipped_folder()
    files = (path for path in sorted(folder.rglob("*.yaml")) if not path.name.endswith(DATA))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def find_recipe(reference: Path | str) -> Path:
    """Return the file that a path or the name of a shipped recipe means; a file of that path comes first.

    :raises InputError: when there is neither.
    """
    path = Path(reference)
    if path.is_file():
        return path
    named = shipped().get(path.as_posix())
    if named is None and not path.exists():
        raise InputError(f"{reference}: no such recipe; {advice(path)}")
    return named or path


def advice(wanted: Path) -> str:
    """Say which shipped recipes have a name near to the one wanted, and how to list them all."""
    near = difflib.get_close_matches(wanted.with_suffix("").as_posix(), shipped(), n=3)
    return (f"did you mean {', '.join(near)}? " if near else "") + f"`{LIST_COMMAND}` lists those that ship"
