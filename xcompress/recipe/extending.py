"""`extends`: a recipe file that says only what differs from another one.

Mappings are merged key by key; lists and single values are replaced. A key set to null becomes null, except among
`stages` and the `objectives` of a stage, whose keys are names: there null takes the entry out. Stages keep the order of
the recipe that is extended, and new ones come last.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from xcompress.errors import InputError
from xcompress.recipe.shipped import advice, shipped

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
