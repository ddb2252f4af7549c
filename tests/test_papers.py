"""benchmarks/papers.md says where each equation is; files and names have to be there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "benchmarks" / "papers.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)`((?:,? `\w+`)+)")
PLACES = sorted({(file, name) for file, names in NAMED.findall(TEXT) for name in re.findall(r"\w+", names)})


def defined(file: str) -> set[str]:
    tree = ast.parse((ROOT / "xcompress" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize(("file", "name"), PLACES)
def test_what_an_equation_is_said_to_be_in_is_there(file: str, name: str) -> None:
    assert name in defined(file)


@pytest.mark.parametrize(
    ("heading", "equations"),
    [("Multi-stage", range(1, 10)), ("Calibrated", range(1, 3)), ("Lightweight", range(1, 8))],
)
def test_every_equation_has_a_row(heading: str, equations: range) -> None:
    section = next(part for part in TEXT.split("\n## ") if part.startswith(heading))
    first_cells = re.findall(r"^\| (\d+) \|", section, re.M)
    assert sorted(set(map(int, first_cells))) == list(equations)


def test_there_are_enough_places_to_look_at() -> None:
    assert len(PLACES) > 30
