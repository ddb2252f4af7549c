"""Everything outside that a recipe names, by the key that names it."""

from collections.abc import Iterator

from xcompress.recipe.encoders import Encoder
from xcompress.recipe.schema import Recipe


def encoders(recipe: Recipe) -> Iterator[tuple[str, Encoder]]:
    """Yield the recipe's encoders, by key."""
    part = recipe.assistant
    named = {
        **(recipe.teacher.together if recipe.teacher else {}),
        "assistant": part,
        "assistant.unit_from": part and part.unit_from,
        "assistant.rows_from": part and part.rows_from,
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
