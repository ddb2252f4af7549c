"""Errors for users: one line of text each, and an exit code."""

import reprlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xcompress.printable import message_line

if TYPE_CHECKING:
    from pydantic import ValidationError

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


class XCompressError(Exception):
    """Base of the errors that users see; the text is one line: what is wrong, where, and what to do."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        """Keep the message as one printable line."""
        super().__init__(message_line(str(message)))


class InputError(XCompressError):
    """A recipe, reference, file, folder or option is unusable."""

    exit_code = 2


class GateError(XCompressError):
    """A result was refused because its measured quality is below the required bound."""

    exit_code = 3


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its class if it has no text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def on_one_line(error: object, limit: int = 300) -> str:
    """Return an error's whole text on one line of at most `limit` characters, or the name of its class if it has none.

    For errors whose first line does not say the cause.
    """
    return " ".join(str(error).split())[:limit] or type(error).__name__


def with_class(error: BaseException) -> str:
    """Return the name of an error's class and its text on one line, for errors of code that is not ours."""
    name, text = type(error).__name__, on_one_line(error)
    return name if text == name else f"{name}: {text}"


def first_mistake(error: "ValidationError") -> str:
    """Return where the first mistake that pydantic found is, what it is, and what is there."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "text"
    got = "" if isinstance(first["input"], Mapping) else f", got {short_repr(first['input'])}"
    return f"{place}: {first['msg']}{got}"


def short_repr(value: object) -> str:
    """Return the repr of a value that a user wrote, with its middle left out where it is long."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write an integer of thousands of digits
        return f"a {type(value).__name__} of thousands of digits"
