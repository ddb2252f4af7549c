"""Reading a recipe: YAML, `key=value` overrides, and errors that name the file, the key and the fix."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from xcompress.errors import InputError
from xcompress.recipe.extending import EXTENDS, Described, describe, holds_names, take_out
from xcompress.recipe.schema import Recipe
from xcompress.recipe.shipped import find_recipe


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
