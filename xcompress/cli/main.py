"""The program `xcompress`: all commands, and one line for every error."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from xcompress import __version__
from xcompress.cli import INTERRUPT_CODE, INTERRUPTED
from xcompress.cli.bench import bench
from xcompress.cli.demo import demo
from xcompress.cli.dequantize import dequantize
from xcompress.cli.distill import distill
from xcompress.cli.encode import embed, search
from xcompress.cli.export import export
from xcompress.cli.models import models
from xcompress.cli.recipe import app as recipe_commands
from xcompress.cli.trim import trim
from xcompress.cli.usage import CommandGroup
from xcompress.console import cannot_write, escape_unprintable, fail, flush_output
from xcompress.errors import InputError, XCompressError, first_line
from xcompress.files import is_disk_full

EXAMPLES = """
Three commands make a small encoder and show what was lost:

    xcompress distill recipes/minilm_ru3.yaml

    xcompress export --onnx --quantize

    xcompress bench --device cpu
"""

_CANNOT_START = (os.strerror(errno.EAGAIN), "can't start new thread")
"""How the system and Python say that a limit on processes is reached."""


class _Program(CommandGroup):
    """All commands. Ctrl-C and the end of a file inside a command come out of it as they are.

    Typer would exit without a word, or say that the command was aborted.
    """

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        """Parse the options in front of a command; typer imports pydantic for that."""
        with _one_line_at_ctrl_c():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - a Context of Click or of its copy in typer
        """Run a command."""
        try:
            with _one_line_at_ctrl_c(ctx):
                return super().invoke(ctx)
        except EOFError as error:
            raise RuntimeError(f"a file ends early ({first_line(error)})") from error


@contextmanager
def _one_line_at_ctrl_c(ctx: Any = None) -> Iterator[None]:  # noqa: ANN401
    """Print one line at Ctrl-C and exit; raise the exit at SIGTERM as it is.

    :param ctx: the context of the program, while it runs a command.
    """
    try:
        yield
    except BaseException as error:
        stop = _stop_behind(error)
        if isinstance(stop, KeyboardInterrupt):
            fail(INTERRUPTED + _advice(ctx and ctx.invoked_subcommand))
            raise typer.Exit(INTERRUPT_CODE) from None
        if stop is not None:
            raise stop from None
        raise


def _stop_behind(error: BaseException | None) -> BaseException | None:
    """Return Ctrl-C or the exit at SIGTERM; libraries in C++ (pybind11) make an ImportError of it in their import."""
    if isinstance(error, KeyboardInterrupt):
        return error
    while error is not None:
        cause = error.__cause__
        if isinstance(error, ImportError) and isinstance(cause, KeyboardInterrupt | SystemExit):
            return cause
        error = cause
    return None


class _TorchCommand(TyperCommand):
    """A command that may import torch, whose MKL ends the process where the current folder was removed."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401
        """Run the command, if there is a current folder."""
        Path.cwd()
        return super().invoke(ctx)


def _advice(command: str | None) -> str:
    """Return what to do after Ctrl-C where a command goes on with what it has begun."""
    to_file = any(word.startswith(("-o", "--output")) for word in sys.argv[1:])
    goes_on = command == "distill" or (command == "embed" and to_file)
    return "; run the same command again to continue" if goes_on else ""


app = typer.Typer(
    cls=_Program,
    help=f"Compress a multilingual sentence encoder for CPUs and phones, and measure what was lost.\n\n{EXAMPLES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_commands, name="recipe")
for torch_command in (distill, export, bench, trim, dequantize):
    app.command(cls=_TorchCommand)(torch_command)
for command in (embed, search, models, demo):
    app.command()(command)


def main() -> None:
    """Run the command line; print an error as one line and exit with its code.

    Exit codes: 2 for bad input or a missing optional package, 3 for refused quality, 130 for Ctrl-C, else 1.
    """
    debug = "--debug" in sys.argv
    if not debug:
        warnings.simplefilter("ignore")  # warnings of libraries, addressed to developers
    escape_unprintable()
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        fail(INTERRUPTED)
        code: object = INTERRUPT_CODE
    except SystemExit as error:
        # Typer ends its help with 1 where the reader has enough, such as `head`.
        has_enough = isinstance(error.__context__, BrokenPipeError) and {"--help", "--version"} & {*sys.argv}
        code = 0 if has_enough else error.code
    except BaseException as error:  # a panic of the tokenizers library is no Exception
        if debug:
            raise
        code = _explain(error)
    sys.exit(flush_output() or code)  # type: ignore[arg-type]


def _explain(error: BaseException) -> int:
    """Print an error as one line; return its exit code."""
    from xcompress.cli.extras import missing_extra

    if isinstance(error, XCompressError):
        # What is wrong with the input, the first worker of each host says for all there: a file may be missing on one.
        fail(str(error), by_any_worker=not isinstance(error, InputError) or os.environ.get("LOCAL_RANK") == "0")
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and (advice := missing_extra(sys.argv[1:], error)):
        fail(advice)
        return InputError.exit_code
    if isinstance(error, FileNotFoundError) and _is_current_folder_gone():
        fail("the current folder was removed; change to another one")
        return InputError.exit_code
    if isinstance(error, OSError) and is_disk_full(error) and error.filename is None:
        if not flush_output():  # which says so where a standard stream still holds what it could not write
            fail(cannot_write(error), by_any_worker=True)
        return XCompressError.exit_code
    if any(words in str(error) for words in _CANNOT_START):
        fail("no more processes or threads can start here; allow more (ulimit -u), or end others", by_any_worker=True)
        return XCompressError.exit_code
    what = f"unexpected {type(error).__name__}: {first_line(error)}"
    fail(f"{what}; add --debug in front of the command for the traceback", by_any_worker=True)
    return XCompressError.exit_code


def _is_current_folder_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"xcompress {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
