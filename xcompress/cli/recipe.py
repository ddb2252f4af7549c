"""`xcompress recipe`: list, show, copy and check recipes."""

from typing import TYPE_CHECKING, Annotated

import typer

from xcompress.cli.options import AsJson
from xcompress.cli.usage import CommandGroup

if TYPE_CHECKING:
    from xcompress.recipe import Recipe

EXTENDS = """
A recipe can extend another: `extends: other.yaml` (a file in its folder, or the name of a shipped recipe), followed by
the keys that differ. Mappings are merged; lists and values are replaced. A key set to null becomes null. A stage or an
objective set to null is removed: `stages: {imitation: null}`.
"""

app = typer.Typer(cls=CommandGroup, help=f"List, show, copy and check recipes.\n\n{EXTENDS}", no_args_is_help=True)


@app.command("list")
def list_recipes(json: AsJson = False) -> None:
    """List the recipes that ship with xcompress.

    Example:  xcompress recipe list
    """
    from shutil import get_terminal_size

    from xcompress.console import emit, emit_json
    from xcompress.recipe.text import list_shipped, list_text

    recipes = list_shipped()
    if json:
        emit_json(recipes)
    else:
        emit(list_text(recipes, get_terminal_size((120, 24)).columns))


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(help="Recipe file, or name of a shipped recipe.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe as key=value, such as student.bottleneck=256.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print a recipe in full, with the parameter counts of its models.

    Inherited keys and defaults are written out. Nothing is downloaded. The output is a valid recipe file; the counts
    are comments in it.

    Example:  xcompress recipe show paper/xlmr_b128_ru3

    Example:  xcompress recipe show paper/xlmr_b128_ru3 student.bottleneck=256 --json
    """
    from xcompress.console import emit, emit_json
    from xcompress.recipe import load_recipe
    from xcompress.recipe.parameters import count_parameters
    from xcompress.recipe.text import counts_json, recipe_text

    loaded = load_recipe(recipe, overrides or [])
    counts = count_parameters(loaded)
    if json:
        emit_json({"recipe": loaded.model_dump(mode="json"), "parameters": counts_json(counts)})
    else:
        emit(recipe_text(loaded, counts))


@app.command()
def copy(
    name: Annotated[str, typer.Argument(help="Name of a shipped recipe.")],
    destination: Annotated[
        str | None, typer.Argument(help="File, or folder (ends in / if new); default: the current folder.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Copy a shipped recipe to edit, with those that it extends.

    Comments are copied, too. To change a few keys, rather write a recipe that extends the shipped one.

    Example:  xcompress recipe copy minilm_ru3 mine.yaml
    """
    from xcompress.console import emit
    from xcompress.recipe.shipped import copy_recipe

    emit("\n".join(map(str, copy_recipe(name, destination, force=force))))


@app.command()
def validate(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="recipe|key=value",
            help="Names of shipped recipes, or recipe files. Changes to all of them as key=value, such as "
            "student.bottleneck=256.",
        ),
    ],
) -> None:
    """Check recipes before a run; download nothing.

    Checks keys, values, local paths, wheel references, shapes and local models. Every error is a line. Paths, shapes
    and models are checked once all keys and values are right. The exit code is 2 if a recipe has an error.

    Example:  xcompress recipe validate mine.yaml minilm_ru3

    Example:  xcompress recipe validate mine.yaml student.bottleneck=256
    """
    from xcompress.console import emit, fail
    from xcompress.errors import InputError
    from xcompress.recipe import load_recipe
    from xcompress.recipe.loading import RecipeError

    # A path with = in it can be given as ./PATH.
    overrides = [argument for argument in recipes if "=" in argument and "/" not in argument.partition("=")[0]]
    named = [argument for argument in recipes if argument not in overrides]
    if not named:
        raise InputError(f"{overrides[0]}: changes no recipe; name one before it, such as minilm_ru3")
    is_bad = False
    for recipe in named:
        try:
            faults = [f"{recipe}: {problem}" for problem in _find_problems(load_recipe(recipe, overrides))]
        except RecipeError as error:
            faults = [*error.faults]
        except InputError as error:
            faults = [str(error)]
        for fault in faults:
            fail(fault)
        if not faults:
            emit(f"{recipe}: ok")
        is_bad |= bool(faults)
    if is_bad:
        raise typer.Exit(2)


def _find_problems(recipe: "Recipe") -> list[str]:
    """Return what is wrong with a recipe, and with the local models that its student starts from."""
    from xcompress.errors import InputError
    from xcompress.packages import is_installed
    from xcompress.recipe.validation import local_encoders, problems, warn_of_likely_mistakes

    found = problems(recipe)
    warn_of_likely_mistakes(recipe)
    if not found and local_encoders(recipe) and is_installed("torch"):  # which reads models
        from xcompress.distillation.teachers.layer_sources import check_layer_sources

        try:
            check_layer_sources(recipe)
        except InputError as error:
            return [str(error)]
    return found
