"""Everything outside that a recipe names, by the key that names it."""

from collections.abc import Iterator

from xcompress.recipe.schema import Encoder, Recipe


def encoders(recipe: Recipe) -> Iterator[tuple[str, Encoder]]:
    """Yield the recipe's encoders, by key."""
    part = recipe.assistant
    yield "teacher", recipe.teacher
    yield "assistant", part
    for name, encoder in (("unit_from", part.unit_from), ("rows_from", part.rows_from)):
        if encoder:
            yield f"assistant.{name}", encoder


def files(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield references to files and folders beside the encoders themselves, by key."""
    for key, encoder in encoders(recipe):
        if encoder.tokenizer:
            yield f"{key}.tokenizer.source", encoder.tokenizer.source
        if encoder.sentences_source:
            yield f"{key}.sentences", encoder.sentences_source
    yield from ((f"corpus.catalogues.{row}", reference) for row, reference in enumerate(recipe.corpus.catalogues))
    yield from ((f"corpus.tsv.{row}.source", tsv.source) for row, tsv in enumerate(recipe.corpus.tsv))
    yield from (("vocabulary.words", reference) for reference in recipe.vocabulary.word_lists(recipe.languages))
    if recipe.dev.sts:
        yield "dev.sts", recipe.dev.sts
