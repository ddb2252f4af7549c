"""Copies of shipped recipes, to edit."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from xcompress.errors import InputError
from xcompress.files import whole_file
from xcompress.recipe.schema import Recipe
from xcompress.recipe.shipped import advice, find_recipe, shipped

EXTENDS = "extends"
Location = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """What a recipe file says together with those that it extends."""

    values: dict[str, Any]
    set_in: dict[Location, Path]
    """The file that said each key, by the key's place."""

    def file_of(self, place: Location) -> Path | None:
        """Return the file that set the key at a place, or else the nearest key above it."""
        above = (place[:length] for length in range(len(place), 0, -1))
        return next((self.set_in[part] for part in above if part in self.set_in), None)


def describe(path: Path, readers: tuple[Path, ...] = ()) -> Described:
    """Read a recipe file and what it extends.

    :param readers: the files whose `extends` led here, outermost first.
    :raises InputError: when a file cannot be read, or `extends` names nothing or leads in a circle.
    """
    own = read_yaml(path)
    base_file = _base_of(path, own.pop(EXTENDS, None))
    said = dict.fromkeys(_places(own), path)
    if base_file is None:
        return Described(own, said)
    if base_file.resolve() in {reader.resolve() for reader in (*readers, path)}:
        raise InputError(f"{path}: extends {base_file}, which leads back to it; take one of the two `extends` out")
    base = describe(base_file, (*readers, path))
    return Described(merge(base.values, own, str(path)), base.set_in | said)


def bases_of(path: Path) -> list[Path]:
    """Return the files that a recipe file extends, nearest first."""
    base = _base_of(path, read_yaml(path).get(EXTENDS))
    return [base, *bases_of(base)] if base else []


def read_yaml(path: Path) -> dict[str, Any]:
    """Read one recipe file as it stands.

    :raises InputError: when it cannot be read or does not hold keys and values.
    """
    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a UTF-8 YAML file") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}: line {line}: not valid YAML ({error.problem}); correct it") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML ({str(error).splitlines()[0]}); correct it") from error
    if not isinstance(described, dict):
        raise InputError(f"{path}: holds {type(described).__name__}, not keys and values; see recipes/minilm_ru3.yaml")
    return described


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], who: str, place: Location = ()) -> dict[str, Any]:
    """Apply changes to what a base says.

    :param who: names in errors what the changes come from.
    :param place: where in the recipe both stand.
    :raises InputError: when an entry is to be taken out that is not there.
    """
    merged = dict(base)
    for key, value in changes.items():
        if value is None and holds_names(place):
            take_out(merged, key, who, place)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value, who, (*place, key))
        else:
            merged[key] = value
    return merged


def holds_names(place: Location) -> bool:
    """Whether a place is `stages` or the objectives of a stage, where null takes an entry out."""
    return place == ("stages",) or (len(place) == 3 and place[0] == "stages" and place[2] == "objectives")


def take_out(entries: dict[str, Any], name: str, who: str, place: Location) -> None:
    """Remove an entry.

    :raises InputError: when there is none of that name.
    """
    if name not in entries:
        where = ".".join(map(str, place))
        known = ", ".join(map(str, entries)) or "none"
        raise InputError(f"{who}: {where}.{name}: null takes it out, but there is none; {where} has {known}")
    del entries[name]


def _base_of(path: Path, name: object) -> Path | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise InputError(f"{path}: {EXTENDS}: name one recipe file, or one shipped recipe, got {name!r}")
    beside = path.parent / name
    if beside.is_file():
        return beside
    if name in shipped():
        return shipped()[name]
    raise InputError(f"{path}: extends {name}, but {beside} is no file; {advice(Path(name))}")


def _places(values: Mapping[str, Any], above: Location = ()) -> Iterator[Location]:
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, Mapping):
            yield from _places(value, (*above, key))


def load_recipe(path: Path | str, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe with all that it extends, and apply `key=value` overrides.

    :param path: a file, or the name of a shipped recipe, such as `minilm_ru3` or `paper/xlmr_b128_ru3`.
    :param overrides: such as `stages.contrast.steps=100`; null takes out a stage or an objective.
    :raises InputError: in one line that names the file, the key and the fix.
    """
    file = find_recipe(path)
    described = describe(file)
    for override in overrides:
        _override(described, override, file)
    try:
        return Recipe.model_validate(described.values)
    except ValidationError as error:
        raise InputError(f"{file}: {_explain(error)}{_set_elsewhere(error, described, file)}") from error


def _override(described: Described, override: str, file: Path) -> None:
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise InputError(f"override {override!r}: write key=value, for example stages.contrast.steps=100")
    if dotted == EXTENDS:
        raise InputError(f"override {override!r}: write `{EXTENDS}` in a recipe file")
    *parents, last = dotted.split(".")
    place: Any = described.values
    for parent in parents:
        inner = place.get(parent)
        if not isinstance(inner, dict | None):
            raise InputError(f"override {override!r}: {parent} is a value, not a part of the recipe")
        place[parent] = dict(inner or {})  # a YAML alias may share it with another part
        place = place[parent]
    value = _value(override, text)
    if value is None and holds_names(tuple(parents)):
        take_out(place, last, f"override {override!r}", tuple(parents))
    else:
        place[last] = value
    described.set_in.update({tuple([*parents, last][: depth + 1]): file for depth in range(len(parents) + 1)})


def _value(override: str, text: str) -> Any:  # noqa: ANN401 - YAML is what it is
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"override {override!r}: {text!r} is not valid YAML; quote it") from error


def _set_elsewhere(error: ValidationError, described: Described, file: Path) -> str:
    origin = described.file_of(error.errors()[0]["loc"])
    return f" (set in {origin})" if origin and origin != file else ""


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"unknown key {key}; {_nearest(first['loc'])}"
    if first["type"] == "missing":
        return f"key {key} is missing; add it"
    given = f", got {first['input']!r}" if not isinstance(first["input"], Mapping) else ""
    return f"{key or 'recipe'}: {first['msg'].removeprefix('Value error, ')}{given}".replace("\n", " ")


def _nearest(location: tuple[int | str, ...]) -> str:
    known = _keys_at(Recipe, location[:-1]) + ([EXTENDS] if len(location) == 1 else [])
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"


def _keys_at(part: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    for step in location:
        annotation = part.model_fields[step].annotation if step in part.model_fields else None
        part = next(iter(_parts_in(annotation)), part)
    return list(part.model_fields)


def _parts_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [part for inner in getattr(annotation, "__args__", ()) for part in _parts_in(inner)]


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
