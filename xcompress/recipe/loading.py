"""Reading a recipe: YAML, `key=value` overrides, and errors that name the file, the key and the fix."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from xcompress.errors import InputError
from xcompress.recipe.schema import Recipe


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Load a recipe file and apply `key=value` overrides, such as `stages.contrast.steps=100`.

    :raises InputError: in one line that names the file, the key and the fix.
    """
    described = _read_yaml(path)
    for override in overrides:
        _override(described, override)
    try:
        return Recipe.model_validate(described)
    except ValidationError as error:
        raise InputError(f"{path}: {_explain(error)}") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such recipe; recipes/ holds those that ship with xcompress") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give a UTF-8 YAML file") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}: line {line}: not valid YAML ({error.problem}); correct it") from error
    if not isinstance(described, dict):
        raise InputError(f"{path}: holds {type(described).__name__}, not keys and values; see recipes/minilm_ru3.yaml")
    return described


def _override(described: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    if not equals or not dotted:
        raise InputError(f"override {override!r}: write key=value, for example stages.contrast.steps=100")
    *parents, last = dotted.split(".")
    place: Any = described
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise InputError(f"override {override!r}: {parent} is a value, not a part of the recipe")
    place[last] = yaml.safe_load(text)


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
    known = _keys_at(Recipe, location[:-1])
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
