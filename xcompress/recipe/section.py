"""What all sections of a recipe have in common: their base class, renamed and added keys, and the types of numbers."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from xcompress.modeling.bounds import LARGEST

OLD_NAMES: Mapping[str, str] = {
    "ensemble": "beside",
    "layers_from": "unit_from",
    "embeddings_from": "rows_from",
    "unicode_form": "form",
    "embedding_init": "initial_table",
    "ema_decay": "moving_decay",
    "embedding_learning_rate": "table_learning_rate",
}
"""Recipe keys that were renamed, and their names in earlier versions.

Both names are read. `model_dump(by_alias=True)` writes the old ones: hashes and cache keys are made of that, so that
those of finished runs and released models stay valid.
"""
_ADDED = (
    "trust_remote_code",
    "monolingual",
    "monolingual_pairs",
    "schedule",
    "word_head",
    "soup",
    "quantize",
    "compile",
    "targets",
    "prelude",
    "coda",
    "correlation",
    "correlation_pairs",
    "center",
    "modernbert",
    "rotary_bert",
)
"""Keys that earlier versions lack; see `Section`."""


class Section(BaseModel):
    """Base of all recipe sections: unknown keys are errors, and values cannot change after loading.

    `model_dump(by_alias=True)` leaves out the keys in `_ADDED` that have their default, for the same reason as with
    `OLD_NAMES`.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(name, OLD_NAMES[name]) if name in OLD_NAMES else name,
            serialization_alias=lambda name: OLD_NAMES.get(name, name),
        ),
    )

    @model_serializer(mode="wrap")
    def _leave_out_added_keys(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        if not info.by_alias:
            return values
        fields = type(self).model_fields
        return {
            key: value
            for key, value in values.items()
            if key not in _ADDED or getattr(self, key) != fields[key].default
        }


def _refuse_boolean(value: object) -> object:
    """Refuse yes and no, which pydantic would read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("YAML reads no and yes as booleans; write a number")
    return value


Whole = Annotated[int, BeforeValidator(_refuse_boolean)]
"""A whole number. `bottleneck: yes` must not become a width of 1."""
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
"""A number, which may have a fraction."""
PositiveNumber = Annotated[Number, Field(gt=0)]
NonNegativeNumber = Annotated[Number, Field(ge=0)]
Positive = Annotated[Whole, Field(gt=0, le=10**9)]
"""A count; the upper bound catches slips of the keyboard, and numbers that fill the memory."""
Tokens = Annotated[Whole, Field(gt=0, le=LARGEST["vocab_size"])]
Width = Annotated[Whole, Field(gt=0, le=LARGEST["hidden_size"])]
InnerWidth = Annotated[Whole, Field(gt=0, le=LARGEST["intermediate_size"])]
Heads = Annotated[Whole, Field(gt=0, le=LARGEST["num_attention_heads"])]
Layers = Annotated[Whole, Field(gt=0, le=LARGEST["unit_layers"])]
Positions = Annotated[Whole, Field(gt=0, le=LARGEST["max_position_embeddings"])]
Types = Annotated[Whole, Field(ge=0, le=LARGEST["type_vocab_size"])]
Recurrences = Annotated[Whole, Field(gt=0, le=LARGEST["recurrences"])]
Seed = Annotated[Whole, Field(ge=0, lt=2**32)]
"""What NumPy and PyTorch both accept."""
NAME, LANGUAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*$", r"^[a-z]{2,3}$"
"""Patterns."""
Name = Annotated[str, Field(pattern=NAME)]
Language = Annotated[str, Field(pattern=LANGUAGE)]


def _check_per_language(reference: str) -> str:
    if "{language}" not in reference:
        raise ValueError(f"{reference} lacks {{language}}; put it where file names differ")
    return reference


PerLanguage = Annotated[str, AfterValidator(_check_per_language)]
"""A reference to one file for each language."""
