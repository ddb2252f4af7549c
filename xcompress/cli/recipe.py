"""`xcompress recipe`: the recipes that ship, what one says in full, a copy to edit, and whether a recipe is right."""

from pathlib import Path
from typing import Annotated

import typer

EXTENDS = """
A recipe may say `extends: other.yaml` (a file beside it, or the name of a shipped recipe) and then only what differs.
Mappings are merged, lists and values replaced. A key set to null becomes null; a stage or an objective set to null is
taken out: `stages: {imitation: null}`.
"""

app = typer.Typer(help=f"List, show, copy and check recipes.\n\n{EXTENDS}", no_args_is_help=True)

Reference = Annotated[str, typer.Argument(metavar="NAME_OR_PATH", help="A shipped recipe's name, or a recipe file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_recipes(json: AsJson = False) -> None:
    """List the recipes that ship with xcompress.

    Example:  xcompress recipe list
    """
    from dataclasses import asdict

    from xcompress.recipe.text import list_shipped, list_text

    recipes = list_shipped()
    _emit([asdict(recipe) for recipe in recipes] if json else list_text(recipes))


@app.command()
def show(
    recipe: Reference,
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes to the recipe: key=value, such as student.bottleneck=256.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show a recipe in full, with all that it extends and every default, and how many parameters its models have.

    Nothing is fetched. What is printed is a recipe file again; the counts are comments in it.

    Example:  xcompress recipe show paper/xlmr_b128_ru3

    Example:  xcompress recipe show paper/xlmr_b128_ru3 student.bottleneck=256 --json
    """
    from xcompress.recipe import load_recipe
    from xcompress.recipe.parameters import count_parameters
    from xcompress.recipe.text import counts_json, recipe_text, resolved

    loaded = load_recipe(recipe, overrides or [])
    counts = count_parameters(loaded)
    _emit({"recipe": resolved(loaded), "parameters": counts_json(counts)} if json else recipe_text(loaded, counts))


@app.command()
def copy(
    name: Annotated[str, typer.Argument(help="A shipped recipe's name.")],
    destination: Annotated[Path | None, typer.Argument(help="File or folder; here when not given.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Copy a shipped recipe to edit it, comments and all, with the recipes that it extends beside it.

    Example:  xcompress recipe copy minilm_ru3 mine.yaml
    """
    from xcompress.recipe.shipped import copy_recipe

    _emit("\n".join(map(str, copy_recipe(name, destination, force=force))))


@app.command()
def validate(
    recipes: Annotated[list[str], typer.Argument(metavar="PATH...", help="Recipe files, or shipped recipes' names.")],
) -> None:
    """Check recipes: keys and values, local paths, references to wheels, shapes. Nothing is fetched.

    The exit code is 2 when any recipe is bad.

    Example:  xcompress recipe validate mine.yaml minilm_ru3
    """
    from xcompress.console import fail

    bad = {recipe: problem for recipe in recipes if (problem := _problem(recipe))}
    for recipe in recipes:
        if recipe in bad:
            fail(bad[recipe])
        else:
            _emit(f"{recipe}: ok")
    if bad:
        raise typer.Exit(2)


def _problem(recipe: str) -> str | None:
    from xcompress.errors import InputError
    from xcompress.recipe import load_recipe
    from xcompress.recipe.validation import problems

    try:
        found = problems(load_recipe(recipe))
    except InputError as error:
        return str(error)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{recipe}: {found[0]}{more}" if found else None


def _emit(result: object) -> None:
    import json

    from xcompress.console import emit

    emit(result if isinstance(result, str) else json.dumps(result, indent=2, ensure_ascii=False))
