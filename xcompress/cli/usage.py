"""Commands whose errors of usage, such as an unknown option, are one line, and whose help texts fill the lines."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Commands whose errors of usage are one line, as all other errors: they quote what the user typed."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - typer does not export its contexts
        """Find a command, and join the lines of each paragraph of its help: typer would break them at any width."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = re.sub(r"(?<!\n)\n(?!\n| )", " ", inspect.cleandoc(command.help))
        return command

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Parse the options in front of a command."""
        with _on_one_line():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Parse and run a command."""
        with _on_one_line(ctx):
            return super().invoke(ctx)


@contextmanager
def _on_one_line(group: Any = None) -> Iterator[None]:  # noqa: ANN401 - a Context
    """Print an error of usage as one line, and exit with code 2.

    :param group: the context of the command's group, for errors that name none.
    """
    try:
        yield
    except typer.TyperException as error:
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        from xcompress.console import fail

        if context := getattr(error, "ctx", None):
            command = context.command_path
        else:
            command = f"{group.command_path} {group.invoked_subcommand}" if group else "xcompress"
        message = error.format_message().rstrip(".").replace("Value error, ", "")  # pydantic's, which typer calls
        is_text = type(error).__name__ == "NoSuchOption" and command.endswith((" embed", " search"))  # such as -5 Grad
        fail(f"{message}; see `{command} --help`{', or write -- in front of a text that begins with -' * is_text}")
        raise typer.Exit(2) from error
