"""The shape of the student, from the recipe and the shape of its assistant."""

from dataclasses import replace
from typing import Any

from xcompress.modeling.rotary_config import ROTARY_LAYERS
from xcompress.modeling.student import StudentConfig
from xcompress.recipe import Recipe, StudentSection
from xcompress.recipe.parameters import count_recurrences


def student_config(assistant: StudentConfig, section: StudentSection) -> StudentConfig:
    """Derive the student's shape from the assistant's.

    :raises InputError: when M does not divide the assistant's layers, B is not below H, a layer does not exist, or one
        that must not recur does.
    """
    recurrences = count_recurrences(section, assistant.depth)
    kind = next((name for name in ROTARY_LAYERS if getattr(assistant, name)), None)
    rotary: dict[str, Any] = {}
    if kind:  # the student has the layers of the assistant's stack that the recipe names
        of_layers = dict(zip(dict.fromkeys(assistant.stack), assistant.rotary, strict=True))
        copied = (*section.prelude, *section.unit, *section.coda)
        rotary[kind] = tuple(of_layers[assistant.stack[number - 1]] for number in copied)
    return replace(
        assistant,
        **rotary,
        prelude_layers=len(section.prelude),
        unit_layers=section.unit_layers,
        coda_layers=len(section.coda),
        recurrences=recurrences,
        bottleneck=section.bottleneck,
        max_tokens=min(section.max_tokens, assistant.max_tokens),
        prefix="",
    )


def scratch_config(recipe: Recipe, vocab_size: int, pad_token_id: int) -> StudentConfig:
    """Return the shape of a student that starts from scratch, without an assistant.

    :param vocab_size: V, rows of the token embeddings.
    """
    section = recipe.student
    assert section.hidden and section.heads and section.intermediate  # checked when the recipe was loaded
    return StudentConfig(
        vocab_size=vocab_size,
        hidden_size=section.hidden,
        num_attention_heads=section.heads,
        intermediate_size=section.intermediate,
        unit_layers=section.unit_layers,
        recurrences=section.recurrences or 1,
        bottleneck=section.bottleneck,
        max_position_embeddings=section.max_tokens,
        type_vocab_size=0,
        pad_token_id=pad_token_id,
        normalize=recipe.normalizes,
        max_tokens=section.max_tokens,
    )
