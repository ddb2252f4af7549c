"""Copies of shipped recipes, to edit."""

from pathlib import Path

from xcompress.errors import InputError
from xcompress.files import whole_file
from xcompress.recipe.extending import bases_of
from xcompress.recipe.shipped import advice, shipped


def copy_recipe(name: str, destination: Path | None = None, *, force: bool = False) -> list[Path]:
    """Copy a shipped recipe with its comments, and beside it the recipes that it extends, which so can be edited too.

    :param destination: a file or folder; the working folder when not given.
    :param force: overwrite what is there.
    :returns: the files written, the recipe first.
    :raises InputError: when there is no such recipe, or a file is in the way.
    """
    source = shipped().get(name)
    if source is None:
        raise InputError(f"{name}: no shipped recipe of this name; {advice(Path(name))}")
    target = destination or Path(source.name)
    target = target / source.name if target.is_dir() else target
    bases = {target.parent / base.relative_to(source.parent): base for base in bases_of(source)}
    if target in bases:
        raise InputError(f"{target}: {name} extends a recipe of this name, copied beside it; choose another name")
    in_the_way = [path for path, base in bases.items() if path.exists() and path.read_bytes() != base.read_bytes()]
    in_the_way += [target] if target.exists() else []
    if in_the_way and not force:
        raise InputError(f"{in_the_way[0]}: exists; choose another place, or add --force to overwrite it")
    for path, original in {target: source, **bases}.items():
        with whole_file(path) as temporary:
            temporary.write_bytes(original.read_bytes())
    return [target, *bases]
