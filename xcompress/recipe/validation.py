"""Check the references and sizes of a loaded recipe. Nothing is fetched."""

from collections.abc import Iterator

from xcompress.bundle.released import RELEASED, released_folder
from xcompress.errors import InputError
from xcompress.files import as_path
from xcompress.recipe.parameters import count_parameters
from xcompress.recipe.schema import Recipe
from xcompress.sources import looks_like_path, parse_wheel, parts_of
from xcompress.sources.python_code import PYTHON, PYTHON_REFERENCE


def file_references(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the keys of files and folders that a run reads, other than the encoders themselves, and the references."""
    for key, encoder in recipe.encoders.items():
        if encoder.tokenizer:
            yield f"{key}.tokenizer.source", encoder.tokenizer.source
        if encoder.sentences_source:
            yield f"{key}.sentences", encoder.sentences_source
    yield from _text_references(recipe)
    cross_encoder = recipe.labelled.augment.cross_encoder if recipe.labelled.augment else ""
    if cross_encoder and (cross_encoder.startswith("wheel:") or looks_like_path(cross_encoder)):  # else a hub id
        yield "labelled.augment.cross_encoder", cross_encoder
    if recipe.vocabulary.method == "trim" or (recipe.monolingual and recipe.monolingual.word_sequences):
        yield from (("vocabulary.words", reference) for reference in recipe.vocabulary.word_lists(recipe.languages))
    if recipe.dev.sts:
        yield "dev.sts", recipe.dev.sts


def _text_references(recipe: Recipe) -> Iterator[tuple[str, str]]:
    yield from ((f"corpus.catalogues.{row}", reference) for row, reference in enumerate(recipe.corpus.catalogues))
    for row, tsv in enumerate(recipe.corpus.tsv):
        if tsv.language in recipe.languages:
            yield f"corpus.tsv.{row}.source", tsv.source
    for row, file in enumerate(recipe.monolingual.text if recipe.monolingual else ()):
        yield f"monolingual.text.{row}.source", file.source
    for kind in ("entailment", "graded"):
        for row, entry in enumerate(getattr(recipe.labelled, kind)):
            references = [entry] if isinstance(entry, str) else entry.sources.values()
            yield from ((f"labelled.{kind}.{row}", reference) for reference in references)


def problems(recipe: Recipe) -> list[str]:
    """Return what is wrong with a recipe, each problem in one line that names the key."""
    lines = []
    for key, encoder in recipe.encoders.items():
        source = encoder.source
        if source.startswith(PYTHON):
            if not PYTHON_REFERENCE.fullmatch(source):
                lines.append(f"{key}.source: {source}: not of the form {PYTHON}package.module:name")
        elif source.startswith(RELEASED):
            try:
                released_folder(source.removeprefix(RELEASED))
            except InputError as error:
                lines.append(f"{key}.source: {error}")
        elif source.startswith("wheel:") or looks_like_path(source):  # else a hub id, or a folder of that name
            lines += [f"{key}.source: {problem}" for problem in _reference_problems(source)]
    for key, reference in file_references(recipe):
        lines += [f"{key}: {problem}" for problem in _reference_problems(reference)]
    try:
        count_parameters(recipe)
    except InputError as error:
        lines.append(str(error))
    return lines


def _reference_problems(reference: str) -> Iterator[str]:
    for part in parts_of(reference):
        try:
            if part.startswith("wheel:"):
                parse_wheel(part)
            elif not as_path(part).exists():
                yield f"{part}: no such file or folder; put it there, or give another path"
        except InputError as error:
            yield str(error)
