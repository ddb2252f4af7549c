"""Tokenizers that multiply a text or fail: refused in one line by everything that opens one."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers

from tests.helpers.foreign import encoder
from tests.helpers.limits import frugal
from tests.helpers.odd_texts import ODD
from tests.helpers.student import CONFIG, SENTENCES, bundle, make_tokenizer, save_student
from xcompress.bundle.encoder import Encoder
from xcompress.distillation.data.augment import cross_encoder
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.errors import InputError
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, token_ids
from xcompress.recipe import TeacherSection
from xcompress.tokenizer_file import LONGEST_TEXT, read_tokenizer
from xcompress.vocab.trim import trim_model

DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def sequence(steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": steps}


def nested(step: dict[str, Any], times: int) -> dict[str, Any]:
    inner = step
    for _ in range(times):
        inner = sequence([inner, step])
    return inner


def charsmap(*replacements: str) -> dict[str, str]:
    table = (4).to_bytes(4, "little") + bytes(4) + b"".join(f"{text}\0".encode() for text in replacements)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


BOMBS: dict[str, dict[str, Any]] = {
    "doubled often": {"normalizer": sequence([DOUBLE] * 40)},
    "doubled in nested sequences": {"normalizer": nested(DOUBLE, 40)},
    "replaced by much": {"normalizer": DOUBLE | {"content": "a" * 100_000}},
    "an expression that matches nothing": {
        "normalizer": sequence([{"type": "Replace", "pattern": {"Regex": "x*"}, "content": "yy"}] * 8)
    },
    "an empty pattern": {"normalizer": sequence([{"type": "Replace", "pattern": {"String": ""}, "content": "y"}] * 9)},
    "much in front": {"normalizer": {"type": "Prepend", "prepend": "a" * 1_000_000}},
    "much in front, doubled": {"normalizer": sequence([{"type": "Prepend", "prepend": "a" * 5000}, *[DOUBLE] * 6])},
    "a table with a long entry": {"normalizer": charsmap("a" * 10_000)},
    "countless steps": {"normalizer": sequence([{"type": "NFC"}] * 5000)},
    "padding": {
        "padding": {
            "strategy": {"Fixed": 10**12},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 1,
            "pad_type_id": 0,
            "pad_token": "<pad>",
        }
    },
    "a table that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "a table that leads out of itself": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\4\0\0\0abcdef\0").decode()}
    },
    "special tokens": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}] * 5000
            + [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        }
    },
    "no tokenizer": {"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]]}},
}


def write(file: Path, changes: dict[str, Any]) -> Path:
    file.write_text(json.dumps(json.loads(make_tokenizer().to_str()) | changes))
    return file


@pytest.mark.parametrize("name", BOMBS)
def test_a_tokenizer_that_multiplies_a_text_is_refused(name: str, tmp_path: Path) -> None:
    with frugal(200), pytest.raises(ValueError, match=r".") as caught:
        read_tokenizer(write(tmp_path / "tokenizer.json", BOMBS[name]))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


OPENERS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "bundle": (lambda folder: shutil.copytree(bundle(), folder), lambda folder: Encoder(folder, check=False)),
    "student": (lambda folder: save_student(folder), Student.load),
    "encoder": (lambda folder: shutil.copytree(encoder("bert"), folder), import_encoder),
    "teacher": (
        lambda folder: shutil.copytree(encoder("bert"), folder),
        lambda folder: open_encoder(TeacherSection(source=str(folder), pooling="mean"), "teacher"),
    ),
    "cross-encoder": (
        lambda folder: shutil.copytree(encoder("bert"), folder),
        lambda folder: cross_encoder(folder, [], 0, seed=0),
    ),
    "trim": (
        lambda folder: shutil.copytree(encoder("bert"), folder),
        lambda folder: trim_model(str(folder), None, languages=["de"], texts=[], size=None, min_count=1),
    ),
}


@pytest.mark.parametrize("opener", OPENERS)
def test_everything_that_opens_a_tokenizer_refuses_it_in_one_line(opener: str, tmp_path: Path) -> None:
    make, open_model = OPENERS[opener]
    make(tmp_path / "model")
    for name in ("doubled in nested sequences", "a table that is none"):
        write(tmp_path / "model" / "tokenizer.json", BOMBS[name])
        with frugal(400), pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer") as caught:
            open_model(tmp_path / "model")
        assert "\n" not in str(caught.value)


def test_real_normalizers_are_read(tmp_path: Path) -> None:
    steps = [
        normalizers.Replace("``", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Prepend("\u2581"),
        normalizers.Replace(" ", "\u2581"),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    for normalizer in (None, *steps, normalizers.Sequence(steps), normalizers.BertNormalizer()):
        tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
        if normalizer:
            tokenizer.normalizer = normalizer
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        assert read_tokenizer(tmp_path / "tokenizer.json").encode("a b").ids


def test_the_released_models_tokenizers_are_read() -> None:
    from xcompress.bundle.released import released_models

    for model in released_models():
        assert Encoder.from_pretrained(model["name"]).token_ids(["rain"])


def test_a_word_of_a_gigabyte_takes_neither_memory_nor_time() -> None:
    word = "x" * 300_000_000
    encoder = Encoder(bundle())
    tokenizer = make_tokenizer()
    with frugal(300):
        assert encoder.encode(word).shape == (encoder.dimension,)
        assert len(token_ids(tokenizer, [word], CONFIG)[0]) <= CONFIG.max_tokens


def test_the_cut_does_not_change_the_tokens_of_any_text_below_it() -> None:
    tokenizer = make_tokenizer()
    texts = [*SENTENCES, *ODD, *(text * (LONGEST_TEXT // max(len(text), 1)) for text in ODD)]
    assert max(map(len, texts)) <= LONGEST_TEXT
    tokenizer.enable_truncation(CONFIG.max_tokens)
    whole = [encoding.ids for encoding in tokenizer.encode_batch([CONFIG.prefix + text for text in texts])]
    assert token_ids(tokenizer, texts, CONFIG) == whole
