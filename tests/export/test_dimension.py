import numpy as np
import pytest

from tests.helpers.student import SENTENCES, make_student, make_tokenizer
from xcompress.errors import InputError
from xcompress.export.prepare import SENTENCES_PER_AXIS, principal_axes, reduce_dimension
from xcompress.export.text import real_sentences
from xcompress.modeling.student import encode

TEXTS = real_sentences()[:48]
FORMS: list[dict[str, object]] = [
    {},
    {"head_size": None, "normalize": False},
    {"pooling": "cls", "recurrences": 1},
]


def test_principal_axes_keep_the_most_squared_length_that_any_axes_can() -> None:
    generator = np.random.default_rng(0)
    vectors = (generator.normal(size=(200, 12)) * np.arange(1, 13) + 2).astype(np.float32)
    for count in (1, 4, 11):
        axes = principal_axes(vectors, count)
        assert (axes.shape, axes.dtype) == ((count, 12), np.float32)
        np.testing.assert_allclose(axes @ axes.T, np.eye(count), atol=1e-5)
        strengths = np.linalg.svd(vectors, compute_uv=False)[:count]
        np.testing.assert_allclose(np.square(vectors @ axes.T).sum(0), strengths**2, rtol=1e-4)


@pytest.mark.parametrize("sliced", [False, True])
@pytest.mark.parametrize("changes", FORMS)
def test_vectors_are_the_old_ones_on_the_axes_at_unit_length(changes: dict[str, object], sliced: bool) -> None:
    student, tokenizer = make_student(**changes), make_tokenizer()
    before = encode(student, tokenizer, TEXTS)
    small, kept = reduce_dimension(student, tokenizer, TEXTS, 6, sliced=sliced)
    axes = np.eye(before.shape[1])[:6] if sliced else principal_axes(before, 6)
    expected = before @ axes.T
    assert kept == pytest.approx(np.square(expected).sum() / np.square(before).sum(), rel=1e-4)
    if student.config.normalize:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encode(small, tokenizer, TEXTS), expected, atol=1e-5)
    assert (small.config.dimension, small.config.head_size, small.training) == (6, 6, False)
    assert encode(student, tokenizer, TEXTS[:1]).shape[1] == before.shape[1]


def test_axes_keep_more_than_the_first_numbers() -> None:
    student, tokenizer = make_student(), make_tokenizer()
    by_axes, by_place = (reduce_dimension(student, tokenizer, TEXTS, 4, sliced=sliced)[1] for sliced in (False, True))
    assert 1 > by_axes > by_place + 0.05


@pytest.mark.parametrize("dimension", [24, 25, 1000])
def test_vectors_can_only_become_shorter(dimension: int) -> None:
    with pytest.raises(InputError, match=f"dimension: {dimension} asked for, the vectors have 24; choose fewer"):
        reduce_dimension(make_student(), make_tokenizer(), TEXTS, dimension, sliced=False)


def test_an_activated_head_cannot_be_shortened() -> None:
    with pytest.raises(InputError, match="the vectors pass tanh and cannot be shortened; leave the option out"):
        reduce_dimension(make_student(head_activation="tanh"), make_tokenizer(), TEXTS, 8, sliced=True)


def test_few_sentences_for_many_axes_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    student, tokenizer = make_student(), make_tokenizer()
    reduce_dimension(student, tokenizer, TEXTS[: 4 * SENTENCES_PER_AXIS], 4, sliced=False)
    reduce_dimension(student, tokenizer, SENTENCES, 4, sliced=True)
    assert "warning" not in capsys.readouterr().err
    reduce_dimension(student, tokenizer, TEXTS[: 4 * SENTENCES_PER_AXIS - 1], 4, sliced=False)
    assert "15 sentences for 4 axes; give more with --text" in capsys.readouterr().err
