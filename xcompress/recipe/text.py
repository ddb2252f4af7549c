"""Print recipes: the list of shipped ones, and one in full with its parameter counts."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

import yaml

from xcompress.recipe.parameters import Counts, Parameters
from xcompress.recipe.schema import Recipe
from xcompress.recipe.shipped import shipped

ROW = "Row:"
"""Starts the comment that names the row of a paper that a recipe reproduces."""
HEADINGS = {
    "": "Recipes to start from",
    "paper": "Experiments of the papers, at their scale",
    "release": "How the released models were trained",
}
"""By the first word of the names of the recipes; the first heading has all others."""


@dataclass(frozen=True, slots=True)
class ShippedRecipe:
    """A shipped recipe, as the comment at the top of its file describes it."""

    name: str
    description: str
    row: str
    """The row of a paper that it reproduces, with the scores printed there; may be empty."""


def list_shipped() -> list[ShippedRecipe]:
    """Return all shipped recipes."""
    recipes = []
    for name, path in shipped().items():
        comment = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
        lines = [line.lstrip("# ").rstrip() for line in comment[0].splitlines()] if comment else []
        rows = [line.removeprefix(ROW).strip() for line in lines if line.startswith(ROW)]
        text = " ".join(line for line in lines if not line.startswith(ROW))
        first_sentence = re.split(r"(?<=\.)\s+(?=[A-Za-z\"])", text)[0]
        recipes.append(ShippedRecipe(name, first_sentence, "; ".join(rows)))
    return recipes


def list_text(recipes: Sequence[ShippedRecipe], width: int) -> str:
    """Return the recipes under headings, one paragraph each, in lines of at most `width` characters."""
    groups: dict[str, list[ShippedRecipe]] = {word: [] for word in HEADINGS}
    for recipe in recipes:
        word = re.split(r"[/_]", recipe.name)[0]
        groups[word if word in HEADINGS else ""].append(recipe)
    lines = []
    for word, group in groups.items():
        lines += ["", f"{HEADINGS[word]}:"]
        margin = max((len(recipe.name) for recipe in group), default=0) + 2
        for recipe in group:
            printed = f" In the paper, {recipe.row}." if recipe.row else ""
            text = textwrap.wrap(recipe.description + printed, max(width - margin, 20), break_on_hyphens=False)
            lines += [f"{name:{margin}}{line}" for name, line in zip_longest([recipe.name], text, fillvalue="")]
    return "\n".join(lines[1:])


def recipe_text(recipe: Recipe, parameters: Parameters) -> str:
    """Return a recipe file with all values, defaults included, and parameter counts as comments at its end."""
    values = yaml.safe_dump(
        recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    head = ["parameters", "R", "embedding", "encoder", "head", "total", "MB fp32", "MB int8"]
    rows = [head]
    for name, counts in (("assistant", parameters.assistant), ("student", parameters.student)):
        if counts is None:
            rows.append([name, *["unknown"] * (len(head) - 1)])
            continue
        numbers = [counts.embedding, counts.encoder, counts.head, counts.total]
        millions = ["unknown" if number is None else f"{number / 1e6:.2f}M" if number else "-" for number in numbers]
        sizes = [f"{counts.megabytes(bytes_each):.1f}" for bytes_each in (4, 1)]
        rows.append([name, str(counts.recurrences), *millions, *sizes])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]) for name, *cells in rows]
    comments = [*lines, *parameters.notes]
    return values + "\n" + "\n".join(f"# {line}".rstrip() for line in comments)


def counts_json(parameters: Parameters) -> dict[str, Any]:
    """Return parameter counts as plain values."""

    def values(counts: Counts) -> dict[str, Any]:
        sums = {"embedding": counts.embedding, "total": counts.total}
        return asdict(counts) | sums | {"fp32_megabytes": counts.megabytes(4), "int8_megabytes": counts.megabytes(1)}

    models = {"assistant": parameters.assistant, "student": parameters.student}
    return {name: values(counts) if counts else None for name, counts in models.items()} | {
        "notes": list(parameters.notes)
    }
