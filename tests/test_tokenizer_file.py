"""Tokenizers that multiply a text or fail: refused in one line by everything that opens one."""

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.helpers.foreign import encoder
from tests.helpers.limits import frugal
from tests.helpers.odd_texts import ODD
from tests.helpers.student import CONFIG, SENTENCES, bundle, make_tokenizer, save_student
from xcompress import tokenizer_file
from xcompress.bench.latency import real_batches
from xcompress.bundle.encoder import Encoder
from xcompress.distillation.data.augment import cross_encoder
from xcompress.distillation.teachers.encoder import open_encoder
from xcompress.errors import InputError
from xcompress.modeling.load import import_encoder
from xcompress.modeling.student import Student, token_ids
from xcompress.recipe import TeacherSection
from xcompress.tokenizer_file import LONGEST_TEXT, as_value_error, id_range, ids_around, read_tokenizer, steps_of
from xcompress.vocab.student import encode_ids
from xcompress.vocab.trim import trim_model

DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


def sequence(steps: list[dict[str, Any]], name: str = "normalizers") -> dict[str, Any]:
    return {"type": "Sequence", name: steps}


def nested(step: dict[str, Any], times: int) -> dict[str, Any]:
    inner = step
    for _ in range(times):
        inner = sequence([inner, step])
    return inner


def charsmap(*replacements: str) -> dict[str, str]:
    table = (4).to_bytes(4, "little") + bytes(4) + b"".join(f"{text}\0".encode() for text in replacements)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def replace(found: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": found}, "content": content}


def metaspace(replacement: str) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": replacement, "prepend_scheme": "always", "split": True}


def template(single: str, pair: str = "AB") -> dict[str, Any]:
    """Describe one of texts alone."""
    texts = [[{"Sequence": {"id": name, "type_id": 0}} for name in names] for names in (single, pair)]
    return {"type": "TemplateProcessing", "single": texts[0], "pair": texts[1], "special_tokens": {}}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
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
    "countless steps": {"normalizer": sequence([{"type": "Strip", "strip_left": True, "strip_right": True}] * 5000)},
    "bytes of bytes": {"normalizer": sequence([{"type": "ByteLevel"}] * 4)},
    "bytes of bytes in pieces": {"pre_tokenizer": sequence([BYTES] * 4, "pretokenizers")},
    "spaces of two kinds": {"pre_tokenizer": sequence([metaspace("x"), metaspace("y")] * 5, "pretokenizers")},
    "bytes of doubled letters": {"normalizer": sequence([DOUBLE] * 5), "pre_tokenizer": BYTES},
    "ligatures of letters": {"normalizer": sequence([{"type": "NFKD"}, replace("\u0644", "\ufdfa")] * 3)},
    "capitals of dots": {"normalizer": sequence([{"type": "Lowercase"}, replace("\u0307", "\u0130")] * 9)},
    "Chinese letters of spaces": {
        "normalizer": sequence([json.loads(normalizers.BertNormalizer().__getstate__()), replace(" ", "中")] * 5)
    },
    "an added token that is doubled often": {
        "normalizer": sequence([DOUBLE] * 40),
        "added_tokens": [
            {"id": 5, "content": "a", "normalized": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
        ],
    },
    "a template that repeats the text": {"post_processor": template("AAA")},
    "a template that lacks the text": {"post_processor": template("")},
    "a template that repeats the text, in a sequence": {
        "post_processor": sequence([template("A"), template("AA")], "processors")
    },
    "a template that repeats the text of a pair": {"post_processor": template("A", "AABB")},
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
    "WordPiece of words of any length": {
        "model": {
            "type": "WordPiece",
            "unk_token": "x",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 1_000_000,
            "vocab": {"x": 0, "##x": 1},
        }
    },
    "a long token of Unigram": {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["x", 0.0], ["x" * 2000, 0.0]]}},
    "no tokenizer": {"model": {"type": "Unigram", "unk_id": 5, "vocab": [["a", 0.0]]}},
}


def write(file: Path, changes: dict[str, Any]) -> Path:
    file.write_text(json.dumps(json.loads(make_tokenizer().to_str()) | changes))
    return file


@pytest.mark.parametrize("name", BOMBS)
def test_a_tokenizer_that_multiplies_a_text_is_refused(name: str, tmp_path: Path) -> None:
    file = write(tmp_path / "tokenizer.json", BOMBS[name])
    with frugal(200), pytest.raises(InputError, match=r"\.json: not a tokenizer\.json \(.+\); fetch") as caught:
        read_tokenizer(file)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value).removeprefix(str(file))) < 300


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
    "bench": (save_student, lambda folder: real_batches(folder / "tokenizer.json", SENTENCES)),
}


