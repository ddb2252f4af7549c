"""Errors of usage as one line, such as an unknown option."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Commands whose errors of usage are one line, as all other errors: they quote what the user typed."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - typer does not export its contexts
        """Parse the options in front of a command."""
        with _on_one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Parse and run a command."""
        with _on_one_line():
            return super().invoke(ctx)


@contextmanager
def _on_one_line() -> Iterator[None]:
    try:
        yield
    except typer.TyperException as error:
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        from xcompress.console import fail

        context = getattr(error, "ctx", None)
        command = context.command_path if context else "xcompress"
        fail(f"{error.format_message().rstrip('.')}; see `{command} --help`")
        raise typer.Exit(2) from error
