import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import torch

from tests.helpers.student import SENTENCES, bundle, make_student, make_tokenizer, student_of_bundle
from xcompress.bundle.engines import open_on_cpu
from xcompress.errors import GateError, InputError
from xcompress.export.verify import (
    MIXED_ROWS,
    Bounds,
    Reference,
    encode_in_batches,
    encode_with,
    interleave,
    make_reference,
    run_graph,
    similarity_correlation,
    verify_fp32,
    verify_quantized,
)
from xcompress.modeling.student import encode

TEXT = {"en": [*SENTENCES[:2], "rain", ""], "de": [SENTENCES[2]], "fr": [SENTENCES[4], "la mer"]}
FP32, INT8 = "onnx/model.onnx", "onnx/model_quantized.onnx"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference(*student_of_bundle(), TEXT)


def test_the_reference_is_what_pytorch_gives_each_sentence_alone(reference: Reference) -> None:
    student, tokenizer = student_of_bundle()
    assert list(reference.vectors) == ["en", "de", "fr"]
    for language, texts in TEXT.items():
        alone = np.concatenate([encode(student, tokenizer, [text]) for text in texts])
        np.testing.assert_allclose(reference.vectors[language], alone, atol=1e-6)


def test_batches_have_the_exact_shapes_and_end_with_the_closing_token(reference: Reference) -> None:
    shapes = ["1x1", "1x7", "8x33", "32x128", f"{MIXED_ROWS}x128 mixed"]
    assert list(reference.batches) == list(reference.batch_vectors) == shapes
    sizes = [(len(batch), max(map(len, batch))) for batch in reference.batches.values()]
    assert sizes == [(1, 1), (1, 7), (8, 33), (32, 128), (MIXED_ROWS, 128)]
    assert all((row[-1] == 2) == (len(row) > 1) for batch in reference.batches.values() for row in batch)
    assert min(map(len, reference.batches["8x33"])) < 33
    assert len({tuple(row[:9]) for row in reference.batches["8x33"]}) > 4
    mixed = [len(row) for row in reference.batches[shapes[-1]]]
    assert (mixed[0], len(set(mixed))) == (1, MIXED_ROWS)


def test_the_mean_vector_is_that_of_unit_vectors() -> None:
    reference = make_reference(make_student(normalize=False), make_tokenizer(), TEXT)
    rows = [row / np.linalg.norm(row) for vectors in reference.vectors.values() for row in vectors]
    assert not np.allclose(np.linalg.norm(reference.all_vectors, axis=1), 1)
    np.testing.assert_allclose(reference.mean_vector, np.mean(rows, axis=0), atol=1e-6)


def test_shapes_stay_within_what_the_student_takes() -> None:
    found = make_reference(make_student(max_tokens=20), make_tokenizer(), TEXT)
    assert list(found.batches) == ["1x1", "1x7", "8x20", "32x20", f"{MIXED_ROWS}x20 mixed"]
    assert max(len(row) for batch in found.batches.values() for row in batch) == 20


@pytest.mark.parametrize("text", [{"en": [""]}, {"en": ["   ", "\u200b"]}])
def test_text_without_tokens_breaks_nothing(text: dict[str, list[str]]) -> None:
    tokenizer = make_tokenizer()
    tokenizer.post_processor = None
    reference = make_reference(make_student(prefix=""), tokenizer, text)
    assert list(reference.vectors) == ["en"]
    assert all(np.isfinite(vectors).all() for vectors in reference.batch_vectors.values())


def test_rows_come_back_in_their_order_and_long_ones_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.export.verify.BATCH", 2)
    seen: list[list[int]] = []
    done: list[int] = []

    def lengths(batch: list[list[int]]) -> np.ndarray:
        seen.append([len(row) for row in batch])
        return np.array([[len(row)] for row in batch], dtype=np.float32)

    rows = [[0] * length for length in (5, 1, 4, 2, 3)]
    assert encode_in_batches(lengths, rows, done.append)[:, 0].tolist() == [5, 1, 4, 2, 3]
    assert (seen, done) == ([[1, 2], [3, 4], [5]], [2, 2, 1])


def test_batches_of_long_rows_have_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompress.export.verify.MOST_CELLS", 2 * 20**2)
    monkeypatch.setattr("xcompress.export.verify.BATCH", 4)
    seen: list[tuple[int, int]] = []

    def note(batch: list[list[int]]) -> np.ndarray:
        seen.append((len(batch), max(map(len, batch))))
        return np.array([[len(row)] for row in batch], dtype=np.float32)

    lengths = [20, 3, 50, 19, 4, 20, 12]
    found = encode_in_batches(note, [[0] * length for length in lengths])
    assert found[:, 0].tolist() == lengths
    assert seen == [(3, 12), (2, 20), (1, 20), (1, 50)]
    for window, mixed in ((20, [1, 20]), (40, [40])):
        *_, batch = make_reference(make_student(max_tokens=window), make_tokenizer(), TEXT).batches.values()
        assert [len(row) for row in batch] == mixed


