"""What is wrong with a recipe that loads: references that lead nowhere, shapes that cannot be. Nothing is fetched."""

from collections.abc import Iterator
from pathlib import Path

from xcompress.errors import InputError
from xcompress.recipe.encoders import Encoder
from xcompress.recipe.parameters import parameters
from xcompress.recipe.schema import Recipe
from xcompress.sources import looks_like_path, parse_wheel, parts_of
from xcompress.sources.python_code import PYTHON, PYTHON_REFERENCE


def encoders(recipe: Recipe) -> Iterator[tuple[str, Encoder]]:
    """Yield the recipe's encoders, by key."""
    part = recipe.assistant
    named = {
        **(recipe.teacher.together if recipe.teacher else {}),
        "assistant": part,
        "assistant.layers_from": part and part.layers_from,
        "assistant.embeddings_from": part and part.embeddings_from,
    }
    yield from ((key, encoder) for key, encoder in named.items() if encoder)


def files(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield references to files and folders beside the encoders themselves, by key."""
    for key, encoder in encoders(recipe):
        if encoder.tokenizer:
            yield f"{key}.tokenizer.source", encoder.tokenizer.source
        if encoder.sentences_source:
            yield f"{key}.sentences", encoder.sentences_source
    yield from ((f"corpus.catalogues.{row}", reference) for row, reference in enumerate(recipe.corpus.catalogues))
    yield from ((f"corpus.tsv.{row}.source", tsv.source) for row, tsv in enumerate(recipe.corpus.tsv))
    for kind in ("entailment", "graded"):
        references = getattr(recipe.labelled, kind)
        yield from ((f"labelled.{kind}.{row}", reference) for row, reference in enumerate(references))
    yield from (("vocabulary.words", reference) for reference in recipe.vocabulary.word_lists(recipe.languages))
    if recipe.dev.sts:
        yield "dev.sts", recipe.dev.sts


def problems(recipe: Recipe) -> list[str]:
    """Return what can be seen to be wrong before anything is fetched, each in one line that names the key."""
    found = [f"{key}.source: {problem}" for key, part in encoders(recipe) for problem in _of_source(part.source)]
    found += [f"{key}: {problem}" for key, reference in files(recipe) for problem in _of_file(reference)]
    try:
        parameters(recipe)
    except InputError as error:
        found.append(str(error))
    return found


def _of_source(source: str) -> list[str]:
    if source.startswith(PYTHON):
        well_formed = PYTHON_REFERENCE.fullmatch(source)
        return [] if well_formed else [f"{source}: not of the form {PYTHON}package.module:name"]
    if not source.startswith("wheel:") and not looks_like_path(source):
        return []  # a hub id, or a folder of that name
    return _of_file(source)


def _of_file(reference: str) -> list[str]:
    return [problem for part in parts_of(reference) for problem in _of_part(part)]


def _of_part(reference: str) -> list[str]:
    if not reference.startswith("wheel:"):
        exists = Path(reference).expanduser().exists()
        return [] if exists else [f"{reference}: no such file or folder; put it there, or give another path"]
    try:
        parse_wheel(reference)
    except InputError as error:
        return [str(error)]
    return []
