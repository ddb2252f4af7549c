"""Options that several commands share, and how their values are read."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def language_codes(text: str | None) -> tuple[str, ...]:
    """Split `de,en` into language codes; None and empty parts give none."""
    return tuple(code.strip() for code in (text or "").split(",") if code.strip())