def test_languages_in_turn() -> None:
    assert interleave({"en": ["a", "b", "c"], "de": ["x"]}) == ["a", "x", "b", "c"]


def test_a_graph_encodes_as_the_student_does(reference: Reference) -> None:
    session = open_on_cpu(bundle() / FP32)
    done: list[int] = []
    found = encode_with(session, reference.all_sentences, reference.pad_token_id, done.append)
    np.testing.assert_allclose(found, reference.all_vectors, atol=1e-5)
    assert sum(done) == len(reference.all_sentences) == 7
    np.testing.assert_allclose(run_graph(session, reference.sentences["fr"], 1), reference.vectors["fr"], atol=1e-5)


def test_figures_of_float32_are_for_the_manifest(reference: Reference) -> None:
    done: list[int] = []
    found = verify_fp32(bundle() / FP32, reference, Bounds(), done.append)
    assert sum(done) == 7
    assert 0 < found["max_abs_difference"] < found["bound"] == 1e-4
    assert found["bounds"] == {"worst_cosine": 0.99999}
    assert 0.99999 < found["worst_cosine"] <= found["mean_cosine"] <= 1.0000001
    assert {language: one["sentences"] for language, one in found["languages"].items()} == {"en": 4, "de": 1, "fr": 2}
    assert list(found["shapes"]) == list(reference.batches)
    assert json.loads(json.dumps(found)) == found


def test_figures_of_int8_come_with_their_bounds(reference: Reference) -> None:
    lax = Bounds(mean_cosine=0.5, worst_cosine=0.4, similarity_correlation=0.3, invariance_cosine=0.2)
    found = verify_quantized(open_on_cpu(bundle() / INT8), reference, lax)
    assert found["bounds"] == {
        "mean_cosine": 0.5,
        "worst_cosine": 0.4,
        "similarity_correlation": 0.3,
        "invariance_cosine": 0.2,
    }
    assert 0.9 < found["worst_cosine"] <= found["mean_cosine"] < 1
    assert min(one["worst"] for group in ("languages", "shapes") for one in found[group].values()) == pytest.approx(
        found["worst_cosine"]
    )
    assert 0.9 < found["invariance_cosine"] <= 1.0000001
    assert json.loads(json.dumps(found)) == found


def test_the_float32_graph_passes_every_precisions_bounds(reference: Reference) -> None:
    for bounds in map(Bounds.of, ("int8", "int4", "fp16")):
        assert verify_quantized(bundle() / FP32, reference, bounds)["invariance_cosine"] > 0.99999


def test_bounds_of_precisions() -> None:
    int8, int4, fp16 = map(Bounds.of, ("int8", "int4", "fp16"))
    assert (int8.mean_cosine, int8.worst_cosine, int8.invariance_cosine) == (0.995, 0.98, 0.995)
    assert int4.worst_cosine < int8.worst_cosine < fp16.worst_cosine
    assert int8 == Bounds.of("fp32") == Bounds.of("auto")
    assert int8.fp32_cosine == int4.fp32_cosine == fp16.fp32_cosine


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mean_cosine",
            r"onnx/model_quantized\.onnx: mean cosine to PyTorch in en is [01]\.\d+, bound 1\.1; export for another",
        ),
        ("worst_cosine", r"worst cosine to PyTorch in en is [01]\.\d+, bound 1\.1"),
        ("similarity_correlation", r"correlation of similarities with PyTorch's is 0\.9\d+, bound 1\.1"),
        ("invariance_cosine", r"worst cosine between a sentence alone and in a batch is [01]\.\d+, bound 1\.1"),
    ],
)
def test_each_figure_below_its_bound_is_refused(reference: Reference, name: str, said: str) -> None:
    lax = Bounds(mean_cosine=0, worst_cosine=0, similarity_correlation=0, invariance_cosine=0)
    with pytest.raises(GateError, match=said) as caught:
        verify_quantized(bundle() / INT8, reference, replace(lax, **{name: 1.1}))
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