@pytest.mark.parametrize("opener", OPENERS)
def test_everything_that_opens_a_tokenizer_refuses_it_in_one_line(opener: str, tmp_path: Path) -> None:
    make, open_model = OPENERS[opener]
    make(tmp_path / "model")
    for name in ("doubled in nested sequences", "a table that is none"):
        write(tmp_path / "model" / "tokenizer.json", BOMBS[name])
        with frugal(400), pytest.raises(InputError, match=r"tokenizer\.json: not a tokenizer\.json \(") as caught:
            open_model(tmp_path / "model")
        assert "\n" not in str(caught.value)


def test_real_normalizers_are_read(tmp_path: Path) -> None:
    steps = [
        normalizers.Replace("``", '"'),
        normalizers.NFKD(),
        normalizers.NFC(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Prepend("\u2581"),
        normalizers.Replace(" ", "\u2581"),
        normalizers.Replace(Regex(" {2,}"), " "),
    ]
    steps += [normalizers.Sequence(steps), normalizers.BertNormalizer(), normalizers.ByteLevel()]
    for normalizer in (None, *steps):
        for pre_tokenizer in (pre_tokenizers.Metaspace(), pre_tokenizers.ByteLevel()):
            tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
            tokenizer.pre_tokenizer = pre_tokenizer
            if normalizer:
                tokenizer.normalizer = normalizer
            tokenizer.save(str(tmp_path / "tokenizer.json"))
            assert read_tokenizer(tmp_path / "tokenizer.json").encode("a b").ids


def test_an_interrupt_stays_one_and_a_panic_becomes_a_value_error() -> None:
    for error in (KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(error), as_value_error():
            raise error
    with pytest.raises(ValueError, match=r"^first line$"), as_value_error():
        raise type("PanicException", (BaseException,), {})("first line\nsecond line")


def test_where_no_thread_can_start_the_file_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})("not initialized: ThreadPoolBuildError { kind: IOError }")
    monkeypatch.setattr(tokenizer_file, "_check_components", Mock(side_effect=panic))
    make_tokenizer().save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match=r"can start no thread; .* or set TOKENIZERS_PARALLELISM=false$"):
        read_tokenizer(tmp_path / "tokenizer.json")


def test_training_and_trimming_refuse_a_text_on_which_a_regular_expression_gives_up() -> None:
    tokenizer = make_tokenizer()
    tokenizer.normalizer = normalizers.Replace(Regex("(x+x+)+y"), "z")
    texts = ["rain", "x" * 26 + "😀"]
    for encode in (lambda: token_ids(tokenizer, texts, CONFIG), lambda: encode_ids(tokenizer, texts)):
        with pytest.raises(InputError, match=r"tokenizer: cannot tokenize one of the texts \(.+\); leave it out"):
            encode()


def test_the_ids_around_a_text_are_those_of_post_processor_and_padding() -> None:
    tokenizer = make_tokenizer()
    assert ids_around(tokenizer) == {0, 2}
    tokenizer.enable_padding(pad_id=7)
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(), processors.BertProcessing(("b", 11), ("a", 12))]
    )
    assert ids_around(tokenizer) == {7, 11, 12}
    assert ids_around(Tokenizer(models.WordLevel({}, unk_token=""))) == set()


def test_steps_are_those_of_nested_sequences_in_their_order() -> None:
    steps = [{"type": name} for name in "abcd"]
    assert list(steps_of(sequence([steps[0], sequence([steps[1], sequence([])]), *steps[2:]]))) == steps
    assert list(steps_of(sequence([sequence(steps[:1], "processors"), steps[1]], "pretokenizers"))) == steps[:2]
    assert list(steps_of(steps[0])) == steps[:1]
    assert list(steps_of(None)) == []
    assert len(list(steps_of(nested(DOUBLE, 5000)))) == 5001


def test_the_range_of_ids_ends_behind_the_highest_of_vocabulary_and_ends() -> None:
    tokenizer = Tokenizer(models.WordLevel({"rain": 3, "<unk>": 8}, unk_token="<unk>"))
    assert tokenizer.get_vocab_size() == 2
    assert id_range(tokenizer) == 9
    tokenizer.enable_padding(pad_id=11)
    assert id_range(tokenizer) == 12
    assert id_range(Tokenizer(models.WordLevel({}, unk_token=""))) == 0


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
