"""The encoder that lends its layers before training: as it comes, then with the student's vocabulary and a head."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from transformers import set_seed

from xcompress import __version__
from xcompress.corpus.sequences import ConcatSequence
from xcompress.corpus.word_lists import read_words, with_capitals
from xcompress.distillation.data.targets import Sentences
from xcompress.distillation.dev import dev_scores
from xcompress.distillation.initialization import config_from_nothing, headless, least_squares_head, pooled, with_head
from xcompress.distillation.materials import SIDES, Materials
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.teachers.encoder import encoder_fingerprint, import_layers, locate
from xcompress.distillation.teachers.vectors import VectorsOf, vectors_of
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.modeling.student import Student, StudentConfig
from xcompress.recipe import AssistantSection, Recipe
from xcompress.sources import resolve
from xcompress.sources.python_code import PYTHON
from xcompress.vocab.student import count_tokens, replace_token_embeddings, seen_tokens, trim_student
from xcompress.vocab.train import retrain, train_new_tokenizer

PIECE_COUNTS = "piece_counts.npy"
PAD = "<pad>"


def reference_step(recipe: Recipe, run: Run) -> Step | None:
    """Open the encoder that lends its layers as it comes, whole and without a head; `bench` measures against it."""
    part = recipe.assistant
    if part is None:
        return None
    lenders = {"unit": part.layer_source, "rows": part.embeddings_from}
    key = {
        "version": __version__,
        "max_tokens": recipe.student.max_tokens,
        **{name: encoder_fingerprint(part) for name, part in lenders.items() if part},
    }
    return run.step("reference", key, lambda folder: _open_lenders(recipe, part, folder), together=False)


def _open_lenders(recipe: Recipe, part: AssistantSection, folder: Path) -> Mapping[str, object]:
    donor_key = "assistant.layers_from" if part.layers_from else "assistant"
    max_tokens = recipe.student.max_tokens
    student, tokenizer = import_layers(part.layer_source, locate(part.layer_source, donor_key), donor_key, max_tokens)
    if part.embeddings_from:
        key = "assistant.embeddings_from"
        rows, tokenizer = import_layers(part.embeddings_from, locate(part.embeddings_from, key), key, max_tokens)
        if rows.config.hidden_size != student.config.hidden_size:
            raise InputError(
                f"assistant.embeddings_from: its rows have {rows.config.hidden_size} components, and the encoder that "
                f"lends the layers is {student.config.hidden_size} wide; choose encoders of one width"
            )
        student = replace_token_embeddings(student, rows.embeddings.word.weight.detach(), rows.config.pad_token_id)
    student.save(folder, tokenizer)
    return {"sizes": student.sizes()}


def start_step(recipe: Recipe, run: Run, materials: Materials, reference: Step | None) -> Step:
    """Give the encoder the student's vocabulary and fit its head, by least squares, to the teacher's vectors.

    The head is fitted without the prefix, and from here on no model in the run needs one. Without an encoder the step
    holds the student itself, with a vocabulary trained on the text and random weights.
    """
    key = {
        "version": __version__,
        "corpus": materials.corpus.key,
        "assistant": reference.key if reference else recipe.student.model_dump(by_alias=True),
        "teacher": materials.teacher_key,
        "vocabulary": recipe.vocabulary.model_dump(by_alias=True),
        "widths": recipe.widths,
        "normalize": recipe.normalizes,
        "seed": recipe.seed,
    }
    if reference is None:
        return run.step("start", key, lambda folder: _build_from_nothing(recipe, materials, folder))
    return run.step("start", key, lambda folder: _build_start(recipe, materials, reference, folder))


def _build_from_nothing(recipe: Recipe, materials: Materials, folder: Path) -> Mapping[str, object]:
    tokenizer = train_new_tokenizer(_text(materials), recipe.vocabulary.trained_size)
    set_seed(recipe.seed)
    config = config_from_nothing(recipe, tokenizer.get_vocab_size(), tokenizer.token_to_id(PAD))
    if recipe.teacher and recipe.widths == "head":
        config = replace(config, head_size=materials.taught.dimension)
    student = Student(config).eval()
    student.save(folder, tokenizer)
    return {
        "vocabulary": {"before": 0, "after": student.config.vocab_size},
        "dev": asdict(dev_scores(vectors_of("student before training", student, tokenizer), materials)),
    }


def _build_start(recipe: Recipe, materials: Materials, reference: Step, folder: Path) -> Mapping[str, object]:
    full, full_tokenizer = Student.load(reference.folder)
    as_it_comes = dev_scores(vectors_of("encoder as it comes", full, full_tokenizer), materials)
    encoder, tokenizer = _with_vocabulary(recipe, full, full_tokenizer, materials)
    encoder = _in_the_teachers_space(encoder, tokenizer, materials)
    encoder.save(folder, tokenizer)
    np.save(folder / PIECE_COUNTS, count_tokens(tokenizer, _text(materials), encoder.config.vocab_size))
    vectors = vectors_of("encoder before training", encoder, tokenizer)
    return {
        "vocabulary": {"before": full.config.vocab_size, "after": encoder.config.vocab_size},
        **_beside_teacher(recipe, materials, encoder.config, vectors),
        "as_it_comes": asdict(as_it_comes),
        **_advice(materials),
        "dev": asdict(dev_scores(vectors, materials)),
    }


def _beside_teacher(
    recipe: Recipe, materials: Materials, encoder: StudentConfig, vectors: VectorsOf
) -> dict[str, object]:
    if recipe.teacher is None:
        return {}
    held_out = sorted({pair.source for pair in materials.unseen})
    cosine = float(cosines(vectors(held_out), materials.teacher(held_out)).mean()) if held_out else None
    return {
        "widths": {
            "by": recipe.widths,
            "teacher": materials.taught.vectors.shape[1],
            "encoder": encoder.hidden_size,
            "student": encoder.dimension,
        },
        "held_out_cosine_to_teacher": cosine,
    }


def _advice(materials: Materials) -> dict[str, object]:
    """Score an assistant that is a function from sentences to vectors."""
    part = materials.recipe.assistant
    if part is None or not part.source.startswith(PYTHON):
        return {}
    return {"assistant": asdict(dev_scores(materials.advised.by_text("scored"), materials))}


def _text(materials: Materials) -> Sequence[str]:
    return ConcatSequence([Sentences(materials.train, side) for side in SIDES])


def _with_vocabulary(
    recipe: Recipe, full: Student, tokenizer: Tokenizer, materials: Materials
) -> tuple[Student, Tokenizer]:
    part = recipe.vocabulary
    if part.method == "keep":
        return full, tokenizer
    if part.method == "train":
        return retrain(full, tokenizer, _text(materials), part.trained_size)
    words: list[str] = []
    for reference in part.word_lists(recipe.languages):
        words += with_capitals(read_words(resolve(reference), part.words_per_language))
    return trim_student(full, tokenizer, seen_tokens(tokenizer, ConcatSequence([_text(materials), words]), part.size))


def fit_head(student: Student, tokenizer: Tokenizer, materials: Materials) -> Student:
    """Fit a student's head by least squares to the teacher's vectors, on both sides of the pairs that they are of.

    That of the assistant is made for its last layer, which a student with fewer layers does not reach.
    """
    pairs = materials.fitted_pairs
    texts = [getattr(pair, side) for side in SIDES for pair in pairs]
    goals = np.tile(materials.teacher([pair.source for pair in pairs]), (len(SIDES), 1))
    vectors = vectors_of("student before training", headless(student), tokenizer)(texts)
    student.load_state_dict(with_head(headless(student), least_squares_head(vectors, goals)).state_dict())
    return student


def _in_the_teachers_space(encoder: Student, tokenizer: Tokenizer, materials: Materials) -> Student:
    recipe = materials.recipe
    bare = pooled(encoder)
    if recipe.teacher:
        goals = materials.teacher(materials.fitted_on)  # refuses unlike widths, where they are to be equal
        if recipe.widths == "head":
            bare = headless(encoder)
            vectors = vectors_of("encoder", bare, tokenizer)(materials.fitted_on)
            bare = with_head(bare, least_squares_head(vectors, goals))
    bare.config = replace(bare.config, normalize=recipe.normalizes)
    return bare
