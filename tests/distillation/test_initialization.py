from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.helpers.student import embedding_error, make_student, make_tokenizer
from xcompress.distillation.initialization import (
    initial_student,
    least_squares_head,
    truncated_svd,
    with_head,
    without_head,
)
from xcompress.errors import InputError
from xcompress.modeling.student import Student, encode
from xcompress.recipe import StudentSection

SENTENCES = ["the boat is late", "a red boat waits near the old bridge", "rain", "der Zug kommt heute nicht"]


def assistant(layers: int = 4) -> Student:
    return make_student(unit_layers=layers, recurrences=1, bottleneck=None)


def plain(model: Student) -> Student:
    """Return the same encoder without a prefix."""
    copy = Student(replace(model.config, prefix=""))
    copy.load_state_dict(model.state_dict())
    return copy


def test_least_squares_finds_a_linear_map_and_its_offset() -> None:
    generator = np.random.default_rng(0)
    vectors, matrix, offset = generator.normal(size=(200, 6)), generator.normal(size=(3, 6)), generator.normal(size=3)
    head = least_squares_head(vectors.astype(np.float32), (vectors @ matrix.T + offset).astype(np.float32))
    np.testing.assert_allclose(head.weight.detach().numpy(), matrix, atol=1e-4)
    np.testing.assert_allclose(head.bias.detach().numpy(), offset, atol=1e-4)


def test_least_squares_does_not_amplify_noise_in_a_direction_without_variance() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(200, 6))
    vectors -= vectors.mean(1, keepdims=True)
    vectors += 1e-6 * generator.normal(size=vectors.shape)
    head = least_squares_head(vectors.astype(np.float32), generator.normal(size=(200, 3)).astype(np.float32))
    assert head.weight.abs().max() < 10


def test_a_fitted_head_maps_the_assistant_to_its_targets() -> None:
    model, tokenizer = assistant(), make_tokenizer()
    bare = without_head(model)
    targets = np.eye(4, 5, dtype=np.float32)
    fitted = with_head(bare, least_squares_head(encode(bare, tokenizer, SENTENCES), targets))
    np.testing.assert_allclose(encode(fitted, tokenizer, SENTENCES), targets, atol=1e-3)


def test_svd_is_the_best_factorisation_when_all_tokens_weigh_the_same() -> None:
    embeddings = torch.tensor(np.random.default_rng(0).normal(size=(40, 12)), dtype=torch.float32)
    rows, projection = truncated_svd(embeddings, 5, np.full(40, 7))
    singular = np.linalg.svd(embeddings.double().numpy(), compute_uv=False)
    error = (embeddings - rows @ projection.T).square().sum().item()
    assert error == pytest.approx((singular[5:] ** 2).sum(), rel=1e-4)


def test_svd_approximates_frequent_tokens_better() -> None:
    embeddings = torch.tensor(np.random.default_rng(0).normal(size=(40, 12)), dtype=torch.float32)
    counts = np.zeros(40, dtype=np.int64)
    counts[:4] = 10_000
    rows, projection = truncated_svd(embeddings, 5, counts)
    errors = (embeddings - rows @ projection.T).square().sum(1)
    assert errors[:4].max() < 0.01 < errors[4:].mean()


def test_the_student_starts_with_the_first_layers_and_the_head_of_the_assistant() -> None:
    model = assistant(4)
    student = initial_student(model, StudentSection(unit_layers=2, bottleneck=8), np.ones(400, dtype=np.int64))
    assert (student.config.recurrences, student.config.prefix) == (2, "")
    for layer in range(2):
        assert torch.equal(student.unit[layer].output.weight, model.unit[layer].output.weight)
    assert student.head is not None and model.head is not None
    assert torch.equal(student.head.weight, model.head.weight)
    assert student.sizes()["word"] == 400 * 8


def test_the_student_gets_the_layers_that_the_recipe_names() -> None:
    model = assistant(4)
    section = StudentSection(unit_layers=2, layers=(2, 4), recurrences=1, bottleneck=None)
    student = initial_student(model, section, np.ones(400, dtype=np.int64))
    for number, layer in enumerate((1, 3)):
        for name, weight in model.unit[layer].state_dict().items():
            assert torch.equal(student.unit[number].state_dict()[name], weight), name


def test_prelude_unit_and_coda_get_the_layers_that_the_recipe_names() -> None:
    model = assistant(6)
    section = StudentSection(prelude=(1,), unit_layers=2, recurrences=3, coda=(5, 6), bottleneck=None)
    student = initial_student(model, section, np.ones(400, dtype=np.int64))
    assert student.config.recurrences == 3
    for layer, number in zip(student.layers().values(), (1, 2, 3, 5, 6), strict=True):
        assert torch.equal(layer.output.weight, model.unit[number - 1].output.weight)


def test_layers_of_a_recurrent_assistant_are_counted_in_its_depth() -> None:
    model = Student(replace(assistant(2).config, recurrences=3, coda_layers=1))
    section = StudentSection(unit_layers=4, layers=(1, 2, 3, 7), recurrences=1, bottleneck=None)
    student = initial_student(model, section, np.ones(400, dtype=np.int64))
    expected = [model.unit[0], model.unit[1], model.unit[0], model.coda[0]]
    for layer, source in zip(student.unit, expected, strict=True):
        assert torch.equal(layer.output.weight, source.output.weight)


@pytest.mark.parametrize("bottleneck", [8, 24, None])
def test_an_assistant_with_a_bottleneck_initialises_any_bottleneck(bottleneck: int | None) -> None:
    model = make_student(unit_layers=2, recurrences=1, bottleneck=8)
    section = StudentSection(unit_layers=2, bottleneck=bottleneck)
    student = initial_student(model, section, np.ones(400, dtype=np.int64))
    tokenizer = make_tokenizer()
    assert student.config.bottleneck == bottleneck
    np.testing.assert_allclose(
        encode(student, tokenizer, SENTENCES), encode(plain(model), tokenizer, SENTENCES), atol=1e-5
    )


def test_without_a_bottleneck_the_embeddings_are_the_assistants() -> None:
    model = assistant(4)
    student = initial_student(model, StudentSection(unit_layers=4, bottleneck=None), np.ones(400, dtype=np.int64))
    tokenizer = make_tokenizer()
    assert np.array_equal(encode(student, tokenizer, SENTENCES), encode(plain(model), tokenizer, SENTENCES))


def test_svd_starts_below_random_embeddings_in_equation_3() -> None:
    model, section = assistant(), StudentSection(unit_layers=2, bottleneck=24)
    random = section.model_copy(update={"embedding_init": "random"})
    students = [initial_student(model, each, np.ones(400, dtype=np.int64)) for each in (section, random)]
    of_svd, of_random = (embedding_error(model, student, make_tokenizer(), SENTENCES) for student in students)
    assert 0 < of_svd < of_random


def test_a_unit_that_does_not_divide_the_layers_is_refused() -> None:
    with pytest.raises(InputError, match="unit_layers: 3 does not divide the assistant's 4 layers; choose 1, 2, 4"):
        initial_student(assistant(4), StudentSection(unit_layers=3, bottleneck=8), np.ones(400, dtype=np.int64))
