"""What a run's model was made from, in words for its card: text with counts and licences, models, commands."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from xcompress.bundle.integrity import MANIFEST
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.files import read_json
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.encoders import Section
from xcompress.recipe.shipped import shipped, shipped_folder
from xcompress.sources import parse_wheel, parts_of
from xcompress.sources.archives import joined_name

Entry = TypeVar("Entry")
_PACKED = re.compile(r"\.(xz|gz)$")
_OF_LANGUAGE = re.compile(r"(?P<corpus>.+)\.en-[a-z]{2,3}\.tsv")


class Described(Section):
    """Where something comes from, and under which licence, as its source states it."""

    title: str
    source: str
    licence: str


class Table(Section):
    """What is known of the text, the models and the dev sets of released models, by name; * stands for anything."""

    licence: str
    """Of the released weights."""
    text: dict[str, Described]
    refused: dict[str, str]
    """Text that no released model may have read, and why."""
    models: dict[str, Described]
    dev: dict[str, Described]
    limits: tuple[str, ...] = ()
    """What released models are bad at, a sentence each."""


def table_file() -> Path:
    """Return the table that ships with xcompress, beside its recipes."""
    return shipped_folder() / "release.data.yaml"


def read_table(file: Path) -> Table:
    """Read a table such as recipes/release.data.yaml.

    :raises InputError: in one line that names file and key.
    """
    try:
        return Table.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); name a table like release.data.yaml") from error
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not valid YAML ({str(error).splitlines()[0]}); correct it") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "file"
        raise InputError(f"{file}: {key}: {first['msg']}; correct it") from error


def short_name(reference: str) -> str:
    """Name a text or model as the table does: the corpus, the wheel, what parts are joined to, or the file."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return Path(joined_name(Path(parts[0]).name)).stem
    if reference.startswith("wheel:"):
        return parse_wheel(reference).name
    name = _PACKED.sub("", Path(reference).name)
    match = _OF_LANGUAGE.fullmatch(name)
    return match["corpus"] if match else name


def find_entry(entries: Mapping[str, Entry], name: str) -> Entry | None:
    """Return the entry of a name: its own, or the first whose pattern it fits."""
    return entries.get(name) or next((entry for key, entry in entries.items() if fnmatchcase(name, key)), None)


def text_of_all(runs: Sequence[Path], table: Table) -> list[dict[str, Any]]:
    """List the text that runs could read, as `text_read` does for one; what several read is counted once.

    :raises InputError: when a text is not in the table, or must not be read.
    """
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for text in text_read(read_json(run / MANIFEST), load_recipe(run / "recipe.yaml"), table):
            pairs = found.setdefault(text["name"], text)["pairs"]
            pairs |= {language: max(count, pairs.get(language, 0)) for language, count in text["pairs"].items()}
    return list(found.values())


def models_of_all(runs: Sequence[Path], table: Table) -> list[dict[str, str]]:
    """List the models that runs used, as `models_used` does for one, those of earlier runs under the run's name.

    :raises InputError: when one is not in the table.
    """
    *earlier, last = (load_recipe(run / "recipe.yaml") for run in runs)
    found = models_used(last, table)
    for recipe in earlier:
        known = {model["reference"] for model in found}
        found += [
            model | {"role": f"{model['role']} of {recipe.name}"}
            for model in models_used(recipe, table)
            if model["reference"] not in known
        ]
    return found


def text_read(run: Mapping[str, Any], recipe: Recipe, table: Table) -> list[dict[str, Any]]:
    """List the text that a run could read in training, each corpus with its pairs by language.

    :param run: what manifest.json of the run says.
    :raises InputError: when a text is not in the table, or must not be read.
    """
    pairs: dict[str, dict[str, int]] = {}
    for name, language, count in _counted(run, recipe):
        own = pairs.setdefault(name, {})
        own[language] = own.get(language, 0) + count
    return [{"name": name, **_text_entry(table, name), "pairs": counts} for name, counts in pairs.items()]


