"""Recipe files: find one by path or shipped name, read its YAML, follow `extends`, copy."""

import difflib
import re
from pathlib import Path
from typing import Any

from xcompress.errors import InputError, short_repr
from xcompress.files import check_target, whole_file
from xcompress.paths import as_path
from xcompress.recipe.yaml_text import LARGEST, parse_yaml

EXTENDS = "extends"
"""The key of a recipe file that names the recipe it extends."""


def shipped_folder() -> Path:
    """Return the folder of shipped recipes: inside the package once installed, beside it in a clone."""
    installed = Path(__file__).parents[1] / "recipes"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "recipes"


def shipped() -> dict[str, Path]:
    """Return the files of all shipped recipes by name, such as `paper/xlmr_b128_ru3`.

    A `.data.yaml` beside a recipe describes its text and models; it is not a recipe.
    """
    folder = shipped_folder()
    files = (path for path in sorted(folder.rglob("*.yaml")) if not path.name.endswith(".data.yaml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in files}


def find_recipe(reference: Path | str) -> Path:
    """Return the file that a path or the name of a shipped recipe means; an existing file comes first.

    Outside a clone of the repository, where there is no recipes/NAME.yaml, this path means the shipped recipe NAME.

    :raises InputError: when there is neither.
    """
    path = as_path(str(reference))
    if path.is_file():
        return path
    in_clone = re.fullmatch(r"recipes/(.+)\.yaml", path.as_posix())
    named = shipped().get(in_clone[1] if in_clone else path.as_posix())
    if named is None and not path.exists():
        raise InputError(f"{reference}: no such recipe; {suggest_recipes(path)}")
    return named or path


def suggest_recipes(wanted: Path) -> str:
    """Return advice for an unknown name: shipped recipes with similar names, and the command that lists all."""
    near = difflib.get_close_matches(wanted.as_posix().removesuffix(".yaml"), shipped(), n=3)
    return (f"did you mean {', '.join(near)}? " if near else "") + "`xcompress recipe list` lists the shipped ones"


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one recipe file, without what it extends.

    :raises InputError: when it cannot be read or is not a mapping.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(LARGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read ({reason}); give a UTF-8 YAML file") from error
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        content = "is empty" if values is None else f"holds {type(values).__name__}"
        raise InputError(f"{path}: {content}, not keys and values; see recipes/minilm_ru3.yaml")
    return values


def find_base(path: Path, name: object) -> Path | None:
    """Return the file that `extends: name` in a recipe file means: one beside it, or a shipped recipe.

    :raises InputError: when there is neither.
    """
    if name is None:
        return None
    if not isinstance(name, str):
        raise InputError(f"{path}: {EXTENDS}: name one recipe file, or one shipped recipe, got {short_repr(name)}")
    neighbour = as_path(str(path.parent / name))
    if neighbour.is_file():
        return neighbour
    if name in shipped():
        return shipped()[name]
    raise InputError(f"{path}: extends {name}, but {neighbour} is not a file; {suggest_recipes(Path(name))}")


def bases_of(path: Path) -> list[Path]:
    """Return the files that a recipe file extends, nearest first."""
    base = find_base(path, read_yaml(path).get(EXTENDS))
    return [base, *bases_of(base)] if base else []


def copy_recipe(name: str, destination: Path | str | None = None, *, force: bool = False) -> list[Path]:
    """Copy a shipped recipe with its comments, and the recipes that it extends beside it, so that all can be edited.

    :param destination: a file, or a folder that exists or, as text, ends in /; default: the working folder.
    :param force: overwrite existing files.
    :returns: the files written, the recipe first.
    :raises InputError: when there is no such recipe, or a file exists already.
    """
    source = shipped().get(name)
    if source is None:
        raise InputError(f"{name}: no shipped recipe of this name; {suggest_recipes(Path(name))}")
    target = Path(destination or source.name)
    check_target(target)
    is_folder = target.is_dir() or str(destination or "").endswith("/")  # a path would drop the slash
    target = target / source.name if is_folder else target
    bases = {target.parent / base.relative_to(source.parent): base for base in bases_of(source)}
    if target in bases:
        raise InputError(f"{target}: {name} extends a recipe of this name, copied beside it; choose another name")

    # an identical base may be there from an earlier copy
    in_the_way = [path for path, base in bases.items() if path.exists() and path.read_bytes() != base.read_bytes()]
    in_the_way += [target] if target.exists() else []
    if in_the_way and not force:
        raise InputError(f"{in_the_way[0]}: already exists; choose another place, or add --force to overwrite it")
    for path, original in {target: source, **bases}.items():
        with whole_file(path) as temporary:
            temporary.write_bytes(original.read_bytes())
    return [target, *bases]
