"""recipes/README.md lists every key as the schema has it: type, default and meaning."""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import UnionType
from typing import Literal, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tests.helpers import ROOT
from xcompress.bundle.manifest import read_manifest
from xcompress.bundle.released import released_folder
from xcompress.recipe import (
    EncoderSection,
    EnsembleMember,
    EnsembleSection,
    ObjectiveName,
    Recipe,
    load_recipe,
    read_budgets,
)
from xcompress.recipe.section import OLD_NAMES

README = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
BENCH = (ROOT / "xcompress" / "bench" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^    extends: .*\n(?:    .*\n)+", README, re.M)
"""Whole recipes: indented lines that begin with `extends`."""


def sections_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections_in(field.annotation)
    for argument in get_args(annotation):
        yield from sections_in(argument)


SECTIONS = list(dict.fromkeys([*sections_in(Recipe), EncoderSection, EnsembleMember, EnsembleSection]))


def meanings(section: type[BaseModel]) -> dict[str, str]:
    """The first paragraph of the docstring below each key."""
    (body,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(statement.target, ast.Name) and isinstance(below.value, ast.Constant)
            text = str(below.value.value).split("\n\n")[0]
            found[statement.target.id] = " ".join(text.split()).replace("|", "\\|")
    return found


def type_text(annotation: object) -> str:
    """A type in the words of the README."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " \\| ".join(map(str, arguments))
    if origin in (Union, UnionType):
        return " or ".join(type_text(argument) for argument in arguments if argument is not type(None))
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is dict:
        names = "objective" if get_args(arguments[0])[:1] == get_args(ObjectiveName)[:1] else "name"
        return f"{names}: {type_text(arguments[1])}"
    if hasattr(annotation, "__metadata__"):
        return type_text(arguments[0])
    assert isinstance(annotation, type)
    return "section" if issubclass(annotation, BaseModel) else annotation.__name__


def default_text(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel | tuple | dict) or default == "":
        return "empty" if default in ((), {}, "") else "its defaults"
    return {"None": "null", "True": "true", "False": "false"}.get(str(default), str(default))


def rows(section: type[BaseModel]) -> list[str]:
    """The rows of the README's table of a section; keys of its base class are in the table of that one."""
    inherited = section.__bases__[0].model_fields if hasattr(section.__bases__[0], "model_fields") else {}
    texts = meanings(section)
    return [
        f"| `{name}` | {type_text(field.annotation)} | {default_text(field)} | {texts[name]} |"
        for name, field in section.model_fields.items()
        if name not in inherited
    ]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_is_listed_with_its_type_default_and_meaning(section: type[BaseModel]) -> None:
    assert "\n".join(rows(section)) in README


def test_no_key_is_listed_that_does_not_exist() -> None:
    listed = re.findall(r"^\| `(\w+)` \| .* \| .* \| .* \|$", README, re.M)
    existing = [row.split("`")[1] for section in SECTIONS for row in rows(section)]
    assert sorted(listed) == sorted(existing)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: re.findall("name: (.*)", text)[0].split()[0])
def test_the_recipes_of_the_pages_are_valid(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(dedent(text), encoding="utf-8")
    assert load_recipe(tmp_path / "mine.yaml").stages


def test_the_page_has_recipes_of_text_models_and_languages() -> None:
    recipes = "".join(EXAMPLES)
    assert all(f"{key}:" in recipes for key in ("tsv", "assistant", "languages", "teacher", "stages"))


def test_the_budgets_of_the_page_on_bench_are_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"^    budgets:\n(?:    .*\n)+", BENCH, re.M)
    (tmp_path / "ci.yaml").write_text(dedent(text), encoding="utf-8")
    limits = read_budgets(tmp_path / "ci.yaml")
    assert limits and limits.size_mb == 30


@pytest.mark.parametrize("name", OLD_NAMES)
def test_renamed_keys_are_listed_with_their_old_names(name: str) -> None:
    assert re.search(rf"\| [\w.]*\b{OLD_NAMES[name]} \| [\w.]*\b{name} \|", README)


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_every_objective_is_explained(objective: str) -> None:
    assert re.search(rf"^\| {objective} \| ", README, re.M)


def test_the_keys_that_train_a_released_model_further_are_valid_and_have_its_sizes(tmp_path: Path) -> None:
    lines = README.splitlines()
    start = next(number for number, line in enumerate(lines) if "assistant: {source: small-student" in line)
    file, base = tmp_path / "mine.yaml", ROOT / "recipes" / "minilm_eight.yaml"
    file.write_text(f"extends: {base}\n" + dedent("\n".join(lines[start : start + 4])))
    student = load_recipe(file).student
    sizes = {name: read_manifest(released_folder(name)) for name in ("small", "tiny")}
    of_small, of_tiny = ((of["unit_layers"], of["bottleneck"]["width"]) for of in sizes.values())
    assert (student.unit_layers, student.bottleneck) == of_small
    assert f"tiny has {of_tiny[0]} and {of_tiny[1]}" in lines[start + 3]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_becomes_parallel_text_as_the_page_says(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    code = dedent(README[README.index("    import csv  #") : README.index("- English is the first column")])
    (opened,) = re.findall(rf"rows = .*en-de\.{kind}.*", code)
    code = re.sub("import csv.*\n\nrows = .*", f"import csv, json, pandas\n{opened}", code)
    table = {"id": [1, 2, 3], "en": ["Who?", 'The "new"\nboat', "None."], "de": ["Wer?", "Das neue\tBoot", None]}
    with contextlib.chdir(tmp_path):
        pandas.DataFrame(table).to_csv("en-de.csv", index=False, encoding="utf-8-sig")
        pandas.DataFrame(table).to_json("en-de.jsonl", orient="records", lines=True)
        pandas.DataFrame(table).to_parquet("en-de.parquet")
        exec(code, {})
        assert Path("en-de.tsv").read_text() == 'Who?\tWer?\nThe "new" boat\tDas neue Boot\nNone.\t\n'