def test_a_figure_just_below_its_bound_does_not_look_like_the_bound(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.export.verify.similarity_correlation", lambda *_: 0.96999999)
    lax = Bounds(mean_cosine=0, worst_cosine=0, invariance_cosine=0)
    with pytest.raises(GateError, match=r"similarities with PyTorch's is 0\.9699, bound 0\.97;"):
        verify_quantized(bundle() / INT8, reference, lax)


def test_the_sample_is_encoded_in_no_larger_batches_than_stated(
    reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompress.export.verify.SAMPLE_BATCH", 5)
    sizes: list[int] = []

    def run(_: object, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        sizes.append(len(inputs["input_ids"]))
        return [np.ones((sizes[-1], 24), dtype=np.float32)]

    with pytest.raises(GateError):  # vectors of other texts
        verify_quantized(Mock(run=run), reference, Bounds())
    assert sizes[-9:] == [1] * 7 + [4, 3]


def test_one_bad_language_is_named(reference: Reference) -> None:
    vectors = reference.vectors | {"de": -reference.vectors["de"]}
    with pytest.raises(GateError, match="mean cosine to PyTorch in de is -"):
        verify_quantized(bundle() / FP32, replace(reference, vectors=vectors), Bounds())


def test_one_bad_shape_is_named(reference: Reference) -> None:
    vectors = reference.batch_vectors | {"1x7": -reference.batch_vectors["1x7"]}
    with pytest.raises(GateError, match="worst cosine to PyTorch at shape 1x7 is -"):
        verify_quantized(bundle() / FP32, replace(reference, batch_vectors=vectors), Bounds())


def test_a_wrong_float32_graph_is_refused(reference: Reference) -> None:
    # the int8 graph stands for a float32 graph that went wrong
    with pytest.raises(GateError, match=r"onnx/model_quantized.onnx differs from PyTorch by .* bound 1e-04"):
        verify_fp32(bundle() / INT8, reference, Bounds())
    with pytest.raises(GateError, match=r"worst cosine to PyTorch in en is 0\.9\d+, bound 0\.99999; install"):
        verify_fp32(bundle() / INT8, reference, Bounds(fp32_difference=2))


def test_vectors_of_another_length_are_refused(reference: Reference) -> None:
    longer = replace(reference, vectors={code: 1.01 * vectors for code, vectors in reference.vectors.items()})
    with pytest.raises(GateError, match="differs from PyTorch by"):
        verify_fp32(bundle() / FP32, longer, Bounds())


def test_a_long_vectors_difference_is_taken_in_its_units() -> None:
    torch.manual_seed(0)
    reference = make_reference(*student_of_bundle(), TEXT)
    scaled = {code: 1000 * vectors for code, vectors in reference.vectors.items()}
    with pytest.raises(GateError, match=r"differs from PyTorch by \d\.\d\de-0[12], bound"):
        verify_fp32(bundle() / FP32, replace(reference, vectors=scaled), Bounds(fp32_difference=1e-3))


def test_similarities_are_correlated_whatever_the_vectors_lengths_and_frame() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(12, 5)).astype(np.float32)
    turned = vectors @ np.linalg.qr(generator.normal(size=(5, 5)))[0].astype(np.float32)
    assert similarity_correlation(vectors, 3 * turned) == pytest.approx(1, abs=1e-5)
    assert abs(similarity_correlation(vectors, generator.normal(size=(12, 5)).astype(np.float32))) < 0.5
    assert similarity_correlation(vectors[:2], -vectors[:2]) == 1


def test_a_graph_that_gives_no_numbers_is_refused(reference: Reference, tmp_path: Path) -> None:
    model = onnx.load(bundle() / FP32)
    scale = next(weight for weight in model.graph.initializer if "norm" in weight.name and list(weight.dims) == [32])
    scale.raw_data = b"\x00\x00\xc0\x7f" * 32  # not a number
    onnx.save(model, tmp_path / "broken.onnx")
    with pytest.raises(GateError, match=r"broken\.onnx differs from PyTorch by nan, as its vectors hold NaN"):
        verify_fp32(tmp_path / "broken.onnx", reference, Bounds())
    with pytest.raises(GateError, match="mean cosine to PyTorch in en is nan, as its vectors hold NaN"):
        verify_quantized(tmp_path / "broken.onnx", reference, Bounds())


def test_a_graph_that_gives_other_than_one_vector_a_text_is_refused() -> None:
    session = Mock(run=lambda *_: [np.zeros((1, 2, 8), np.float32)])
    with pytest.raises(GateError, match=r"the graph gives the shape \[1, 2, 8\] for 2 texts; choose another --target"):
        run_graph(session, [[5, 6], [5, 7]], 1)


@pytest.mark.parametrize(
    ("head", "bias", "said"),
    [
        (0, 1, "all texts the same vector"),
        (0, 0, "a vector of zeros"),
        (3e38, 0, "vectors with NaN or infinity"),
    ],
)
def test_a_student_whose_vectors_say_nothing_is_refused(head: float, bias: float, said: str) -> None:
    student = make_student()
    with torch.no_grad():
        student.head.weight.fill_(head)
        student.head.bias.fill_(bias)
    with pytest.raises(InputError, match=f"the model gives {said}, so its weights are damaged; fetch or train"):
        make_reference(student, make_tokenizer(), TEXT)
