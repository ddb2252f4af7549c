import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_student import SENTENCES, bundle, student_of_bundle

from xcompress.errors import InputError
from xcompress.runtime import Encoder
from xcompress.student import encode


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(bundle(), threads=1)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle(), tmp_path / "copy"))


def test_vectors_are_the_students(encoder: Encoder) -> None:
    vectors = encoder.encode(SENTENCES)
    expected = encode(*student_of_bundle(), SENTENCES)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(SENTENCES), encoder.dimension) == (5, 24)
    assert (vectors * expected).sum(1).min() > 0.99
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_order_is_kept_at_any_batch_size(batch_size: int) -> None:
    encoder = Encoder(bundle(), precision="fp32")
    alone = np.concatenate([encoder.encode(text) for text in SENTENCES])
    np.testing.assert_allclose(encoder.encode(SENTENCES, batch_size), alone, atol=1e-5)


def test_auto_takes_int8_where_there_is_one(encoder: Encoder, copy: Path) -> None:
    assert encoder.precision == "int8"
    (copy / "onnx/model_quantized.onnx").unlink()
    assert Encoder(copy).precision == "fp32"
    with pytest.raises(InputError, match=r"no onnx.model_quantized\.onnx"):
        Encoder(copy, precision="int8")


def test_one_string_is_a_list_of_one(encoder: Encoder) -> None:
    assert encoder.encode("rain").shape == (1, 24)


def test_nothing_gives_no_rows(encoder: Encoder) -> None:
    assert encoder.encode([]).shape == (0, 24)


def test_empty_and_long_texts_are_encoded(encoder: Encoder) -> None:
    vectors = encoder.encode(["", "rain " * 1000, "rain " * 2000])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(vectors[1], vectors[2], atol=1e-5)


def test_a_tokenizer_without_special_tokens_may_give_no_tokens(copy: Path) -> None:
    described = json.loads((copy / "tokenizer.json").read_text())
    (copy / "tokenizer.json").write_text(json.dumps({**described, "post_processor": None}))
    (copy / "manifest.json").write_text(json.dumps({**json.loads((copy / "manifest.json").read_text()), "prefix": ""}))
    assert np.isfinite(Encoder(copy).encode(["", "rain"])).all()


def test_the_prefix_comes_from_the_manifest(encoder: Encoder, copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "prefix": ""}))
    bare = Encoder(copy, threads=1)
    np.testing.assert_allclose(bare.encode("query: rain"), encoder.encode("rain"), atol=1e-6)
    assert np.abs(bare.encode("rain") - encoder.encode("rain")).max() > 1e-3


def test_similarity_is_the_cosine(encoder: Encoder) -> None:
    left, right = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [3.0, 4.0], [-3.0, -4.0]])
    np.testing.assert_allclose(encoder.similarity(left, right), [[0.96, 1, -1], [0, 0, 0]], atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "where"), [(["fine", 3], "item 1 is int"), (7, "are int"), ([None], "item 0 is None")]
)
def test_other_things_than_strings(encoder: Encoder, texts: object, where: str) -> None:
    with pytest.raises(InputError, match=where):
        encoder.encode(texts)


def test_a_batch_needs_room(encoder: Encoder) -> None:
    with pytest.raises(InputError, match="batch_size is 0"):
        encoder.encode(SENTENCES, 0)


def test_unknown_precision() -> None:
    with pytest.raises(InputError, match="'int4'; choose auto, int8 or fp32"):
        Encoder(bundle(), precision="int4")


def test_missing_and_foreign_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        Encoder(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"no manifest\.json here"):
        Encoder(tmp_path)
    for content in ("[]", "{}"):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(InputError, match="lacks format, dimension"):
            Encoder(tmp_path)


def test_a_bundle_of_a_later_version(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))
    with pytest.raises(InputError, match="upgrade xcompress"):
        Encoder(copy)


@pytest.mark.parametrize("name", ["onnx/model_quantized.onnx", "tokenizer.json"])
def test_a_damaged_file_is_named(copy: Path, name: str) -> None:
    (copy / name).write_bytes(b"damaged")
    with pytest.raises(InputError, match=Path(name).name):
        Encoder(copy)


def test_neither_torch_nor_transformers_is_needed(encoder: Encoder) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'onnx', 'sentence_transformers', 'scipy', 'rich', 'pydantic'):\n"
        "    sys.modules[name] = None\n"
        "from xcompress.runtime import Encoder\n"
        "print(*Encoder(sys.argv[1], threads=1).encode('rain')[0])\n"
    )
    command = [sys.executable, "-c", code, str(bundle())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose([float(number) for number in done.stdout.split()], encoder.encode("rain")[0], atol=1e-5)
