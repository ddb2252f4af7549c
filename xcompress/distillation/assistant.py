"""Prepare the assistant: load it (reference step), trim its vocabulary and fit a head to the teacher (start step).

Without an assistant the start step makes the student itself, with a vocabulary trained on the text and random weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from xcompress import __version__
from xcompress.bundle.released import RELEASED
from xcompress.corpus.sequences import ConcatSequence
from xcompress.corpus.word_lists import read_words, with_capitals
from xcompress.distillation.data.corpus import Corpus
from xcompress.distillation.data.labelled import Labelled
from xcompress.distillation.data.monolingual import Monolingual
from xcompress.distillation.data.sentences import SIDES, Sentences
from xcompress.distillation.dev import dev_scores
from xcompress.distillation.initialization import least_squares_head, mean_of_weights, with_head, without_head
from xcompress.distillation.run_folder import Run, Step
from xcompress.distillation.shape import scratch_config
from xcompress.distillation.teachers.encoder import locate
from xcompress.distillation.teachers.ensemble import Encoders, FrozenEncoder
from xcompress.distillation.teachers.layer_sources import import_layers
from xcompress.distillation.teachers.vectors import student_encoder
from xcompress.distillation.training_data import SCORED, TrainingData
from xcompress.errors import InputError
from xcompress.metrics import cosines
from xcompress.modeling.student import Student
from xcompress.recipe import Recipe
from xcompress.sources import fingerprint, resolve
from xcompress.sources.python_code import PYTHON
from xcompress.vocab.student import count_tokens, replace_token_embeddings, seen_tokens, trim_student
from xcompress.vocab.train import retrain, train_new_tokenizer

TOKEN_COUNTS = "piece_counts.npy"
"""File of the start step: how often each token occurs in the training text, (V,)."""
PAD = "<pad>"


def reference_step(recipe: Recipe, run: Run, encoders: Encoders) -> Step | None:
    """Load the unmodified assistant, without a head. `bench` measures students against it.

    :returns: the step; None for a student that starts from scratch.
    """
    layers, embeddings = encoders.layer_source, encoders.embeddings_from
    if layers is None:
        return None
    max_tokens = recipe.student.max_tokens
    key = {"version": __version__, "max_tokens": max_tokens, "unit": layers.fingerprint}
    if embeddings:
        key["rows"] = embeddings.fingerprint
    if encoders.soup:
        key["soup"] = [encoder.fingerprint for encoder in encoders.soup]
    build = partial(_build_reference, encoders, layers, max_tokens)
    return run.step("reference", key, build, together=False)


def _build_reference(encoders: Encoders, layers: FrozenEncoder, max_tokens: int, folder: Path) -> Mapping[str, object]:
    student, tokenizer = _import(layers, max_tokens)

    # Average the weights with those of the encoders of the soup.
    states = [student.state_dict()]
    for encoder in encoders.soup:
        other, of_other = _import(encoder, max_tokens)
        if other.config != student.config or of_other.get_vocab() != tokenizer.get_vocab():
            raise InputError(
                f"{encoder.key}: {encoder.section.source} differs from {layers.section.source} in shape or vocabulary; "
                "choose students of runs that started alike"
            )
        states.append(other.state_dict())
    if encoders.soup:
        student.load_state_dict(mean_of_weights(states))

    if embeddings := encoders.embeddings_from:
        source, tokenizer = _import(embeddings, max_tokens)
        if source.config.hidden_size != student.config.hidden_size:
            raise InputError(
                f"{embeddings.key}: its embeddings have {source.config.hidden_size} components, and the encoder whose "
                f"layers are used is {student.config.hidden_size} wide; choose encoders of equal width"
            )
        rows = source.embeddings.word.weight
        if source.embeddings.projection is not None:
            rows = source.embeddings.projection(rows)
        student = replace_token_embeddings(student, rows.detach(), source.config.pad_token_id)
    student.save(folder, tokenizer)
    return {"sizes": student.sizes()}


def _import(encoder: FrozenEncoder, max_tokens: int) -> tuple[Student, Tokenizer]:
    return import_layers(encoder.section, locate(encoder.section, encoder.key), encoder.key, max_tokens)


def start_step(
    recipe: Recipe,
    run: Run,
    corpus: Corpus,
    monolingual: Monolingual,
    labelled: Labelled,
    encoders: Encoders,
    reference: Step | None,
    get_data: Callable[[], TrainingData],
) -> Step:
    """Give the assistant the student's vocabulary, and fit its head by least squares to the teacher's vectors.

    The head is fitted without the assistant's prefix: from here on no model of the run needs one.

    The vocabulary is made of all text that training reads: translations, sentences without them, and labelled pairs.

    :param reference: None for a student that starts from scratch, which this step then makes.
    :param get_data: called when the step is built.
    """
    key: dict[str, object] = {
        "version": __version__,
        "corpus": corpus.step.key,
        "assistant": reference.key if reference else recipe.student.model_dump(by_alias=True),
        "teacher": encoders.teacher.fingerprint if encoders.teacher else None,
        "vocabulary": recipe.vocabulary.model_dump(by_alias=True),
        "widths": recipe.widths,
        "normalize": recipe.normalizes,
        "seed": recipe.seed,
    }
    # Word lists in wheels are not hashed: their references name a version.
    lists = recipe.vocabulary.word_lists(recipe.languages) if recipe.vocabulary.method == "trim" else []
    words = [fingerprint(source) for source in lists if not source.startswith("wheel:")]
    # Absent where the recipe has none, so that the keys of earlier versions stay valid.
    more = {"word lists": words, "monolingual": monolingual.key, "labelled": labelled.key}
    key |= {name: value for name, value in more.items() if value}
    parts = [corpus.train, monolingual.pairs, *(pairs.pairs for pairs in labelled.kinds.values())]
    text = ConcatSequence([Sentences(pairs, side) for pairs in parts for side in SIDES])
    if reference is None:
        return run.step("start", key, partial(_build_scratch_student, recipe, text, get_data))
    return run.step("start", key, partial(_build_assistant, recipe, text, get_data, reference))


def _build_scratch_student(
    recipe: Recipe, text: Sequence[str], get_data: Callable[[], TrainingData], folder: Path
) -> Mapping[str, object]:
    from transformers import set_seed

    tokenizer = train_new_tokenizer(text, recipe.vocabulary.trained_size)
    set_seed(recipe.seed)
    config = scratch_config(recipe, tokenizer.get_vocab_size(), tokenizer.token_to_id(PAD))
    if recipe.widths == "head" and (teacher := get_data().teacher):
        config = replace(config, head_size=teacher.sources.dimension)
    student = Student(config).eval()
    student.save(folder, tokenizer)
    return {
        "vocabulary": {"before": 0, "after": student.config.vocab_size},
        "dev": asdict(dev_scores(student_encoder("student before training", student, tokenizer), get_data().dev)),
    }


def _build_assistant(
    recipe: Recipe, text: Sequence[str], get_data: Callable[[], TrainingData], reference: Step, folder: Path
) -> Mapping[str, object]:
    data = get_data()
    original, original_tokenizer = Student.load(reference.folder)
    original_scores = dev_scores(student_encoder("unmodified assistant", original, original_tokenizer), data.dev)
    assistant, tokenizer = _change_vocabulary(recipe, original, original_tokenizer, text)

    # Drop the prefix, and fit a head to the teacher's vectors where the recipe has one.
    if data.teacher and recipe.widths == "head":
        assistant = without_head(assistant)
        vectors = student_encoder("assistant", assistant, tokenizer)(data.fit_texts)
        assistant = with_head(assistant, least_squares_head(vectors, data.teacher.of_text(data.fit_texts)))
    assistant.config = replace(assistant.config, normalize=recipe.normalizes, prefix="")
    assistant.save(folder, tokenizer)
    counts = count_tokens(tokenizer, text, assistant.config.vocab_size)
    np.add.at(counts, tokenizer.encode("").ids, len(text))  # the special tokens of each text, which are embedded, too
    np.save(folder / TOKEN_COUNTS, counts)

    # Score it beside the teacher, and beside an assistant that is a Python function.
    facts: dict[str, object] = {
        "vocabulary": {"before": original.config.vocab_size, "after": assistant.config.vocab_size}
    }
    encode = student_encoder("assistant before training", assistant, tokenizer)
    if data.teacher:
        held_out = sorted({pair.source for pair in data.dev.pairs})
        cosine = float(cosines(encode(held_out), data.teacher.of_text(held_out)).mean()) if held_out else None
        facts["widths"] = {
            "by": recipe.widths,
            "teacher": data.teacher.sources.vectors.dimension,
            "encoder": assistant.config.hidden_size,
            "student": assistant.config.dimension,
        }
        facts["held_out_cosine_to_teacher"] = cosine
    facts["as_it_comes"] = asdict(original_scores)
    if data.assistant and recipe.assistant and recipe.assistant.source.startswith((PYTHON, RELEASED)):
        facts["assistant"] = asdict(dev_scores(data.assistant().by_text(SCORED), data.dev))
    return facts | {"dev": asdict(dev_scores(encode, data.dev))}


def _change_vocabulary(
    recipe: Recipe, student: Student, tokenizer: Tokenizer, text: Sequence[str]
) -> tuple[Student, Tokenizer]:
    """Keep, trim or retrain the vocabulary, as the recipe says."""
    section = recipe.vocabulary
    if section.method == "keep":
        return student, tokenizer
    if section.method == "train":
        return retrain(student, tokenizer, text, section.trained_size)
    words: list[str] = []
    for source in section.word_lists(recipe.languages):
        words += with_capitals(read_words(resolve(source), section.words_per_language))
    kept = seen_tokens(tokenizer, ConcatSequence([text, words]), section.size)
    # tokenizer.json need not name the token that the encoder pads with
    return trim_student(student, tokenizer, sorted({*kept, student.config.pad_token_id}))
