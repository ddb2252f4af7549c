from pathlib import Path

import numpy as np
import onnx
import pytest
from small_student import bundle, make_student, make_tokenizer, student_of_bundle

from xcompress.errors import GateError
from xcompress.export.verify import Bounds, Reference, reference_of, similarity_correlation, verify_fp32, verify_int8


@pytest.fixture(scope="module")
def reference() -> Reference:
    return reference_of(*student_of_bundle())


def test_batches_have_the_exact_shapes_and_end_with_the_closing_token(reference: Reference) -> None:
    assert reference.shapes == [[1, 1], [1, 7], [8, 33], [32, 128]]
    assert all(row[-1] == 2 for batch in reference.batches for row in batch)
    assert min(map(len, reference.batches[2])) < 33
    assert len({tuple(row[:9]) for row in reference.batches[2]}) > 4


def test_shapes_stay_within_what_the_student_takes() -> None:
    assert reference_of(make_student(max_tokens=20), make_tokenizer()).shapes == [[1, 1], [1, 7], [8, 20], [32, 20]]


def test_figures_come_with_their_bounds(reference: Reference) -> None:
    fp32 = verify_fp32(bundle() / "onnx/model.onnx", reference, Bounds())
    int8 = verify_int8(bundle() / "onnx/model_quantized.onnx", reference, Bounds())
    assert 0 < fp32["max_abs_difference"] < fp32["bound"] == 1e-4
    assert int8["bounds"]["int8_min_cosine"] <= int8["int8_min_cosine"] <= int8["int8_mean_cosine"] < 1
    assert int8["bounds"]["similarity_correlation"] <= int8["similarity_correlation"] < 1
    assert int8["bounds"]["invariance_min_cosine"] <= int8["invariance_min_cosine"] < 1


def test_similarities_are_correlated_whatever_the_vectors_lengths_and_frame() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(12, 5)).astype(np.float32)
    turned = vectors @ np.linalg.qr(generator.normal(size=(5, 5)))[0].astype(np.float32)
    assert similarity_correlation(vectors, 3 * turned) == pytest.approx(1, abs=1e-5)
    assert abs(similarity_correlation(vectors, generator.normal(size=(12, 5)).astype(np.float32))) < 0.5


def test_a_wrong_graph_is_refused(reference: Reference) -> None:
    # the int8 graph stands for a float32 graph that went wrong
    with pytest.raises(GateError, match=r"differs from PyTorch by .* bound 1e-04"):
        verify_fp32(bundle() / "onnx/model_quantized.onnx", reference, Bounds())


@pytest.mark.parametrize(
    "name", ["int8_mean_cosine", "int8_min_cosine", "similarity_correlation", "invariance_min_cosine"]
)
def test_each_figure_below_its_bound_is_refused(reference: Reference, name: str) -> None:
    with pytest.raises(GateError, match=rf"{name} .* is [01]\.\d+, bound 1\.1") as caught:
        verify_int8(bundle() / "onnx/model_quantized.onnx", reference, Bounds(**{name: 1.1}))
    assert caught.value.exit_code == 3


def test_a_graph_that_gives_no_numbers_is_refused(reference: Reference, tmp_path: Path) -> None:
    model = onnx.load(bundle() / "onnx/model.onnx")
    scale = next(weight for weight in model.graph.initializer if weight.name == "norm.weight")
    scale.raw_data = b"\x00\x00\xc0\x7f" * 32  # not a number
    onnx.save(model, tmp_path / "broken.onnx")
    with pytest.raises(GateError, match="nan"):
        verify_fp32(tmp_path / "broken.onnx", reference, Bounds())
