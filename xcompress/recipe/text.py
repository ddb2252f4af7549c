"""Recipes as text: one resolved recipe with its parameter counts, and the list of those that ship."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from xcompress.recipe.parameters import Counts, Parameters
from xcompress.recipe.schema import Recipe
from xcompress.recipe.shipped import shipped

ROW = "Row:"
"""Starts the comment that says which row of a paper a recipe is."""
WIDEST = 46


@dataclass(frozen=True, slots=True)
class Listed:
    """A shipped recipe, as its file's first comment describes it."""

    name: str
    description: str
    row: str
    """The row of the paper that it reproduces, with the scores printed there; empty where there is none."""


def listed() -> list[Listed]:
    """Return all shipped recipes."""
    return [_listed(name, path) for name, path in shipped().items()]


def list_text(recipes: Sequence[Listed]) -> str:
    """Return a table of recipes, one a line."""
    rows = [[one.name, textwrap.shorten(one.description, WIDEST, placeholder=" ..."), one.row] for one in recipes]
    return "\n".join(aligned([["name", "what it is", "row of the paper"], *rows], right=()))


def resolved(recipe: Recipe) -> dict[str, Any]:
    """Return everything that a recipe says, defaults included, as plain values."""
    return recipe.model_dump(mode="json")


def recipe_text(recipe: Recipe, counts: Parameters) -> str:
    """Return a recipe as YAML, defaults included, and its parameter counts as comments below: a recipe file again."""
    described = yaml.safe_dump(
        resolved(recipe), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    return described + "\n" + "\n".join(f"# {line}".rstrip() for line in _counts_lines(counts))


def counts_json(counts: Parameters) -> dict[str, Any]:
    """Return parameter counts as plain values."""
    models = {"assistant": counts.assistant, "student": counts.student}
    return {name: _plain(one) if one else None for name, one in models.items()} | {"notes": list(counts.notes)}


def aligned(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Lay cells out in columns.

    :param right: the columns whose cells end at the same place; in the others they start there.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return [line.rstrip() for line in lines]


def _listed(name: str, path: Path) -> Listed:
    comments = re.match(r"(?:#.*\n)*", path.read_text(encoding="utf-8"))
    lines = [line.lstrip("# ").rstrip() for line in comments[0].splitlines()] if comments else []
    rows = [line.removeprefix(ROW).strip() for line in lines if line.startswith(ROW)]
    text = " ".join(line for line in lines if not line.startswith(ROW))
    return Listed(name, re.split(r"(?<=\.)\s(?=[A-Z\"])", text)[0], "; ".join(rows))


def _plain(counts: Counts) -> dict[str, Any]:
    sums = {"embedding": counts.embedding, "total": counts.total}
    return asdict(counts) | sums | {"fp32_megabytes": counts.megabytes(4), "int8_megabytes": counts.megabytes(1)}


def _counts_lines(counts: Parameters) -> list[str]:
    head = ["parameters", "R", "embedding", "encoder", "head", "total", "MB fp32", "MB int8"]
    models = {"assistant": counts.assistant, "student": counts.student}
    rows = [_counts_row(name, one) if one else [name, *["unknown"] * (len(head) - 1)] for name, one in models.items()]
    return [*aligned([head, *rows], right=range(1, len(head))), *counts.notes]


def _counts_row(name: str, counts: Counts) -> list[str]:
    parts = [counts.embedding, counts.encoder, counts.head, counts.total]
    millions = ["unknown" if part is None else f"{part / 1e6:.2f}M" if part else "-" for part in parts]
    return [name, str(counts.recurrences), *millions, *(f"{counts.megabytes(size):.1f}" for size in (4, 1))]
