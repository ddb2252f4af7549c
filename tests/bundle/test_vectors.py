from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.student import SENTENCES, bundle, change_manifest
from xcompress.bundle.encoder import Encoder, VectorPrecision
from xcompress.errors import InputError


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(bundle(), threads=1)


def test_similarity_is_the_cosine(encoder: Encoder) -> None:
    left, right = np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[4.0, 3.0], [3.0, 4.0], [-3.0, -4.0]])
    np.testing.assert_allclose(encoder.similarity(left, right), [[0.96, 1, -1], [0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(left[0], right), [[0.96, 1, -1]], atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(left[0], right[0]), [[0.96]], atol=1e-6)


@pytest.mark.parametrize(
    ("left", "right", "what"),
    [
        (np.zeros((2, 3)), np.zeros((2, 4)), "3 and 4 numbers wide; give vectors of one encoder"),
        (np.zeros(3), np.zeros((5, 4)), "3 and 4 numbers wide"),
        (np.zeros((1, 2, 3)), np.zeros((2, 3)), "left has 3 dimensions"),
        (np.zeros((2, 3)), np.array(1.0), "right has 0 dimensions"),
        ([[1.0], [1.0, 2.0]], np.zeros((2, 2)), "left is not an array of numbers"),
        (["rain"], np.zeros((2, 2)), "left is not an array of numbers"),
        (None, np.zeros((2, 2)), "left is not an array of numbers"),
        (np.zeros((2, 2)), {"a": 1}, "right is not an array of numbers"),
        (np.zeros((1, 3), np.uint8), np.zeros((2, 4), np.uint8), "right has 4 bytes of bits a vector, not 3"),
        (np.zeros((1, 24)), np.zeros((2, 24), np.uint8), "right has 24 bytes of bits a vector, not 3"),
        (np.zeros((2, 3), np.uint8).tolist(), np.zeros((1, 3), np.uint8), "left is int64; give bits as np.uint8, and"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(encoder: Encoder, left: object, right: object, what: str) -> None:
    with pytest.raises(InputError, match=f"^similarity: .*{what}") as error:
        encoder.similarity(left, right)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("scale", [np.float32(1e-25), np.float32(1e25), np.float64(1e-60), np.float64(1e60)])
def test_similarity_and_bits_do_not_depend_on_the_length(encoder: Encoder, scale: np.floating) -> None:
    vectors = encoder.encode(SENTENCES)
    scaled = vectors * scale
    assert scaled.dtype == scale.dtype
    np.testing.assert_allclose(encoder.similarity(scaled, vectors), encoder.similarity(vectors, vectors), atol=1e-6)
    for precision in ("int8", "ubinary"):
        np.testing.assert_allclose(encoder.store_as(scaled, precision), encoder.store_as(vectors, precision), atol=1)


def test_vectors_of_int8_and_of_bits(encoder: Encoder) -> None:
    vectors = encoder.encode(SENTENCES)
    small, bits = (encoder.encode(SENTENCES, precision=precision) for precision in ("int8", "ubinary"))
    assert (small.dtype, small.shape) == (np.int8, vectors.shape) and (np.abs(small).max(axis=1) == 127).all()
    assert (bits.dtype, bits.shape) == (np.uint8, (len(SENTENCES), encoder.dimension // 8))
    whole = encoder.similarity(vectors, vectors)
    np.testing.assert_allclose(encoder.similarity(small, small), whole, atol=0.01)
    around_mean = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) - encoder.mean_vector
    signs = np.where(around_mean > 0, 1, -1)
    np.testing.assert_allclose(encoder.similarity(bits, bits), signs @ signs.T / encoder.dimension, atol=1e-6)
    mixed = signs @ (around_mean / np.linalg.norm(around_mean, axis=1, keepdims=True)).T / encoder.dimension**0.5
    np.testing.assert_allclose(encoder.similarity(bits, vectors), mixed, atol=1e-6)
    np.testing.assert_allclose(encoder.similarity(vectors, bits), mixed.T, atol=1e-6)
    np.testing.assert_array_equal(encoder.store_as(vectors, "ubinary"), bits)
    assert encoder.encode("rain", precision="ubinary").shape == (encoder.dimension // 8,)
    with pytest.raises(InputError, match="encode: precision is 'binary'; choose float32, int8 or ubinary"):
        encoder.encode("rain", precision="binary")
    for shape in ((24,), (2, 23)):
        with pytest.raises(InputError, match=rf"store_as: the vectors have shape \({shape[0]},.*\); give \(n, 24\)"):
            encoder.store_as(np.zeros(shape, dtype=np.float32), "ubinary")
    with pytest.raises(InputError, match="store_as: vectors is not an array of numbers"):
        encoder.store_as([[1.0], [1.0, 2.0]], "int8")  # type: ignore[arg-type]
    assert not encoder.store_as(np.zeros((1, 24), dtype=np.float32), "int8").any()


@pytest.mark.parametrize("held_by", [memoryview, torch.from_numpy])
def test_bits_of_other_libraries_are_bits(encoder: Encoder, held_by: Callable[[object], object]) -> None:
    bits = encoder.encode(SENTENCES, precision="ubinary")
    np.testing.assert_array_equal(encoder.similarity(held_by(bits), bits), encoder.similarity(bits, bits))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_not_finite_is_not_stored(encoder: Encoder, precision: VectorPrecision, number: float) -> None:
    vectors = encoder.encode(SENTENCES)
    vectors[1, 5] = number
    with pytest.raises(InputError, match="store_as: row 1 of the vectors holds NaN or infinity; leave it out"):
        encoder.store_as(vectors, precision)


def test_bits_are_signs_where_the_manifest_has_no_mean_vector(bundle_copy: Path) -> None:
    change_manifest(bundle_copy, mean_vector=[])
    encoder = Encoder(bundle_copy)
    expected = np.packbits(encoder.encode(SENTENCES) > 0, axis=1)
    np.testing.assert_array_equal(encoder.encode(SENTENCES, precision="ubinary"), expected)
