"""Options that several commands share."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def language_codes(text: str | None) -> tuple[str, ...]:
    """Split `de,en` into language codes; ignore empty parts."""
    return tuple(code.strip() for code in (text or "").split(",") if code.strip())
