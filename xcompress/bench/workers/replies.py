"""The types of a worker's replies; the parent checks them, because a worker may run on another host."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from xcompress.errors import first_mistake

Seconds = Annotated[float, Field(ge=1e-9, le=1e9, allow_inf_nan=False)]
"""No clock tells less, and sums and ratios of these are finite."""
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Difference = Annotated[int, Field(ge=-(1 << 62), le=1 << 62)]


class _Reply(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class _Start(_Reply):
    """Seconds of the parts of a start."""

    importing: Seconds = Field(alias="import")
    model: Seconds
    first_vector: Seconds


class _Memory(_Reply):
    """Bytes: of the bare interpreter, and over it."""

    bare: Count
    resident: Difference
    peak: Difference


class _Load(_Memory):
    seconds: _Start
    multiply_adds: Annotated[list[Count], Field(min_length=2, max_length=2)] | None
    disk: Count


class _Time(_Reply):
    seconds: Annotated[list[Seconds], Field(min_length=1)]


class _Throughput(_Reply):
    seconds: Seconds
    tokenizer: Seconds | None
    tokens: Count | None
    single: list[Seconds]


class _Encode(_Reply):
    vectors: str
    shape: Annotated[list[Count], Field(min_length=2, max_length=2)]


class _Peak(_Reply):
    seconds: Seconds


class _Tokenizer(_Reply):
    resident: Difference


class _Machine(_Reply):
    cpu: str
    flags: list[str]
    threads: Annotated[int, Field(ge=1, le=1 << 20)]
    memory: Count
    load: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    system: str
    python: str
    libraries: dict[str, str]


_FORMS: Mapping[str, type[_Reply]] = {
    "load": _Load,
    "memory": _Memory,
    "time": _Time,
    "throughput": _Throughput,
    "encode": _Encode,
    "peak": _Peak,
    "tokenizer": _Tokenizer,
    "machine": _Machine,
}
"""By request; a reply to any other one holds nothing."""


def find_mistake(do: str, reply: Mapping[str, Any]) -> str:
    """Return the first thing that is wrong with a reply, or an empty text.

    :param do: the request.
    """
    form = _FORMS.get(do)
    try:
        if form is not None:
            form.model_validate(reply)
    except ValidationError as error:
        return first_mistake(error)
    return ""
