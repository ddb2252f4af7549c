"""The form of a student that exporters for phones take gives the student's vectors."""

import pytest
import torch

from tests.helpers.student import MODERNBERT, make_student
from xcompress.bundle.phone_runtimes import LEAST_TOKENS
from xcompress.export.phone import PhoneModel, example_inputs


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bottleneck": None, "head_size": None, "type_vocab_size": 0},
        {"pooling": "cls", "normalize": False},
        {"relative_buckets": 8, "position_offset": 0},
        {"head_activation": "tanh"},
        {"prelude_layers": 1, "unit_layers": 1, "coda_layers": 2},
        MODERNBERT,
        MODERNBERT | {"prelude_layers": 1, "unit_layers": 2, "recurrences": 2, "bottleneck": None, "pooling": "cls"},
    ],
)
def test_a_text_has_the_students_vector_with_and_without_padding(changes: dict[str, object]) -> None:
    student = make_student(**changes)
    ids = torch.randint(5, 300, (1, 11), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, 7:] = 0
    exact, small = PhoneModel(student, int8_rows=False), PhoneModel(student)
    with torch.inference_mode():
        expected = student(ids, mask)[1]
        torch.testing.assert_close(exact(ids, mask), expected, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(exact(ids[:, :7], mask[:, :7]), expected, atol=1e-6, rtol=1e-5)
        assert torch.cosine_similarity(small(ids, mask), expected).item() > 0.999


def test_a_folded_bottleneck_gives_the_same_vector() -> None:
    student = make_student()
    ids = torch.arange(5, 12)[None]
    folded = PhoneModel(student, fold=True, int8_rows=False)
    assert folded.projection is None
    with torch.inference_mode():
        expected = student(ids, torch.ones_like(ids))[1]
        torch.testing.assert_close(folded(ids, torch.ones_like(ids)), expected, atol=1e-6, rtol=1e-5)


def test_token_embeddings_take_a_byte_per_number() -> None:
    student = make_student()
    rows = PhoneModel(student).word.rows
    assert (rows.dtype, rows.shape) == (torch.int8, student.embeddings.word.weight.shape)


@pytest.mark.parametrize("changes", [{}, MODERNBERT])
def test_a_student_of_a_short_window_is_traced(changes: dict[str, object]) -> None:
    model = PhoneModel(make_student(max_tokens=5, **changes))
    length = torch.export.Dim("length", min=LEAST_TOKENS, max=5)
    program = torch.export.export(
        model, example_inputs(model.config), dynamic_shapes=({1: length}, {1: length})
    ).module()
    for tokens in (2, 4, 5):
        ids = torch.arange(5, 5 + tokens)[None]
        torch.testing.assert_close(program(ids, torch.ones_like(ids)), model(ids, torch.ones_like(ids)))
