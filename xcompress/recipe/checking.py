"""What is wrong with a recipe that loads: references that lead nowhere, shapes that cannot be. Nothing is fetched."""

import re
from collections.abc import Iterator
from pathlib import Path

from xcompress.errors import InputError
from xcompress.recipe.parameters import parameters
from xcompress.recipe.schema import PYTHON, Encoder, Recipe
from xcompress.sources import looks_like_path, parse_wheel

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)


def problems(recipe: Recipe) -> list[str]:
    """Return what can be seen to be wrong before anything is fetched, each in one line that names the key."""
    found = [f"{key}: {problem}" for key, encoder in _encoders(recipe) for problem in _of_source(encoder.source)]
    found += [f"{key}: {problem}" for key, reference in _files(recipe) for problem in _of_file(reference)]
    try:
        parameters(recipe)
    except InputError as error:
        found.append(str(error))
    return found


def _encoders(recipe: Recipe) -> Iterator[tuple[str, Encoder]]:
    part = recipe.assistant
    yield "teacher.source", recipe.teacher
    yield "assistant.source", part
    for key, encoder in (("unit_from", part.unit_from), ("rows_from", part.rows_from)):
        if encoder:
            yield f"assistant.{key}.source", encoder


def _files(recipe: Recipe) -> Iterator[tuple[str, str]]:
    for key, encoder in _encoders(recipe):
        if encoder.tokenizer:
            yield key.replace("source", "tokenizer.source"), encoder.tokenizer.source
        if encoder.sentences:
            yield key.replace("source", "sentences"), encoder.sentences
    yield from ((f"corpus.catalogues.{row}", reference) for row, reference in enumerate(recipe.corpus.catalogues))
    yield from ((f"corpus.tsv.{row}.source", tsv.source) for row, tsv in enumerate(recipe.corpus.tsv))
    if recipe.vocabulary.method == "trim" and recipe.vocabulary.words:
        words, languages = recipe.vocabulary.words, ("en", *recipe.languages)
        yield from (("vocabulary.words", words.replace("{language}", language)) for language in languages)
    if recipe.dev.sts:
        yield "dev.sts", recipe.dev.sts


def _of_source(source: str) -> list[str]:
    if source.startswith(PYTHON):
        well_formed = _FUNCTION.fullmatch(source.removeprefix(PYTHON))
        return [] if well_formed else [f"{source}: not of the form {PYTHON}package.module:name"]
    if not source.startswith("wheel:") and not looks_like_path(source):
        return []  # a hub id, or a folder of that name
    return _of_file(source)


def _of_file(reference: str) -> list[str]:
    if not reference.startswith("wheel:"):
        exists = Path(reference).expanduser().exists()
        return [] if exists else [f"{reference}: no such file or folder; put it there, or give another path"]
    try:
        parse_wheel(reference)
    except InputError as error:
        return [str(error)]
    return []
