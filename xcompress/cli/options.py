"""Options that several commands share, and numbers within bounds."""

import math
from typing import Annotated, Any

import typer

from xcompress.errors import InputError, short_repr

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def language_codes(text: str | None) -> tuple[str, ...]:
    """Split `de,EN` into language codes in small letters; ignore empty parts.

    :raises InputError: when a code is not ASCII.
    """
    codes = tuple(code.strip().lower() for code in (text or "").split(",") if code.strip())
    if strange := next((code for code in codes if not code.isascii()), None):
        raise InputError(f"--languages: {short_repr(strange)} is no language code; write codes such as de,en")
    return codes


def whole_number(option: str, least: int, most: int, help: str) -> Any:  # noqa: ANN401 - as typer.Option
    """Return an option that takes a whole number from `least` to `most`."""

    def parse(text: str | int) -> int:
        try:
            number = int(text)
        except ValueError:  # no number, or one of thousands of digits
            number = least - 1
        if not least <= number <= most:
            raise InputError(f"{option} is {_written(text)}; give a whole number from {least} to {most:,}")
        return number

    return typer.Option(option, help=help, metavar="<int>", parser=parse)


def real_number(option: str, least: float, most: float, help: str) -> Any:  # noqa: ANN401 - as typer.Option
    """Return an option that takes a number from `least` to `most`, which is neither nan nor infinite."""

    def parse(text: str | float) -> float:
        try:
            number = float(text)
        except (ValueError, OverflowError):
            number = math.nan
        if not least <= number <= most:  # also refuses nan
            raise InputError(f"{option} is {_written(text)}; give a number from {least:g} to {most:g}")
        return number

    return typer.Option(option, help=help, metavar="<float>", parser=parse)


def _written(value: object) -> str:
    return short_repr(str(value)).strip("'\"")
