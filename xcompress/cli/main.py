"""The program `xcompress`: all commands, and one line for every error."""

import sys
import warnings
from typing import Annotated

import typer

from xcompress import __version__
from xcompress.cli.bench import bench
from xcompress.cli.demo import demo
from xcompress.cli.distill import distill
from xcompress.cli.encode import embed, search
from xcompress.cli.export import export
from xcompress.cli.models import models
from xcompress.cli.recipe import app as recipe_commands
from xcompress.cli.trim import trim
from xcompress.cli.usage import CommandGroup

EXAMPLES = """
Three commands make a small encoder and show what was lost:

    xcompress distill recipes/minilm_ru3.yaml

    xcompress export --onnx --quantize

    xcompress bench --device cpu
"""

app = typer.Typer(
    cls=CommandGroup,
    help=f"Compress a multilingual sentence encoder for CPUs and phones, and measure what was lost.\n\n{EXAMPLES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_commands, name="recipe")
for command in (distill, export, bench, trim, embed, search, models, demo):
    app.command()(command)


def main() -> None:
    """Run the command line; print an error as one line and exit with its code.

    Exit codes: 2 for bad input or a missing optional package, 3 for refused quality, 130 for Ctrl-C, else 1.
    """
    from xcompress.cli.extras import missing_extra
    from xcompress.console import fail
    from xcompress.errors import InputError, XCompressError, first_line

    debug = "--debug" in sys.argv
    if not debug:
        warnings.simplefilter("ignore")  # warnings of libraries, addressed to developers
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to continue")
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        if isinstance(error, XCompressError):
            message, code = str(error), error.exit_code
        elif isinstance(error, ModuleNotFoundError) and (advice := missing_extra(sys.argv[1:], error)):
            message, code = advice, InputError.exit_code
        else:
            message = f"unexpected {type(error).__name__}: {first_line(error)}"
            message, code = f"{message}; add --debug in front of the command for the traceback", 1
        fail(message)
        sys.exit(code)


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
