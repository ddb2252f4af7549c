"""The command line. Each command parses, calls one function and prints; what is heavy is imported inside."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompress import __version__
from xcompress.cli.bench import bench
from xcompress.cli.demo import demo
from xcompress.cli.encode import embed, search
from xcompress.cli.export import export
from xcompress.cli.models import models
from xcompress.cli.recipe import app as recipe_commands
from xcompress.cli.trim import trim

if TYPE_CHECKING:
    from xcompress.recipe import Recipe

EXAMPLES = """
Three commands make a small encoder and show what was lost:

    xcompress distill recipes/minilm_ru3.yaml

    xcompress export --onnx --quantize

    xcompress bench --device cpu
"""

app = typer.Typer(
    help=f"Compress a multilingual sentence encoder for CPUs and phones, and measure what was lost.\n\n{EXAMPLES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(recipe_commands, name="recipe")


def main() -> None:
    """Run the command line; turn errors into one line and an exit code (2 bad input, 3 refused quality, 1 the rest)."""
    from xcompress.console import fail
    from xcompress.errors import XCompressError

    if "--debug" not in sys.argv:
        warnings.simplefilter("ignore")  # other libraries' notes to their developers, not to the user
    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        fail("interrupted; run the same command again to go on from there")
        sys.exit(130)
    except XCompressError as error:
        _reraise_for_debug(error)
        fail(str(error))
        sys.exit(error.exit_code)
    except Exception as error:
        _reraise_for_debug(error)
        first_line = str(error).strip().split("\n")[0]
        fail(f"unexpected {type(error).__name__}: {first_line}; add --debug in front of the command for the traceback")
        sys.exit(1)


def _reraise_for_debug(error: Exception) -> None:
    if "--debug" in sys.argv:
        raise error


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"xcompress {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command()
def distill(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or the name of a shipped one (xcompress recipe list).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe: key=value, such as stages.contrast.steps=100.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", "--run-folder", help="Run folder; runs/<name> when not given. Under torchrun write --run-folder."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show stages, text, parameters, memory and time; do nothing.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs to <run>/tensorboard.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print manifest.json in place of a table.")] = False,
) -> None:
    """Distil a student from a recipe, stage by stage.

    A finished stage is reused and an interrupted one goes on where it stopped. Several processes or hosts share the
    work under torchrun.

    Example:  xcompress distill recipes/minilm_ru3.yaml

    Example:  xcompress distill recipes/minilm_ru3.yaml --dry-run

    Example:  torchrun --nproc-per-node 2 -m xcompress distill recipes/minilm_ru3.yaml

    Example:  xcompress distill recipes/minilm_ru3.yaml student.bottleneck=256 --run runs/b256
    """
    from xcompress.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    folder = run or Path("runs") / loaded.name
    if dry_run:
        _show_plan(loaded, folder, json)
        return
    from xcompress.console import emit
    from xcompress.distillation.pipeline import distill as run_distill
    from xcompress.distillation.summary import show

    run_distill(loaded, folder, tensorboard=tensorboard)
    if json:
        emit((folder / "manifest.json").read_text(encoding="utf-8"))
    else:
        show(folder)


def _show_plan(recipe: "Recipe", folder: Path, json: bool) -> None:
    from dataclasses import asdict
    from json import dumps

    from xcompress.console import emit
    from xcompress.distillation.plan import plan, show

    planned = plan(recipe, folder)
    if json:
        emit(dumps(asdict(planned), indent=2, ensure_ascii=False))
    else:
        show(planned)


for command in (export, bench, trim, embed, search, models, demo):
    app.command()(command)
