"""What is wrong with a value of a recipe, and what to write instead, in place of pydantic's wording."""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from xcompress.errors import short_repr
from xcompress.recipe.section import LANGUAGE, NAME

_LONGEST_EXAMPLE = 40
"""Characters of a value that is quoted as an example."""
_PATTERNS = {
    LANGUAGE: ("not a language code", "write its two or three small letters, such as de"),
    NAME: ("not a name", "write letters, digits, dots, hyphens and underscores, with a letter or digit first"),
}
_TYPES = {
    "dict_type": ("not names with values", "write them, such as {name: value}"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("not a whole number", "write one, such as 2000")),
    **dict.fromkeys(("float_type", "float_parsing"), ("not a number", "write one, such as 0.1")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("neither true nor false", "write one of them")),
}
"""Errors that say the same of all values."""


def in_plain_words(
    kind: str, value: object, context: Mapping[str, Any], section: type[BaseModel] | None
) -> tuple[str, str] | None:
    """Return what is wrong and what to do; None for an error that pydantic words well.

    :param kind: pydantic's type of the error.
    :param context: what pydantic says beside it.
    :param section: the section that is expected at the error's place, or in a list there; None for other values.
    """
    match kind:
        case "tuple_type" | "list_type":
            return "not a list", f"write a list, such as {_list_of(value, section)}"
        case "model_type" | "model_attributes_type":
            keys = f"; its keys are {', '.join(section.model_fields)}" if section else ""
            return "not a part with keys", f"write keys and values, such as {_example(section)}{keys}"
        case "too_short":
            return "too few entries", f"give at least {context['min_length']}"
        case "string_type":
            return "not a text", _text_for(value)
        case "literal_error":
            # pydantic joins them in a text, such as `'mean', 'max' or 'cls'`
            choices = [choice.strip("'") for choice in re.split(r", | or ", str(context["expected"]))]
            near = difflib.get_close_matches(str(value), choices, n=1)
            return f"not one of {', '.join(choices)}", f"did you mean {near[0]}?" if near else "choose one of them"
        case "string_pattern_mismatch":
            return _PATTERNS.get(context["pattern"])
    return _TYPES.get(kind)


def _example(section: type[BaseModel] | None) -> str:
    """Write a section with its required keys, or its first one."""
    fields = section.model_fields if section else {}
    required = [name for name, field in fields.items() if field.is_required()] or [*fields][:1] or ["source"]
    return f"{{{', '.join(f'{name}: ...' for name in required)}}}"


def _list_of(value: object, section: type[BaseModel] | None) -> str:
    """Write a list of what the user gave, where that may be an item of it."""
    if section:
        return f"[{_example(section)}]"
    text = str(value).strip("()")  # of a tuple in Python
    is_item = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f"[{text}]" if is_item and len(text) <= _LONGEST_EXAMPLE else "[de]"


def _text_for(value: object) -> str:
    """Say how to write a value as text. YAML reads more words as booleans than the one that is shown."""
    if isinstance(value, bool):
        return f"YAML reads no and yes as booleans: quote it, such as {'yes' if value else 'no'!r}"
    if value is None or isinstance(value, Mapping | list):
        return "write one text"
    return f"quote it: {short_repr(str(value))}"
