"""Numbers in a recipe that no machine can work with: refused in one line that names the key."""

from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from tests.helpers.limits import frugal
from xcompress.distillation.shape import scratch_config
from xcompress.errors import InputError
from xcompress.recipe import Recipe, load_recipe
from xcompress.recipe.parameters import count_parameters
from xcompress.recipe.validation import problems

HUGE = 10**12
SHAPE = "{vocabulary: 250037, hidden: 384, layers: 12, heads: 12, intermediate: 1536}"
GROUPS = f"correlation={{teacher: {{source: org/encoder, shape: {SHAPE}}}}}"
"""A section that the recipe of the tests lacks."""


def number_keys(section: type[BaseModel], path: tuple[str, ...] = ()) -> list[tuple[str, type]]:
    """List the keys of a section that hold a number, at any depth, and whether it is an int or a float."""
    keys = []
    for name, field in section.model_fields.items():
        types = _types_in(field.annotation)
        keys += [(".".join((*path, name)), kind) for kind in (int, float) if kind in types]
        for kind in types:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                inner = "contrast" if name == "stages" else None
                keys += number_keys(kind, (*path, name, *([inner] if inner else [])))
    return keys


def _types_in(annotation: object) -> list[Any]:
    if get_origin(annotation) in (tuple, list):
        return [None]
    arguments = get_args(annotation)
    return [kind for argument in arguments for kind in _types_in(argument)] if arguments else [annotation]


_ABSENT = ("ensemble", "corpus.tsv", "layers_from", "embeddings_from", "soup", "labelled.augment")
"""Parts that the recipe of the tests lacks; their types are those of others."""
NUMBERS = [(key, kind) for key, kind in number_keys(Recipe) if not any(part in key for part in _ABSENT)]


def test_the_keys_of_numbers_are_found() -> None:
    keys = [key for key, _ in NUMBERS]
    assert {"seed", "stages.contrast.learning_rate", "stages.contrast.steps", "student.bottleneck"} <= set(keys)
    assert {"corpus.max_ratio", "teacher.weight", "assistant.shape.layers"} <= set(keys)
    assert len(keys) > 40


@pytest.mark.parametrize("key", [key for key, kind in NUMBERS if kind is float])
def test_every_float_must_be_finite(key: str) -> None:
    for value in (".inf", "-.inf", ".nan", "1.0e+400"):
        with pytest.raises(InputError, match=key.split(".")[-1]):
            load_recipe("four_stages", [GROUPS, f"{key}={value}"])


@pytest.mark.parametrize("key", [key for key, kind in NUMBERS if kind is int])
def test_every_integer_has_bounds(key: str) -> None:
    for value in (-1, 10**15, 10**30, ".inf", ".nan"):
        with frugal(), pytest.raises(InputError) as caught:
            load_recipe("four_stages", [GROUPS, f"{key}={value}"])
        assert key.split(".")[-1] in str(caught.value) or "too large a number" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weight", [".inf", ".nan"])
def test_weights_of_objectives_and_depths_must_be_finite(weight: str) -> None:
    for override in (f"stages.contrast.objectives.teacher={weight}", f"stages.contrast.depth_weights=[1, {weight}]"):
        with pytest.raises(InputError, match="finite"):
            load_recipe("four_stages", [override])


def test_a_seed_must_fit_the_generators() -> None:
    for override in ("seed=-5", f"seed={2**32}", "stages.contrast.seed=-5", f"stages.contrast.seed={2**32}"):
        with pytest.raises(InputError, match=r"seed"):
            load_recipe("four_stages", [override])


def test_the_seeds_of_all_stages_fit_the_generators() -> None:
    with pytest.raises(InputError, match="seed"):
        load_recipe("four_stages", [f"seed={2**32 - 1}"])


def test_a_stage_of_countless_steps_is_refused() -> None:
    with pytest.raises(InputError, match=r"epochs"):
        load_recipe("four_stages", ["stages.contrast.steps=null", "stages.contrast.epochs=1.0e+300"])


@pytest.mark.parametrize("key", ["vocabulary", "hidden", "layers", "intermediate", "positions", "heads", "types"])
def test_the_shape_of_an_encoder_has_bounds(key: str) -> None:
    overrides = [f"assistant.shape={SHAPE}", f"assistant.shape.{key}={HUGE}"]
    with frugal(), pytest.raises(InputError, match=key):
        load_recipe("four_stages", overrides)


FROM_SCRATCH = ["assistant=null", "teacher=null", "vocabulary={method: train, size: 400}", "corpus.max_tokens=null"]
STAGES = "stages={words: {train: student, objectives: {unified: 1}, steps: 2}}"


@pytest.mark.parametrize(
    "student",
    [
        "{unit_layers: 2, hidden: 1000000, heads: 1, intermediate: 64, bottleneck: null}",
        "{unit_layers: 2, hidden: 32, heads: 4, intermediate: 1000000000, bottleneck: null}",
        "{unit_layers: 1000000000, hidden: 32, heads: 4, intermediate: 64, bottleneck: null}",
        "{unit_layers: 2, hidden: 32, heads: 4, intermediate: 64, max_tokens: 1000000000, bottleneck: null}",
        "{unit_layers: 2, recurrences: 1000000, hidden: 32, heads: 4, intermediate: 64, bottleneck: null}",
    ],
)
def test_a_student_too_large_for_any_machine_is_refused(student: str) -> None:
    with frugal(), pytest.raises(InputError, match=r"student|unit_layers|intermediate|max_tokens|recurrences"):
        load_recipe("four_stages", [*FROM_SCRATCH, STAGES, f"student={student}"])


def test_a_config_file_with_huge_sizes_is_refused_by_validate(tmp_path: Path) -> None:
    config = {"vocab_size": 9, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    config |= {"num_hidden_layers": HUGE, "max_position_embeddings": 9, "type_vocab_size": 2}
    (tmp_path / "config.json").write_text(str(config).replace("'", '"'))
    recipe = load_recipe("four_stages", [f"assistant={{source: {tmp_path}}}"])
    with frugal():
        assert any("num_hidden_layers" in problem or "layers" in problem for problem in problems(recipe))
    (tmp_path / "config.json").write_text(str(config | {"num_hidden_layers": -3}).replace("'", '"'))
    with pytest.raises(InputError, match="layers"):
        count_parameters(recipe)


def test_sizes_that_are_too_many_together_are_refused() -> None:
    student = "{unit_layers: 1000, hidden: 100000, heads: 4, intermediate: 1000000, bottleneck: null}"
    recipe = load_recipe("four_stages", [*FROM_SCRATCH, STAGES, f"student={student}"])
    with frugal(), pytest.raises(InputError, match="parameters"):
        count_parameters(recipe)
    with frugal(), pytest.raises(InputError, match="parameters"):
        scratch_config(recipe, 400, 0)
