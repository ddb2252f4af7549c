"""The assistant before training: as it comes, and with a trimmed vocabulary and a head into the teacher's space."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from xcompress import __version__
from xcompress.corpus.words import read_words, with_capitals
from xcompress.distill.dev import dev_scores
from xcompress.distill.initial import least_squares_head, pooled, with_head
from xcompress.distill.materials import Materials
from xcompress.distill.run import Run, Step
from xcompress.distill.targets import vectors_of
from xcompress.importing import import_encoder
from xcompress.metrics import cosines
from xcompress.recipe import Recipe
from xcompress.sources import check, fingerprint, resolve
from xcompress.student import Student
from xcompress.vocabulary import kept_pieces, piece_counts, trim

PIECE_COUNTS = "piece_counts.npy"


def reference_step(recipe: Recipe, run: Run) -> Step:
    """Open the assistant as it comes: its whole vocabulary, no head. `bench` measures against it."""
    part = recipe.assistant
    files = [part.source, *([part.tokenizer.source] if part.tokenizer else [])]
    key = {
        "version": __version__,
        "assistant": part.model_dump(),
        "files": [fingerprint(file) for file in files],
        "max_tokens": recipe.student.max_tokens,
    }
    return run.step("reference", key, lambda folder: _import_assistant(recipe, folder))


def _import_assistant(recipe: Recipe, folder: Path) -> Mapping[str, object]:
    part = recipe.assistant
    path = resolve(part.source, part.sha256 if isinstance(part.sha256, str) else None)
    check(path, part.sha256 if isinstance(part.sha256, dict) else {}, part.source)
    tokenizer_file = resolve(part.tokenizer.source, part.tokenizer.sha256) if part.tokenizer else None
    assistant, tokenizer = import_encoder(
        path, tokenizer_file, prefix=part.prefix, max_tokens=recipe.student.max_tokens
    )
    assistant.save(folder, tokenizer)
    return {"sizes": assistant.sizes()}


def start_step(recipe: Recipe, run: Run, materials: Materials, reference: Step) -> Step:
    """Trim the assistant's vocabulary and fit its head, by least squares, to the teacher's vectors.

    The head is fitted without the prefix, and from here on no model in the run needs one.
    """
    key = {
        "version": __version__,
        "corpus": materials.corpus.key,
        "assistant": reference.key,
        "teacher": materials.teacher_key,
        "vocabulary": recipe.vocabulary.model_dump(),
    }
    return run.step("start", key, lambda folder: _build_start(recipe, materials, reference, folder))


def _build_start(recipe: Recipe, materials: Materials, reference: Step, folder: Path) -> Mapping[str, object]:
    full, full_tokenizer = Student.load(reference.folder)
    as_it_comes = dev_scores(vectors_of("assistant as it comes", full, full_tokenizer), materials)
    texts = [text for pair in materials.train for text in (pair.source, pair.target)]
    assistant, tokenizer = _trimmed(recipe, full, full_tokenizer, texts)
    assistant = _with_fitted_head(assistant, tokenizer, materials)
    assistant.save(folder, tokenizer)
    np.save(folder / PIECE_COUNTS, piece_counts(tokenizer, texts, assistant.config.vocab_size))
    with_fitted_head = vectors_of("assistant with a fitted head", assistant, tokenizer)
    held_out = sorted({pair.source for pair in materials.holdout})
    return {
        "vocabulary": {"before": full.config.vocab_size, "after": assistant.config.vocab_size},
        "held_out_cosine_to_teacher": float(cosines(with_fitted_head(held_out), materials.teacher(held_out)).mean()),
        "as_it_comes": asdict(as_it_comes),
        "dev": asdict(dev_scores(with_fitted_head, materials)),
    }


def _trimmed(recipe: Recipe, full: Student, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Student, Tokenizer]:
    part = recipe.vocabulary
    if part.method == "keep":
        return full, tokenizer
    words: list[str] = []
    for language in ("en", *recipe.languages) if part.words else ():
        path = resolve(str(part.words).format(language=language))
        words += with_capitals(read_words(path, part.words_per_language))
    return trim(full, tokenizer, kept_pieces(tokenizer, [*texts, *words]))


def _with_fitted_head(assistant: Student, tokenizer: Tokenizer, materials: Materials) -> Student:
    bare = pooled(assistant)
    vectors = vectors_of("assistant", bare, tokenizer)(materials.fitted_on)
    return with_head(bare, least_squares_head(vectors, materials.teacher(materials.fitted_on)))