def _counted(run: Mapping[str, Any], recipe: Recipe) -> Iterator[tuple[str, str, int]]:
    """Yield name, language and pairs of every text; word lists have no pairs."""
    for language, origins in run["steps"]["corpus"]["facts"]["train"].items():
        for origin, count in origins.items():
            yield short_name(origin), language, count
    for kind in ("entailment", "graded"):
        references = getattr(recipe.labelled, kind)
        count = run["steps"].get("labelled", {}).get("facts", {}).get(kind, 0)
        yield from ((short_name(reference), "en", count if not row else 0) for row, reference in enumerate(references))
    for name in dict.fromkeys(map(short_name, recipe.vocabulary.word_lists(recipe.languages))):
        yield name, "", 0


def _text_entry(table: Table, name: str) -> dict[str, str]:
    refused, known = find_entry(table.refused, name), find_entry(table.text, name)
    if refused:
        raise InputError(f"{name}: must not be in a released model ({refused}); train without it")
    if known is None:
        raise InputError(f"{name}: the table of text has no such entry; add title, source and licence, or refuse it")
    return known.model_dump()


def models_used(recipe: Recipe, table: Table) -> list[dict[str, str]]:
    """List the models that lent vectors, layers, rows or a tokenizer, each with what it was.

    :raises InputError: when one is not in the table.
    """
    used = [(role, encoder.source) for role, encoder in recipe.encoders.items()]
    used += [(f"{role}'s tokenizer", one.tokenizer.source) for role, one in recipe.encoders.items() if one.tokenizer]
    if recipe.labelled.augment:
        used.append(("grades more pairs", recipe.labelled.augment.cross_encoder))
    return [{"role": role, **_model_entry(table, short_name(source)), "reference": source} for role, source in used]


def _model_entry(table: Table, name: str) -> dict[str, str]:
    known = find_entry(table.models, name)
    if known is None:
        raise InputError(f"{name}: the table of models has no such entry; add title, source and licence")
    return known.model_dump()


def changes(shipped_as: str, recipe: Recipe) -> list[str]:
    """List, as `key=value`, in what a run's recipe differs from one that ships: with these it is made again.

    :param shipped_as: name of the shipped recipe.
    :raises InputError: when there is none, or no such list makes it the run's recipe.
    """
    if shipped_as not in shipped():
        raise InputError(f"{shipped_as}: no shipped recipe of this name, so nobody could rebuild the model; add it")
    own, theirs = _flat(recipe.model_dump(mode="json")), _flat(load_recipe(shipped_as).model_dump(mode="json"))
    keys = [key for key in {**theirs, **own} if not key.startswith("budgets")]
    found = [f"{key}={_inline(own.get(key))}" for key in keys if own.get(key) != theirs.get(key)]
    try:
        same = load_recipe(shipped_as, found).hash == recipe.hash
    except InputError:
        same = False
    if not same:
        raise InputError(f"{shipped_as}: differs from the run's recipe in more than values; ship the run's recipe")
    return found


def _flat(value: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Map dotted keys to values; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        nested = isinstance(inner, dict) and inner and not any("." in key for key in inner)
        flat |= _flat(inner, f"{above}{name}.") if nested else {above + name: inner}
    return flat


def _inline(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def export_command(run: str, bundle: Path, options: Mapping[str, Any]) -> str:
    """Return the command that exported a bundle.

    :param run: the run's folder, as the command names it.
    :param options: what the bundle's manifest says was asked for.
    """
    usual = {**asdict(ExportConfig()), "precision": None}
    given = [(key, value) for key, value in options.items() if value != usual.get(key) and _is_set(value)]
    words = ["xcompress export", run, *(_option(key, value) for key, value in given)]
    words += ["--no-ort"] if options.get("ort") is False else []
    depth = options.get("recurrences")
    usual_place = "bundle" if depth is None else f"bundle-r{depth}"
    return " ".join(words if bundle.name == usual_place else [*words, f"--output {run}/{bundle.name}"])


def _is_set(value: object) -> bool:
    return value is not None and value is not False and value != []


def _option(key: str, value: object) -> str:
    flag = "--" + {"dimension": "dim"}.get(key, key).replace("_", "-")
    if key == "text" and isinstance(value, list):
        return " ".join(f"{flag} {quote(path)}" for path in value)
    if value is True:
        return flag
    return f"{flag} {','.join(value) if isinstance(value, list) else value}"
