"""Load a recipe: merge the files that it extends, apply `key=value` overrides, validate."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from xcompress.console import warn
from xcompress.errors import InputError, short_repr
from xcompress.recipe.budgets import Budgets, BudgetsFile
from xcompress.recipe.encoders import EncoderSection, TokenizerFile
from xcompress.recipe.plain_words import in_plain_words
from xcompress.recipe.schema import Recipe
from xcompress.recipe.section import OLD_NAMES
from xcompress.recipe.shipped import EXTENDS, find_base, find_recipe, read_yaml
from xcompress.recipe.yaml_text import DEEPEST, parse_yaml

MOST_BASES = 20
"""Recipes that one recipe may extend, directly and through others."""
CHANGES = "changes to the recipe"
"""Where values come from that Python code gives, in error messages."""
_TEXT, _DIGESTS = ("sha256", "str"), ("sha256", "dict[str,str]")
"""How pydantic tells apart, in the location of an error, the two types of a `sha256`."""
Validated = TypeVar("Validated", bound=BaseModel)
Location = tuple[int | str, ...]
"""Where a key stands, such as ("stages", "contrast", "steps")."""


class Origin(NamedTuple):
    """What set a key: a file, an override or Python code, and the key as written there, which may be an old name."""

    source: str
    key: str


@dataclass(frozen=True, slots=True)
class RawRecipe:
    """The values of a recipe before validation, under the current names of the keys."""

    values: dict[str, Any]
    origins: dict[Location, Origin]
    """Where each key was set last."""


class RecipeError(InputError):
    """Keys or values of a recipe are wrong; the text is the first fault, with the number of the others."""

    def __init__(self, message: str, faults: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.faults = faults
        """All of them, each in one line that names the file, the key and the fix."""


def first_of(faults: Sequence[str]) -> str:
    """Return the first of some faults of a recipe, with the number of the others."""
    more = f" (and {len(faults) - 1} more; `xcompress recipe validate FILE` lists those of a file)"
    return faults[0] + (more if len(faults) > 1 else "")


def load_recipe(path: Path | str, overrides: Sequence[str] = (), *, changes: Mapping[str, Any] | None = None) -> Recipe:
    """Load a recipe with all that it extends, and change it.

    :param path: a file, or the name of a shipped recipe, such as `minilm_ru3` or `paper/xlmr_b128_ru3`.
    :param overrides: such as `stages.contrast.steps=100`; null removes a stage or an objective.
    :param changes: what a recipe that extends this one would hold, such as `{"student": {"bottleneck": 256}}`.
    :raises RecipeError: when keys or values are wrong.
    :raises InputError: in one line that names the file, the key and the fix.
    """
    file = find_recipe(path)
    raw = read_with_bases(file)
    if changes:
        if EXTENDS in changes:
            raise InputError(f"{CHANGES}: write `{EXTENDS}` in a recipe file")
        raw = _extend(raw, changes, CHANGES)
    given = [override.partition("=")[0] for override in overrides]
    for override in overrides:
        _apply_override(raw, override, given)
    return _validate(Recipe, raw, file)


def read_budgets(path: Path | str) -> Budgets | None:
    """Read the budgets of a recipe, or of a file with nothing but `budgets:`.

    :param path: a file, or the name of a shipped recipe.
    :returns: None where it has none.
    :raises InputError: as `load_recipe`.
    """
    file = find_recipe(path)
    raw = read_with_bases(file)
    if raw.values.keys() == {"budgets"}:
        return _validate(BudgetsFile, raw, file).budgets
    return _validate(Recipe, raw, file).budgets


def _validate(schema: type[Validated], raw: RawRecipe, file: Path) -> Validated:
    try:
        return schema.model_validate(raw.values)
    except ValidationError as error:
        faults = [f"{file}: {fault}" for fault in _explain_all(error, raw, file)]
        raise RecipeError(first_of(faults), faults) from error


def read_with_bases(path: Path, extended_by: tuple[Path, ...] = ()) -> RawRecipe:
    """Read a recipe file and what it extends.

    :param extended_by: the files whose `extends` led here, outermost first.
    :raises InputError: when a file cannot be read, or `extends` names no file, leads back to one of these, or through
        more than `MOST_BASES` files.
    """
    written, base = read_yaml(path), RawRecipe({}, {})
    if base_file := find_base(path, written.pop(EXTENDS, None)):
        if len(extended_by) == MOST_BASES:
            raise InputError(f"{path}: extends {base_file}, which makes more than {MOST_BASES}; merge some of them")
        if base_file.resolve() in {file.resolve() for file in (*extended_by, path)}:
            raise InputError(f"{path}: extends {base_file}, which is circular; remove one `extends`")
        base = read_with_bases(base_file, (*extended_by, path))
    return _extend(base, written, str(path))


def _extend(base: RawRecipe, written: Mapping[str, Any], source: str) -> RawRecipe:
    """Change a recipe as one that extends it does.

    :param source: where the keys come from, for error messages.
    """
    names: dict[Location, str] = {}
    changes = _use_current_names(written, Recipe, source, names)
    origins = {location: Origin(source, name) for location, name in names.items()}
    return RawRecipe(merge(base.values, changes, source), base.origins | origins)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], source: str, location: Location = ()) -> dict[str, Any]:
    """Merge mappings; other values replace those of the base. Null removes a stage or an objective.

    Where `source` names another model, what describes the old one is left out.

    :param source: where the changes come from, for error messages.
    :param location: where in the recipe both mappings stand.
    :raises InputError: when null removes an entry that does not exist.
    """
    left_out = _old_description(base, changes["source"], changes, source, location) if "source" in changes else ()
    merged = {key: value for key, value in base.items() if key not in left_out}
    for key, value in changes.items():
        if value is None and _holds_named_entries(location):
            _remove_entry(merged, key, source, location)
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge(merged[key], value, source, (*location, key))
        else:
            merged[key] = value
    return merged


def _old_description(
    base: Mapping[str, Any], new_source: object, given: Collection[str], changed_by: str, location: Location
) -> tuple[str, ...]:
    """Return the keys that describe the old model or file, where a section gets a new `source`; warn of its prefix.

    :param given: the keys that are set with the source.
    :param changed_by: where the new source comes from, for the warning.
    """
    section = _section_in(_type_at(location))
    if section is None or base.get("source") in (None, new_source):
        return ()
    if issubclass(section, TokenizerFile):
        return ("sha256",)
    if not issubclass(section, EncoderSection):
        return ()
    if base.get("prefix") and "prefix" not in given:
        where = ".".join(map(str, location))
        warn(
            f"{changed_by}: {where}.source is another model, so the prefix {base['prefix']!r} of the old one is left "
            f"out; give {where}.prefix if the new one needs it"
        )
    return ("sha256", "tokenizer", "prefix", "sentences", "trust_remote_code", "shape")


def _holds_named_entries(location: Location) -> bool:
    """Tell whether a location is `stages` or the objectives of a stage, where null removes an entry."""
    return location == ("stages",) or (len(location) == 3 and location[0] == "stages" and location[2] == "objectives")


def _remove_entry(entries: dict[str, Any], name: str, source: str, location: Location) -> None:
    if name not in entries:
        where = ".".join(map(str, location))
        known = ", ".join(map(str, entries)) or "none"
        raise InputError(f"{source}: {where}.{name}: null removes it, but there is none; {where} has {known}")
    del entries[name]


def _use_current_names(
    values: Mapping[str, Any], annotation: object, source: str, written: dict[Location, str], location: Location = ()
) -> dict[str, Any]:
    """Give the keys of a mapping their current names.

    :param annotation: the type of the mapping in the schema.
    :param source: where the values come from, for error messages.
    :param written: receives each key as written, by its location under current names.
    :raises InputError: when a key is given under both its names.
    """
    section = _section_in(annotation)
    current = {OLD_NAMES[name]: name for name in section.model_fields if name in OLD_NAMES} if section else {}
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = current.get(key, key)
        if name != key and name in values:
            above = "".join(f"{step}." for step in location)
            raise InputError(
                f"{source}: {above}{key} is the old name of {above}{name}, and both are given; remove {above}{key}"
            )
        place = (*location, name)
        written[place] = key
        if isinstance(value, Mapping):
            value = _use_current_names(value, _type_of(annotation, name), source, written, place)
        renamed[name] = value
    return renamed


def _section_in(annotation: object) -> type[BaseModel] | None:
    """Return the section that a type in the schema is, alone or beside other types; None where it is no section."""
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is Annotated:
        return _section_in(get_args(annotation)[0])
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ()
    return next(filter(None, map(_section_in, options)), None)


def _type_of(annotation: object, key: int | str) -> object:
    """Return the type of the value under a key of a section, a mapping or a list; None where the schema has none."""
    section = _section_in(annotation)
    if section:
        return section.model_fields[key].annotation if key in section.model_fields else None
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    return get_args(annotation)[0] if get_origin(annotation) is tuple else None


def _type_at(location: Location) -> object:
    """Return the type of the value at a location of a recipe; None where the schema has none."""
    annotation: object = Recipe
    for step in location:
        annotation = _type_of(annotation, step)
    return annotation


def _apply_override(raw: RawRecipe, override: str, given: Sequence[str]) -> None:
    """Set one value; unlike `extends`, an override replaces a mapping as a whole.

    :param given: the keys of all overrides.
    """
    dotted, equals, text = override.partition("=")
    source = f"override {short_repr(override)}"
    if dotted.count(".") >= DEEPEST:
        raise InputError(f"{source}: a key of more than {DEEPEST} parts; recipes have no such key")
    if not equals or not dotted:
        raise InputError(f"{source}: write key=value, for example stages.contrast.steps=100")
    if dotted == EXTENDS:
        raise InputError(f"{source}: write `{EXTENDS}` in a recipe file")

    # Nest the value under its keys, so that both get their current names.
    keys, value = dotted.split("."), parse_yaml(text, source)
    for key in reversed(keys):
        value = {key: value}
    origins: dict[Location, str] = {}
    value = _use_current_names(value, Recipe, source, origins)

    # Go to the part that holds the key, and set or remove it there.
    place, parents = raw.values, list[str]()
    for depth in range(1, len(keys)):
        ((name, value),) = value.items()
        parents.append(name)
        inner = place.get(name)
        if not isinstance(inner, dict | None):
            whole, kind = ".".join(keys[:depth]), "a list" if isinstance(inner, list) else "a value"
            raise InputError(f"{source}: {whole} is {kind}; set it as a whole: {whole}=...")
        place[name] = dict(inner or {})  # a YAML alias may share it with another part
        place = place[name]
    ((last, value),) = value.items()
    if value is None and _holds_named_entries(tuple(parents)):
        _remove_entry(place, last, source, tuple(parents))
    elif last == "source":
        above = dotted.removesuffix("source")
        beside = {key.removeprefix(above).split(".")[0] for key in given if key.startswith(above)}
        _set_source(place, value, beside, source, tuple(parents))
    else:
        place[last] = value
    raw.origins.update({location: Origin(source, key) for location, key in origins.items()})


def _set_source(
    section: dict[str, Any], new_source: object, given: Collection[str], changed_by: str, location: Location
) -> None:
    """Set the source of a section; what describes the old one stays only where another override gives it."""
    for key in _old_description(section, new_source, given, changed_by, location):
        if key not in given:
            section.pop(key, None)
    section["source"] = new_source


def _explain_all(error: ValidationError, raw: RawRecipe, file: Path) -> list[str]:
    """Describe each error in one line; unknown keys first, as one that is missing may be among them, misspelt."""
    errors = sorted(error.errors(), key=lambda details: details["type"] != "extra_forbidden")
    # pydantic counts the good entries of a list alone, and says of a `sha256` how it is neither a text nor a mapping
    above = {details["loc"][:-1] for details in errors}
    return [
        _explain(details, raw, file)
        for details in errors
        if not (details["type"] == "too_short" and details["loc"] in above)
        and details["loc"][-2:] != (_TEXT if isinstance(details["input"], Mapping) else _DIGESTS)
    ]


def _explain(error: Mapping[str, Any], raw: RawRecipe, file: Path) -> str:
    """Describe an error of pydantic in one line, with the keys as the user wrote them."""
    # Leave out the tags of unions, and pydantic's mark of an error in the name of an entry.
    location = tuple(
        step
        for above, step in pairwise(("", *error["loc"]))
        if not str(step).startswith("<") and step != "[key]" and (above, step) not in (_TEXT, _DIGESTS)
    )
    origins = [raw.origins.get(location[: depth + 1]) for depth in range(len(location))]
    steps = [origin.key if origin else str(step) for origin, step in zip(origins, location, strict=True)]
    key = ".".join(steps)
    setter = next((origin.source for origin in reversed(origins) if origin), str(file))
    suffix = f" (set in {setter})" if setter != str(file) else ""

    if error["type"] == "missing":
        near = []
        if location[0] == "stages" and len(location) > 1:  # a misspelt stage is a new one, which lacks keys
            others = [str(name) for name in raw.values["stages"] if name != location[1]]
            near = difflib.get_close_matches(str(location[1]), others, n=1)
        return f"key {key} is missing; add it{f', or did you mean stages.{near[0]}?' if near else ''}{suffix}"
    if error["type"] == "extra_forbidden":
        section = _section_in(_type_at(location[:-1]))
        known = [*section.model_fields] if section else []
        known += [EXTENDS] if len(location) == 1 else []
        near = difflib.get_close_matches(steps[-1], known, n=1)
        advice = f"did you mean {near[0]}?" if near else f"known keys are {', '.join(known)}"
        return f"unknown key {key}; {advice}{suffix}"
    got = "" if isinstance(error["input"], Mapping) else f", got {short_repr(error['input'])}"
    expected = _type_at(location)
    section = _section_in(expected) or _section_in(_type_of(expected, 0))
    plain = in_plain_words(error["type"], error["input"], error.get("ctx", {}), section)
    what, advice = plain or (error["msg"].removeprefix("Value error, "), "")
    return f"{key or 'recipe'}: {what}{got}{advice and '; '}{advice}".replace("\n", " ") + suffix
